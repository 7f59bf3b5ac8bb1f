"""`refloat instance`: one auth or proxy, with what its page shows."""

from __future__ import annotations

import urllib.parse
from typing import Any

import click

from fleet.cli import api
from fleet.cli.console import console_options, format_agent_state
from fleet.cli.output import format_time, prints_response


def format_instance(response: dict[str, Any]) -> str:
    """Return an instance as text: facts, the forecast of its failure, problems, incidents and changes."""
    instance = response["instance"]
    facts = {
        "instance": f"{instance['name']} ({instance['id']})",
        "kind": instance["kind"],
        "state": instance["label"],
        "since": format_time(response["since"]) if response["since"] else "",
        "reason": instance["explanation"],
        "health": instance["health"],
        "draining": instance["drain"]["reason"] or "yes" if instance["drain"] else "",
        "version": instance["version"],
        "address": instance["address"],
        "agents": ", ".join(
            f"{count} {format_agent_state(slug)}" for slug, count in response["agent_counts"].items()
        ),
        "heartbeat expires": format_time(instance["expires_at"]) if instance["expires_at"] else "",
    }
    width = max(map(len, facts))
    lines = [f"{name.ljust(width)}  {text}" for name, text in facts.items() if text]
    forecast = response["failure_forecast"]
    if forecast is not None:
        lines += ["", forecast["text"], *forecast["details"]]
        if forecast["agent_query"]:
            lines.append(f"List them: refloat agents --search {_quote(forecast['agent_query'])}")
    elif response["forecast_reason"]:
        lines += ["", response["forecast_reason"]]
    lines += _format_section("Last 24 h", [_format_period(period) for period in response["history"]])
    lines += _format_section("Incidents", [_format_incident(row) for row in response["incidents"]])
    lines += _format_section(
        "Changes",
        [
            f"{change['number']}: {change['title']} ({change['state']}), {format_time(change['at'])}"
            for change in response["changes"]
        ],
    )
    return "\n".join(lines)


def _format_section(title: str, rows: list[str]) -> list[str]:
    return ["", f"{title}:", *(f"  {row}" for row in rows)] if rows else []


def _format_period(period: dict[str, Any]) -> str:
    return f"{period['lane']}: {period['label']}, {format_time(period['since'])} to {format_time(period['until'])}"


def _format_incident(incident: dict[str, Any]) -> str:
    state = "resolved" if incident["is_resolved"] else incident["severity"]
    return f"{incident['number']}: {incident['summary']} ({state})"


def _quote(query: str) -> str:
    return "'{}'".format(query.replace("'", "'\\''"))


@click.command()
@click.argument("instance_id", metavar="ID|NAME")
@console_options
@prints_response(format_instance)
def instance(console: api.ConsoleClient, cluster: str, instance_id: str) -> Any:
    """Show one auth or proxy: state, agents, forecast of a failure, history, incidents."""
    return console.get(f"/instances/{urllib.parse.quote(instance_id, safe='')}", cluster=cluster)
