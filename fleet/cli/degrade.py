"""`refloat degrade` and `refloat undegrade`: instances to which others are preferred, through a console."""

from __future__ import annotations

import click

from fleet.cli.drain import Request, of_instances
from fleet.nodes.shared.flags import POSITIVE


@click.command()
@of_instances(
    "degrade",
    click.option(
        "--for", "lasts", type=POSITIVE, default="10m", show_default=True, help="How long, 24h at most."
    ),
)
def degrade(lasts: float) -> Request:
    """Degrade auths and proxies: balancers prefer others to them. A restart of the instance ends it."""
    return (
        {"degraded": True, "minutes": lasts / 60},
        lambda answer: f"will be degraded until {answer['until']}",
    )


@click.command()
@of_instances("degrade")
def undegrade() -> Request:
    """End `degrade` now."""
    return {"degraded": False}, lambda _: "will be like others again"
