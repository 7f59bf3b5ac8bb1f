"""`refloat incidents` and `refloat silence`: what hurts, and keeping it quiet for a while, in the terminal."""

from __future__ import annotations

from typing import Any

import click

from fleet.cli import api
from fleet.cli.answers import json_option, prints, show_json, table
from fleet.cli.console import asks_console


@click.command()
@asks_console
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
        said = console.post(f"/incidents/{ack}/acknowledge", {}, cluster=cluster)
        click.echo(f"{said['acknowledged_by']} looks after {ack}: {said['summary']}")
        return
    found = console.get("/incidents", {"state": state, "limit": limit}, cluster=cluster)["incidents"]
    if as_json:
        show_json(found)
        return
    rows = [
        (
            *(str(one["number"]), one["severity"], one["state"]),
            *(str(one["affected"]), str(one["peak"]), one["summary"], _note(one), _next(one["next_message"])),
        )
        for one in found
    ]
    heads = ("number", "severity", "state", "agents", "most", "what", "note", "next message")
    click.echo(table(heads, rows) if rows else "no incident")


@click.group()
def silence() -> None:
    """Keep something quiet for a while."""


def _silences(silences: list[dict[str, Any]]) -> str:
    rows = [
        (
            *(str(one["number"]), one["matchers"] or "everything", one["cluster"] or "all"),
            *(one["starts_at"], one["ends_at"], one["creator"], one["reason"]),
        )
        for one in silences
    ]
    heads = ("number", "what", "cluster", "begins", "ends", "who", "why")
    return table(heads, rows) if rows else "nothing is silenced"


@silence.command("list")
@asks_console
@prints(_silences)
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
@asks_console
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
        "matchers": " ".join(_quoted(one) for one in matchers),
        "reason": reason,
        "hours": hours,
    }
    if starts is not None:
        body["starts_at"] = starts
    if everything:
        body["typed"] = "everything"
    said = console.post("/silences", body, cluster=cluster)
    click.echo(f"silence {said['number']} until {said['ends_at']}: {said['matchers'] or 'everything'}")


@silence.command()
@click.argument("number", type=int)
@click.option(
    "--hours", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True, help="By so much."
)
@asks_console
def extend(console: api.Console, cluster: str, number: int, hours: float) -> None:
    """Let a silence last longer, from its end on."""
    said = console.post(f"/silences/{number}/extend", {"hours": hours}, cluster=cluster)
    click.echo(f"silence {said['number']} until {said['ends_at']}: {said['matchers'] or 'everything'}")


@silence.command()
@click.argument("number", type=int)
@asks_console
def end(console: api.Console, cluster: str, number: int) -> None:
    """End a silence now."""
    said = console.post(f"/silences/{number}/end", {}, cluster=cluster)
    click.echo(f"silence {said['number']} has ended")


def _quoted(word: str) -> str:
    return f"'{word}'" if " " in word else word


def _next(coming: dict[str, Any]) -> str:
    """When, why and to whom; or why none."""
    if coming["at"] is None:
        return f"none: {coming['because']}"
    return f"{coming['at']} to {', '.join(coming['to']) or 'nobody'}: {coming['because']}"


def _note(one: dict[str, Any]) -> str:
    if one["acknowledged_by"]:
        return f"{one['acknowledged_by']} looks after it"
    # Who explains it, why the next message says.
    return f"silenced: {one['silenced_by']}" if one["silenced_by"] else ""
