"""`refloat retire` and `refloat reinstate`: take agents out of the counts, and count them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from fleet.cli import api
from fleet.cli.console import console_options

_reason = click.option("--reason", required=True, help="Reason, kept in the audit log.")
_ids = click.argument("agent_ids", metavar="ID|NAME...", nargs=-1, required=True)


@click.command()
@_ids
@_reason
@click.option("--confirm-alive", is_flag=True, help="Also retire agents with a heartbeat or a live tunnel.")
@console_options
def retire(
    console: api.Console, cluster: str, agent_ids: tuple[str, ...], reason: str, confirm_alive: bool
) -> None:
    """Retire agents that are gone for good.

    Retired agents do not count, and do not raise alerts.
    """
    _request_each(
        console,
        cluster,
        agent_ids,
        {"is_retired": True, "reason": reason, "confirm_alive": confirm_alive},
        _RETIRE_SENTENCE,
    )


@click.command()
@_ids
@_reason
@console_options
def reinstate(console: api.Console, cluster: str, agent_ids: tuple[str, ...], reason: str) -> None:
    """Reinstate retired agents: totals and alerts include them again."""
    _request_each(console, cluster, agent_ids, {"is_retired": False, "reason": reason}, _REINSTATE_SENTENCE)


_RETIRE_SENTENCE, _REINSTATE_SENTENCE = "{} is retired".format, "{} is reinstated".format


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
