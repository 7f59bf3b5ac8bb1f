"""`refloat degrade` and `refloat undegrade`: instances to which others are preferred, through a console."""

from __future__ import annotations

import click

from fleet.cli import api
from fleet.cli.console import asks_console
from fleet.cli.draining import request_each
from fleet.nodes.shared.flags import POSITIVE

_reason = click.option("--reason", required=True, help="Shown wherever the instance is, and kept in the log.")
_instances = click.argument("instances", metavar="ID|NAME...", nargs=-1, required=True)
_json = click.option("--json", "as_json", is_flag=True, help="Print a JSON array of the API's answers.")


@click.command()
@_instances
@_reason
@click.option(
    "--for", "lasts", type=POSITIVE, default="10m", show_default=True, help="How long, 24h at most."
)
@asks_console
@_json
def degrade(
    console: api.Console,
    cluster: str,
    instances: tuple[str, ...],
    reason: str,
    lasts: float,
    as_json: bool,
) -> None:
    """Degrade auths and proxies: balancers prefer others to them. A restart of the instance ends it."""
    body = {"degraded": True, "reason": reason, "minutes": lasts / 60}
    request_each(
        console,
        cluster,
        instances,
        "degrade",
        body,
        lambda answer: f"will be degraded until {answer['until']}",
        as_json=as_json,
    )


@click.command()
@_instances
@_reason
@asks_console
@_json
def undegrade(
    console: api.Console, cluster: str, instances: tuple[str, ...], reason: str, as_json: bool
) -> None:
    """End `degrade` now."""
    body = {"degraded": False, "reason": reason}
    request_each(
        console, cluster, instances, "degrade", body, lambda _: "will be like others again", as_json=as_json
    )
