"""`refloat retire`, `refloat reinstate` and `refloat agent-set`: actions on several agents, by name, id or search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from fleet.cli import api
from fleet.cli.console import console_options
from fleet.cli.output import Failure
from fleet.nodes.shared.options import combine
from fleet.vocabulary.counts import format_agent_count

_reason_option = click.option("--reason", required=True, help="Reason, kept in the audit log.")

#: Add the argument and the flag; the command gets `agent_ids` and `search`.
_select_agents = combine(
    click.argument("agent_ids", metavar="ID|NAME...", nargs=-1),
    click.option(
        "--search",
        default="",
        metavar="QUERY",
        help="All agents that match this search, such as 'state:offline label.site:oslo', in place of names.",
    ),
)


@click.command()
@_select_agents
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
    """Retire agents that no longer exist.

    Retired agents do not count, and do not raise alerts. All agents are one change: `refloat changes undo`.
    """
    body = {"is_retired": True, "reason": reason, "confirm_alive": confirm_alive}
    _request_all(console, cluster, agent_ids, search, body, "retired")


@click.command()
@_select_agents
@_reason_option
@console_options
def reinstate(
    console: api.ConsoleClient, cluster: str, agent_ids: tuple[str, ...], search: str, reason: str
) -> None:
    """Reinstate retired agents: totals and alerts include them again."""
    _request_all(console, cluster, agent_ids, search, {"is_retired": False, "reason": reason}, "reinstated")


@click.command("agent-set")
@click.argument("agent_set", metavar="SET")
@_select_agents
@click.option("--remove", is_flag=True, help="Remove the agents from the set.")
@console_options
def agent_set(
    console: api.ConsoleClient,
    cluster: str,
    agent_set: str,
    agent_ids: tuple[str, ...],
    search: str,
    remove: bool,
) -> None:
    """Add agents to an agent set, which alert rules, silences and routes can name.

    All agents are added, or none if one is unknown. A new name creates the set.
    """
    body = {"agent_set": agent_set, "is_member": not remove}
    response = console.post("/agent-sets", body | _selection_of(agent_ids, search), cluster=cluster)
    outcome = "removed from" if remove else "added to"
    click.echo(f"{format_agent_count(response['changed_count'])} {outcome} the agent set {agent_set}")


def _request_all(
    console: api.ConsoleClient,
    cluster: str,
    agent_ids: tuple[str, ...],
    search: str,
    body: dict[str, Any],
    state_text: str,
) -> None:
    response = console.post("/retirements", body | _selection_of(agent_ids, search), cluster=cluster)
    subject = agent_ids[0] if len(agent_ids) == 1 else format_agent_count(response["agent_count"])
    verb = "is" if response["agent_count"] == 1 else "are"
    note = "" if response["change_id"] is None else f" (change {response['change_id']})"
    click.echo(f"{subject} {verb} {state_text}{note}")


def _selection_of(agent_ids: Sequence[str], search: str) -> dict[str, Any]:
    """Return the fields of a request. Raises Failure unless one of the two is given."""
    if bool(agent_ids) == bool(search):
        raise Failure("give either agents or --search")
    return {"agents": list(agent_ids), "q": search}
