"""`refloat degrade` and `refloat undegrade`: instances to which others are preferred, through a console."""

from __future__ import annotations

import click

from fleet.cli.drain import InstanceRequest, instance_command
from fleet.nodes.shared.flags import POSITIVE


@click.command()
@instance_command(
    "degrade",
    click.option(
        "--for", "lasts", type=POSITIVE, default="10m", show_default=True, help="How long, 24h at most."
    ),
)
def degrade(lasts: float) -> InstanceRequest:
    """Degrade auths and proxies: balancers prefer others to them. A restart of the instance ends it."""
    return (
        {"degraded": True, "minutes": lasts / 60},
        lambda response: f"will be degraded until {response['until']}",
    )


@click.command()
@instance_command("degrade")
def undegrade() -> InstanceRequest:
    """End `degrade` now."""
    return {"degraded": False}, lambda _: "will be like others again"
