"""`refloat degrade` and `refloat undegrade`: instances to which others are preferred, through a console."""

from __future__ import annotations

import urllib.parse
from typing import Any

import click

from fleet.cli import api
from fleet.cli.answers import show_json
from fleet.cli.console import asks_console
from fleet.cli.draining import ids_of
from fleet.nodes.flags import Positive

_reason = click.option("--reason", required=True, help="Shown wherever the instance is, and kept in the log.")
_instances = click.argument("instances", metavar="ID|NAME...", nargs=-1, required=True)
_json = click.option("--json", "as_json", is_flag=True, help="Print a JSON array of the API's answers.")


@click.command()
@_instances
@_reason
@click.option(
    "--for", "lasts", type=Positive(), default="10m", show_default=True, help="How long, 24h at most."
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
    _request(console, cluster, instances, body, as_json=as_json)


@click.command()
@_instances
@_reason
@asks_console
@_json
def undegrade(
    console: api.Console, cluster: str, instances: tuple[str, ...], reason: str, as_json: bool
) -> None:
    """End `degrade` now."""
    _request(console, cluster, instances, {"degraded": False, "reason": reason}, as_json=as_json)


def _request(
    console: api.Console, cluster: str, instances: tuple[str, ...], body: dict[str, Any], *, as_json: bool
) -> None:
    answers = []
    for instance_id in ids_of(console, cluster, instances):
        path = f"/instances/{urllib.parse.quote(instance_id, safe='')}/degrade"
        answer = console.post(path, body, cluster=cluster)
        answers.append(answer)
        if not as_json:
            done = (
                f"will be degraded until {answer['until']}"
                if body["degraded"]
                else "will be like others again"
            )
            click.echo(f"{answer['name']} {done}")
    if as_json:
        show_json(answers)
