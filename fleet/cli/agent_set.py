"""`refloat agent-set`: adds agents to an agent set, and removes them."""

from __future__ import annotations

import click

from fleet.cli import api
from fleet.cli.console import console_options
from fleet.cli.output import Failure
from fleet.vocabulary.counts import format_agent_count


@click.command("agent-set")
@click.argument("agent_set", metavar="SET")
@click.argument("agent_ids", metavar="ID|NAME...", nargs=-1)
@click.option(
    "--search",
    default="",
    metavar="QUERY",
    help="All agents that match this search, such as 'label.site:oslo', in place of names.",
)
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
    if bool(agent_ids) == bool(search):
        raise Failure("give either agents or --search")
    body = {"agent_set": agent_set, "is_member": not remove, "agents": list(agent_ids), "q": search}
    response = console.post("/agent-sets", body, cluster=cluster)
    outcome = "removed from" if remove else "added to"
    click.echo(f"{format_agent_count(response['changed_count'])} {outcome} the agent set {agent_set}")
