"""`refloat retire` and `refloat unretire`: agents that are gone for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from fleet.cli import api
from fleet.cli.console import console_options

_reason = click.option("--reason", required=True, help="Why; it is kept in the log.")
_ids = click.argument("agent_ids", metavar="ID|NAME...", nargs=-1, required=True)


@click.command()
@_ids
@_reason
@click.option("--alive", is_flag=True, help="Also those that show a sign of life.")
@console_options
def retire(console: api.Console, cluster: str, agent_ids: tuple[str, ...], reason: str, alive: bool) -> None:
    """Say that agents are gone for good: they are not counted as lost any more, and raise no alert."""
    _request_each(console, cluster, agent_ids, {"retired": True, "reason": reason, "alive": alive}, _RETIRE_SENTENCE)


@click.command()
@_ids
@_reason
@console_options
def unretire(console: api.Console, cluster: str, agent_ids: tuple[str, ...], reason: str) -> None:
    """Have agents count again that were retired."""
    _request_each(console, cluster, agent_ids, {"retired": False, "reason": reason}, _REINSTATE_SENTENCE)


_RETIRE_SENTENCE, _REINSTATE_SENTENCE = "{} is retired".format, "{} counts again".format


def _request_each(
    console: api.Console,
    cluster: str,
    agent_ids: tuple[str, ...],
    body: dict[str, Any],
    sentence: Callable[[str], str],
) -> None:
    for agent_id in agent_ids:
        response = console.request_agent(
            agent_id,
            lambda quoted_id: console.post(f"/agents/{quoted_id}/retire", body, cluster=cluster),
            cluster=cluster,
        )
        click.echo(sentence(response["name"]))
