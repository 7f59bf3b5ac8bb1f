"""`refloat audit`: the audit log of a cluster."""

from __future__ import annotations

from typing import Any

import click

from fleet.cli import api
from fleet.cli.console import console_options
from fleet.cli.output import format_table, prints_response

_GROUPS = (
    "networking",
    "policies",
    "campaigns",
    "instances",
    "agents",
    "alerting",
    "access",
    "requests",
)


def _format_entries(response: dict[str, Any]) -> str:
    rows = [
        (
            str(entry["at"])[:19].replace("T", " "),
            entry["actor_name"],
            entry["action"],
            entry["subject"],
            entry["outcome"],
            entry["reason"] or entry["detail"],
        )
        for entry in response["entries"]
    ]
    return format_table(("time (UTC)", "actor", "action", "object", "outcome", "reason"), rows)


@click.command()
@console_options
@click.option("--search", metavar="WORDS", default="", help="Only entries that contain these words.")
@click.option(
    "--actor", metavar="NAME", default="", help="Only entries of actors whose name contains this text."
)
@click.option(
    "--object",
    "object_name",
    metavar="NAME|ID",
    default="",
    help="Only entries about this agent, instance or change.",
)
@click.option("--change", type=click.IntRange(min=1), metavar="CHANGE", help="Only entries of this change.")
@click.option("--group", type=click.Choice(_GROUPS), help="Only actions of this kind.")
@click.option(
    "--outcome", type=click.Choice(["succeeded", "refused", "failed"]), help="Only actions with this outcome."
)
@click.option(
    "--since", metavar="TIME", help="Only entries from this time on, such as 2026-11-27T03:00 (UTC)."
)
@click.option("--until", metavar="TIME", help="Only entries up to this time (UTC).")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number of entries."
)
@prints_response(_format_entries)
def audit(
    console: api.ConsoleClient, cluster: str, search: str, object_name: str, limit: int, **filters: Any
) -> Any:
    """List who did what, newest first; refused attempts included.

    \b
    refloat audit --object proxy-1      What was done to proxy-1.
    refloat audit --actor demo --group agents
    """
    params = {"q": search, "object": object_name, "limit": limit, **filters}
    return console.get(
        "/audit", {name: text for name, text in params.items() if text not in (None, "")}, cluster=cluster
    )
