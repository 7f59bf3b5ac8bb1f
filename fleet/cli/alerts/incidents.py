"""`refloat incidents` and `refloat silence`: list and acknowledge incidents, manage silences."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from fleet.cli import api
from fleet.cli.console import console_options
from fleet.cli.output import format_table, format_time, json_option, print_json, prints_response
from fleet.nodes.shared.options import combine
from fleet.protocol import durations
from fleet.protocol.durations import DurationError

#: Maximum hours of a silence.
_MAX_HOURS = 720
_NEEDS_QUOTES = re.compile(r"[\s'\"\\]")

everything_option = click.option(
    "--everything",
    "is_everything",
    is_flag=True,
    help="Confirm that this matches all or nearly all incidents or agents.",
)
#: Two ways to give a duration.
_duration_options = combine(
    click.option(
        "--hours",
        type=click.FloatRange(min=0, min_open=True, max=_MAX_HOURS),
        help="Duration in hours. [default: 1]",
    ),
    click.option(
        "--for", "duration", metavar="DURATION", help="Duration, such as 2h, 90min or '1 h 30 min'."
    ),
)


@click.command()
@console_options
@click.option(
    "--state",
    type=click.Choice(["open", "pending", "resolved", "all"]),
    default="open",
    show_default=True,
    help="State of the incidents to list.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=100,
    show_default=True,
    help="Maximum number of incidents.",
)
@click.option(
    "--acknowledge",
    "acknowledged_number",
    type=int,
    metavar="NUMBER",
    help="Acknowledge the incident with this number instead of listing incidents.",
)
@json_option
def incidents(
    console: api.ConsoleClient,
    cluster: str,
    state: str,
    limit: int,
    acknowledged_number: int | None,
    as_json: bool,
) -> None:
    """List incidents, or acknowledge one.

    An acknowledged incident sends no repeat notifications and is not escalated.
    """
    if acknowledged_number is not None:
        response = console.post(f"/incidents/{acknowledged_number}/acknowledge", {}, cluster=cluster)
        click.echo(
            f"incident {acknowledged_number} acknowledged by {response['acknowledged_by']}: {response['summary']}"
        )
        return
    listed_incidents = console.get("/incidents", {"state": state, "limit": limit}, cluster=cluster)[
        "incidents"
    ]
    if as_json:
        print_json(listed_incidents)
        return
    rows = [
        (
            *(str(incident["number"]), incident["severity"], incident["state"]),
            *(
                str(incident["affected_count"]),
                str(incident["peak_count"]),
                incident["summary"],
                _format_note(incident),
                _format_next_notification(incident["next_notification"]),
            ),
        )
        for incident in listed_incidents
    ]
    headings = ("number", "severity", "state", "agents", "peak", "summary", "note", "next notification")
    click.echo(
        format_table(headings, rows) if rows else f"no {'' if state == 'all' else f'{state} '}incidents"
    )
    if state == "open" and (pending_text := _describe_pending(console, cluster)):
        click.echo(pending_text)


def _describe_pending(console: api.ConsoleClient, cluster: str) -> str:
    """Return how many incidents have not fired yet, which the page lists with the open ones; empty without any."""
    count = len(console.get("/incidents", {"state": "pending"}, cluster=cluster)["incidents"])
    if not count:
        return ""
    return (
        f"{count} pending incident{'' if count == 1 else 's'} not listed: refloat incidents --state pending"
    )


@click.group()
def silence() -> None:
    """Silence incidents for a period of time; list and end silences."""


def _format_silences(silences: list[dict[str, Any]]) -> str:
    rows = [
        (
            *(str(silence["number"]), silence["matchers"] or "everything", silence["cluster"] or "all"),
            *(
                format_time(silence["starts_at"]),
                format_time(silence["ends_at"]),
                silence["creator"],
                silence["reason"],
            ),
        )
        for silence in silences
    ]
    headings = ("number", "matchers", "cluster", "starts at", "ends at", "author", "reason")
    return format_table(headings, rows) if rows else "no silences"


@silence.command("list")
@console_options
@prints_response(_format_silences)
def list_silences(console: api.ConsoleClient, cluster: str) -> Any:
    """List active and scheduled silences."""
    return console.get("/silences", cluster=cluster)["silences"]


@silence.command()
@click.argument("matchers", nargs=-1)
@click.option("--reason", required=True, help="Reason for the silence, at least 3 characters.")
@_duration_options
@click.option("--starts-at", metavar="TIME", help="Start time, such as 2026-11-22T02:00:00Z. Default: now.")
@everything_option
@console_options
def add(
    console: api.ConsoleClient,
    cluster: str,
    matchers: tuple[str, ...],
    reason: str,
    hours: float | None,
    duration: str | None,
    starts_at: str | None,
    is_everything: bool,
) -> None:
    """Silence incidents, or agents: those that match all MATCHERS.

    Matchers of incidents: cause=proxy-1, kind=proxy, rule='Agents at risk', severity=warning. Matchers of agents:
    agent=web-*, agent_set=lab; alerts do not count these agents. One silence cannot have both.
    """
    body: dict[str, Any] = {
        "matchers": join_matchers(matchers),
        "reason": reason,
        "hours": _hours_of(hours, duration),
    }
    if starts_at is not None:
        try:
            datetime.fromisoformat(starts_at)
        except ValueError:
            raise click.BadParameter(
                f"{starts_at!r} is not a time. Use a form like 2026-11-22T02:00:00Z", param_hint="--starts-at"
            ) from None
        body["starts_at"] = starts_at
    if is_everything:
        body["confirmation"] = "everything"
    response = console.post("/silences", body, cluster=cluster)
    click.echo(_describe_end(response))
    click.echo(_describe_matches(response))


@silence.command()
@click.argument("number", type=int)
@_duration_options
@console_options
def extend(
    console: api.ConsoleClient, cluster: str, number: int, hours: float | None, duration: str | None
) -> None:
    """Extend a silence: move its end time."""
    body = {"hours": _hours_of(hours, duration)}
    response = console.post(f"/silences/{number}/extend", body, cluster=cluster)
    click.echo(_describe_end(response))


@silence.command()
@click.argument("number", type=int)
@console_options
def end(console: api.ConsoleClient, cluster: str, number: int) -> None:
    """End a silence now."""
    response = console.post(f"/silences/{number}/end", {}, cluster=cluster)
    click.echo(f"silence {response['number']} ended")


def _describe_end(silence: dict[str, Any]) -> str:
    matchers = silence["matchers"] or "everything"
    return f"silence {silence['number']} ends at {format_time(silence['ends_at'])}: {matchers}"


def _describe_matches(silence: dict[str, Any]) -> str:
    """Return what a new silence matches now: a typing error in a matcher looks like success otherwise."""
    incident_count, agent_count = silence["matching_incident_count"], silence["matching_agent_count"]
    if incident_count is None:
        return "the matches of this silence are not known: the fleet state cannot be read"
    if not incident_count and not agent_count:
        return "this silence matches no agents and no incidents now, only later ones"
    incidents = f"{incident_count} incident{'' if incident_count == 1 else 's'}"
    return f"this silence matches {agent_count} agent{'' if agent_count == 1 else 's'} and {incidents} now"


def join_matchers(matchers: Sequence[str]) -> str:
    """Return the arguments of a command as matchers of the API."""
    # The shell has removed the quotes around a matcher with blanks.
    return " ".join(
        shlex.quote(matcher) if _NEEDS_QUOTES.search(matcher) else matcher for matcher in matchers
    )


def parse_duration(text: str, flag: str) -> float:
    """Return the seconds of a duration such as `2h`. Raises BadParameter."""
    try:
        return durations.parse_readable(text)
    except DurationError as error:
        raise click.BadParameter(str(error), param_hint=flag) from error


def _hours_of(hours: float | None, duration: str | None) -> float:
    if hours is not None and duration is not None:
        raise click.UsageError("give --hours or --for, not both")
    if duration is None:
        return 1.0 if hours is None else hours
    duration_hours = parse_duration(duration, "--for") / 3600
    if not 0 < duration_hours <= _MAX_HOURS:
        raise click.BadParameter(f"must be between 1 min and {_MAX_HOURS} h", param_hint="--for")
    return duration_hours


def _format_next_notification(notification: dict[str, Any]) -> str:
    """Return time, channels and reason of the next notification, or the reason why there is none."""
    if notification["resolved_channels"]:
        return f"only when resolved, to {notification['recipients']}: {notification['reason']}"
    if notification["at"] is None:
        return f"none: {notification['reason']}"
    recipients = notification["recipients"] or "no channel"
    return f"{format_time(notification['at'])} to {recipients}: {notification['reason']}"


def _format_note(incident: dict[str, Any]) -> str:
    if incident["acknowledged_by"]:
        return f"acknowledged by {incident['acknowledged_by']}"
    # The next notification names the incident that inhibits it.
    return f"silenced: {incident['silenced_by']}" if incident["silenced_by"] else ""
