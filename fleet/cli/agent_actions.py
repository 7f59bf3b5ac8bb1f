"""`refloat retire` and `refloat reinstate`: take agents out of the counts, and count them again."""

from __future__ import annotations

from typing import Any

import click

from fleet.cli import api
from fleet.cli.console import console_options
from fleet.cli.output import Failure
from fleet.vocabulary.counts import format_agent_count

_reason_option = click.option("--reason", required=True, help="Reason, kept in the audit log.")
_agents_argument = click.argument("agent_ids", metavar="ID|NAME...", nargs=-1)
_search_option = click.option(
    "--search",
    default="",
    metavar="QUERY",
    help="All agents that match this search, such as 'state:offline label.site:oslo', in place of names.",
)


@click.command()
@_agents_argument
@_search_option
@_reason_option
@click.option("--confirm-alive", is_flag=True, help="Also retire agents with a heartbeat or a live tunnel.")
@console_options
def retire(
    console: api.ConsoleClient,
    cluster: str,
    agent_ids: tuple[str, ...],
    search: str,
    reason: str,
    confirm_alive: bool,
) -> None:
    """Retire agents that are gone for good.

    Retired agents do not count, and do not raise alerts. All agents are one change: `refloat changes undo`.
    """
    body = {"is_retired": True, "reason": reason, "confirm_alive": confirm_alive}
    _request_all(console, cluster, agent_ids, search, body, "retired")


@click.command()
@_agents_argument
@_search_option
@_reason_option
@console_options
def reinstate(
    console: api.ConsoleClient, cluster: str, agent_ids: tuple[str, ...], search: str, reason: str
) -> None:
    """Reinstate retired agents: totals and alerts include them again."""
    _request_all(console, cluster, agent_ids, search, {"is_retired": False, "reason": reason}, "reinstated")


def _request_all(
    console: api.ConsoleClient,
    cluster: str,
    agent_ids: tuple[str, ...],
    search: str,
    body: dict[str, Any],
    state_text: str,
) -> None:
    if bool(agent_ids) == bool(search):
        raise Failure("give either agents or --search")
    response = console.post("/retirements", {**body, "agents": list(agent_ids), "q": search}, cluster=cluster)
    subject = agent_ids[0] if len(agent_ids) == 1 else format_agent_count(response["agent_count"])
    verb = "is" if response["agent_count"] == 1 else "are"
    note = "" if response["change_id"] is None else f" (change {response['change_id']})"
    click.echo(f"{subject} {verb} {state_text}{note}")
