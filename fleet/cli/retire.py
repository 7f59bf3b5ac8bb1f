"""`refloat retire` and `refloat reinstate`: take agents out of the counts, and count them again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from fleet.cli import api
from fleet.cli.console import console_options

_reason_option = click.option("--reason", required=True, help="Reason, kept in the audit log.")
_agents_argument = click.argument("agent_ids", metavar="ID|NAME...", nargs=-1, required=True)


@click.command()
@_agents_argument
@_reason_option
@click.option("--confirm-alive", is_flag=True, help="Also retire agents with a heartbeat or a live tunnel.")
@console_options
def retire(
    console: api.ConsoleClient, cluster: str, agent_ids: tuple[str, ...], reason: str, confirm_alive: bool
) -> None:
    """Retire agents that are gone for good.

    Retired agents do not count, and do not raise alerts.
    """
    _request_each(
        console,
        cluster,
        agent_ids,
        {"is_retired": True, "reason": reason, "confirm_alive": confirm_alive},
        _format_retired,
    )


@click.command()
@_agents_argument
@_reason_option
@console_options
def reinstate(console: api.ConsoleClient, cluster: str, agent_ids: tuple[str, ...], reason: str) -> None:
    """Reinstate retired agents: totals and alerts include them again."""
    _request_each(console, cluster, agent_ids, {"is_retired": False, "reason": reason}, _format_reinstated)


_format_retired, _format_reinstated = "{} is retired".format, "{} is reinstated".format


def _request_each(
    console: api.ConsoleClient,
    cluster: str,
    agent_ids: tuple[str, ...],
    body: dict[str, Any],
    format_sentence: Callable[[str], str],
) -> None:
    for agent_id in agent_ids:
        response = console.send_for_agent(
            agent_id,
            lambda quoted_id: console.post(f"/agents/{quoted_id}/retire", body, cluster=cluster),
            cluster=cluster,
        )
        click.echo(format_sentence(response["name"]))
