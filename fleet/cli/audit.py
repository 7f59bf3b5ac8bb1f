"""`refloat audit`: the audit log of a cluster."""

from __future__ import annotations

import json
from typing import Any

import click

from fleet.cli import api
from fleet.cli.console import console_options
from fleet.cli.default_command_group import DefaultCommandGroup
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
            str(entry["id"]),
            _format_moment(entry["at"]),
            entry["actor_name"],
            entry["action"],
            entry["subject"],
            entry["outcome"],
            entry["reason"] or entry["detail"],
        )
        for entry in response["entries"]
    ]
    return format_table(("id", "time (UTC)", "actor", "action", "object", "outcome", "reason"), rows)


def _format_moment(text: str) -> str:
    return text[:19].replace("T", " ")


def _format_entry(entry: dict[str, Any]) -> str:
    rows = [
        ("time (UTC)", _format_moment(entry["at"])),
        ("actor", f"{entry['actor_name']} ({entry['actor_kind']})"),
        ("action", entry["action"]),
        ("object", entry["subject"]),
        ("outcome", entry["outcome"]),
        ("detail", entry["detail"]),
        ("reason", entry["reason"]),
        ("change", "" if entry["change_id"] is None else str(entry["change_id"])),
        ("request id", entry["request_id"]),
    ]
    lines = [f"{label:<10}  {text}" for label, text in rows if text]
    for label in ("before", "after"):
        if entry[label] is not None:
            lines += ["", f"{label}:", json.dumps(entry[label], indent=2, ensure_ascii=False)]
    return "\n".join(lines)


@click.group(cls=DefaultCommandGroup, default_command="list", runs_without_arguments=True)
def audit() -> None:
    """Read the audit log: who did what, refused attempts included.

    \b
    refloat audit --object proxy-1      What was done to proxy-1.
    refloat audit --actor demo --group agents
    refloat audit show 1207             Everything about one entry.

    `list` is the default command; `refloat audit list --help` lists the filters.
    """


@audit.command("list")
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
def list_command(
    console: api.ConsoleClient, cluster: str, search: str, object_name: str, limit: int, **filters: Any
) -> Any:
    """List entries, newest first. `list` may be omitted."""
    params = {"q": search, "object": object_name, "limit": limit, **filters}
    return console.get(
        "/audit", {name: text for name, text in params.items() if text not in (None, "")}, cluster=cluster
    )


@audit.command("show")
@click.argument("entry_id", metavar="ID", type=click.IntRange(min=1))
@console_options
@prints_response(_format_entry)
def show_command(console: api.ConsoleClient, cluster: str, entry_id: int) -> Any:
    """Show one entry, with all values before and after the action."""
    return console.get(f"/audit/{entry_id}", cluster=cluster)
