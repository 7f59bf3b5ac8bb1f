"""`refloat incidents` and `refloat silence`: what hurts, and keeping it quiet for a while, in the terminal."""

from __future__ import annotations

from typing import Any

import click

from fleet.cli import api
from fleet.cli.answers import json_option, prints, show_json, table
from fleet.cli.console import console_options


@click.command()
@console_options
@click.option(
    "--state",
    type=click.Choice(["open", "pending", "resolved", "all"]),
    default="open",
    show_default=True,
    help="Which ones.",
)
@click.option(
    "--limit", type=click.IntRange(1, 500), default=100, show_default=True, help="This many at most."
)
@click.option("--ack", type=int, metavar="NUMBER", help="Say that you look after this one instead.")
@json_option
def incidents(
    console: api.Console, cluster: str, state: str, limit: int, ack: int | None, as_json: bool
) -> None:
    """List incidents, or acknowledge one: it is repeated no more, and nobody else is called in."""
    if ack is not None:
        response = console.post(f"/incidents/{ack}/acknowledge", {}, cluster=cluster)
        click.echo(f"{response['acknowledged_by']} looks after {ack}: {response['summary']}")
        return
    listed_incidents = console.get("/incidents", {"state": state, "limit": limit}, cluster=cluster)["incidents"]
    if as_json:
        show_json(listed_incidents)
        return
    rows = [
        (
            *(str(incident["number"]), incident["severity"], incident["state"]),
            *(str(incident["affected"]), str(incident["peak"]), incident["summary"], _format_note(incident), _format_next_notification(incident["next_message"])),
        )
        for incident in listed_incidents
    ]
    heads = ("number", "severity", "state", "agents", "most", "what", "note", "next message")
    click.echo(table(heads, rows) if rows else "no incident")


@click.group()
def silence() -> None:
    """Keep something quiet for a while."""


def _format_silences(silences: list[dict[str, Any]]) -> str:
    rows = [
        (
            *(str(silence["number"]), silence["matchers"] or "everything", silence["cluster"] or "all"),
            *(silence["starts_at"], silence["ends_at"], silence["creator"], silence["reason"]),
        )
        for silence in silences
    ]
    heads = ("number", "what", "cluster", "begins", "ends", "who", "why")
    return table(heads, rows) if rows else "nothing is silenced"


@silence.command("list")
@console_options
@prints(_format_silences)
def list_silences(console: api.Console, cluster: str) -> Any:
    """List silences that have not ended."""
    return console.get("/silences", cluster=cluster)["silences"]


@silence.command()
@click.argument("matchers", nargs=-1)
@click.option("--reason", required=True, help="Why.")
@click.option(
    "--hours",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="For so long.",
)
@click.option("--starts", metavar="TIME", help="When it begins: 2026-11-22T02:00:00Z. Now if not given.")
@click.option("--everything", is_flag=True, help="Silence everything: MATCHERS leave nothing out.")
@console_options
def add(
    console: api.Console,
    cluster: str,
    matchers: tuple[str, ...],
    reason: str,
    hours: float,
    starts: str | None,
    everything: bool,
) -> None:
    """Silence what MATCHERS mean: cause=proxy-1, severity=warning, agent=web-*, label=lab."""
    body: dict[str, Any] = {
        "matchers": " ".join(_quote(matcher) for matcher in matchers),
        "reason": reason,
        "hours": hours,
    }
    if starts is not None:
        body["starts_at"] = starts
    if everything:
        body["typed"] = "everything"
    response = console.post("/silences", body, cluster=cluster)
    click.echo(f"silence {response['number']} until {response['ends_at']}: {response['matchers'] or 'everything'}")


@silence.command()
@click.argument("number", type=int)
@click.option(
    "--hours", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True, help="By so much."
)
@console_options
def extend(console: api.Console, cluster: str, number: int, hours: float) -> None:
    """Let a silence last longer, from its end on."""
    response = console.post(f"/silences/{number}/extend", {"hours": hours}, cluster=cluster)
    click.echo(f"silence {response['number']} until {response['ends_at']}: {response['matchers'] or 'everything'}")


@silence.command()
@click.argument("number", type=int)
@console_options
def end(console: api.Console, cluster: str, number: int) -> None:
    """End a silence now."""
    response = console.post(f"/silences/{number}/end", {}, cluster=cluster)
    click.echo(f"silence {response['number']} has ended")


def _quote(matcher: str) -> str:
    return f"'{matcher}'" if " " in matcher else matcher


def _format_next_notification(notification: dict[str, Any]) -> str:
    """When, why and to whom; or why none."""
    if notification["at"] is None:
        return f"none: {notification['because']}"
    return f"{notification['at']} to {', '.join(notification['to']) or 'nobody'}: {notification['because']}"


def _format_note(incident: dict[str, Any]) -> str:
    if incident["acknowledged_by"]:
        return f"{incident['acknowledged_by']} looks after it"
    # Who explains it, why the next message says.
    return f"silenced: {incident['silenced_by']}" if incident["silenced_by"] else ""
