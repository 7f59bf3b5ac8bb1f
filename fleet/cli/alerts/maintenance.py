"""`refloat maintenance`: list, add, edit, enable, disable and remove recurring maintenance windows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from fleet.alerts.recurrence.rule import WEEKDAY_CODES
from fleet.alerts.recurrence.schedules import (
    LAST_MONTH_DAY,
    WEEKDAY_NAMES,
    Repetition,
    Schedule,
    ScheduleError,
)
from fleet.cli import api
from fleet.cli.alerts.incidents import everything_option, join_matchers, parse_duration
from fleet.cli.console import console_options
from fleet.cli.output import Failure, format_table, format_time, prints_response
from fleet.nodes.shared.options import combine

_TIME_PATTERN = re.compile(r"([01]?\d|2[0-3]):[0-5]\d")
_WEEKS_PATTERN = re.compile(r"(\d{1,4}) ?weeks?")


def _parse_time(_context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    if text is not None and not _TIME_PATTERN.fullmatch(text):
        raise click.BadParameter(f"{text!r} is not a time of day such as 02:00", param=parameter)
    return None if text is None else text.rjust(5, "0")


_schedule_options = combine(
    click.option("--every", "period", metavar="PERIOD", help="How often: day, week, '2 weeks' or month."),
    click.option(
        "--on", "days", metavar="DAYS", help="Weekdays such as sat,sun; of a month, the day 1 to 31 or last."
    ),
    click.option(
        "--rule", metavar="RULE", help="RFC 5545 rule instead of --every and --on: FREQ=WEEKLY;BYDAY=SU."
    ),
    click.option(
        "--from", "start_time", metavar="TIME", callback=_parse_time, help="Local start, such as 22:00."
    ),
    click.option("--to", "end_time", metavar="TIME", callback=_parse_time, help="Local end, such as 06:00."),
    click.option(
        "--for", "duration", metavar="DURATION", help="Duration instead of --to, such as 2h. At most 36h."
    ),
    click.option(
        "--first-day", metavar="DATE", help="First possible day, such as 2026-11-22. Default: today."
    ),
    click.option("--time-zone", metavar="ZONE", help="IANA time zone, such as Europe/Berlin. Default: UTC."),
)


def _format_windows(windows: list[dict[str, Any]]) -> str:
    rows = [
        (
            *(str(window["number"]), window["name"], window["schedule"], window["matchers"] or "everything"),
            *(
                window["cluster"] or "all",
                _format_state(window),
                format_time(window["next_at"]) if window["next_at"] else "none",
                window["reason"],
            ),
        )
        for window in windows
    ]
    headings = ("number", "name", "schedule", "matchers", "cluster", "state", "next", "reason")
    return format_table(headings, rows) if rows else "no maintenance windows"


def _format_state(window: dict[str, Any]) -> str:
    if window["problem"]:
        return "invalid"
    if not window["is_enabled"]:
        return "disabled"
    return "active" if window["is_active"] else "enabled"


@click.group()
def maintenance() -> None:
    """Manage recurring maintenance windows, in which incidents or agents are silenced."""


@maintenance.command("list")
@console_options
@prints_response(_format_windows)
def list_windows(console: api.ConsoleClient, cluster: str) -> Any:
    """List maintenance windows."""
    return console.get("/maintenance-windows", cluster=cluster)["maintenance_windows"]


@maintenance.command()
@click.argument("name")
@click.argument("matchers", nargs=-1)
@click.option("--reason", required=True, help="Reason for the window, at least 3 characters.")
@_schedule_options
@everything_option
@console_options
def add(
    console: api.ConsoleClient,
    cluster: str,
    name: str,
    matchers: tuple[str, ...],
    reason: str,
    is_everything: bool,
    **schedule: str | None,
) -> None:
    """Add a maintenance window NAME that silences what matches all MATCHERS.

    The matchers are those of `refloat silence add`. Example: refloat maintenance add backups cause=proxy-1 --every
    week --on sun --from 02:00 --to 04:00 --time-zone Europe/Berlin --reason "weekly backup"
    """
    values = _schedule_values_of(**schedule)
    alternatives = (
        ("--every", {"rule"}),
        ("--from", {"start_time"}),
        ("--to", {"end_time", "duration_seconds"}),
    )
    missing_flags = [flag for flag, names in alternatives if not names & set(values)]
    if missing_flags:
        raise click.UsageError(f"missing {', '.join(missing_flags)}")
    body = {"name": name, "matchers": join_matchers(matchers), "reason": reason, **values}
    if is_everything:
        body["confirmation"] = "everything"
    _print_window(console.post("/maintenance-windows", body, cluster=cluster), "added")


@maintenance.command()
@click.argument("number", type=int)
@click.argument("matchers", nargs=-1)
@click.option("--name", help="New name.")
@click.option("--reason", help="New reason, at least 3 characters.")
@_schedule_options
@everything_option
@console_options
def edit(
    console: api.ConsoleClient,
    cluster: str,
    number: int,
    matchers: tuple[str, ...],
    name: str | None,
    reason: str | None,
    is_everything: bool,
    **schedule: str | None,
) -> None:
    """Change a maintenance window. Values that are left out stay, and so do the matchers without MATCHERS."""
    window = _find_window(console, cluster, number)
    body: dict[str, Any] = {"version": window["version"], **_schedule_values_of(**schedule)}
    body |= {key: value for key, value in (("name", name), ("reason", reason)) if value is not None}
    if matchers:
        body["matchers"] = join_matchers(matchers)
    if len(body) == 1:
        raise click.UsageError("nothing to change: give MATCHERS or an option")
    if is_everything:
        body["confirmation"] = "everything"
    _print_window(console.post(f"/maintenance-windows/{number}", body, cluster=cluster), "changed")


def _make_action(name: str, action: str, outcome: str, help_text: str) -> None:
    """Add a command that performs an action of the API on a window."""

    @maintenance.command(name, help=help_text)
    @click.argument("number", type=int)
    @console_options
    def run(console: api.ConsoleClient, cluster: str, number: int) -> None:
        _print_window(console.post(f"/maintenance-windows/{number}/{action}", {}, cluster=cluster), outcome)


_make_action("enable", "enable", "enabled", "Enable a maintenance window.")
_make_action("disable", "disable", "disabled", "Disable a maintenance window; it keeps its values.")
_make_action("remove", "delete", "removed", "Remove a maintenance window permanently.")


def _print_window(window: dict[str, Any], outcome: str) -> None:
    click.echo(f"maintenance window {window['number']} {outcome}: {window['name']}, {window['schedule']}")


def _find_window(console: api.ConsoleClient, cluster: str, number: int) -> dict[str, Any]:
    windows: list[dict[str, Any]] = console.get("/maintenance-windows", cluster=cluster)[
        "maintenance_windows"
    ]
    for window in windows:
        if window["number"] == number:
            return window
    raise Failure(
        f"Maintenance window {number} was not found in cluster {cluster}. `refloat maintenance list` lists all."
    )


def _schedule_values_of(
    *,
    period: str | None,
    days: str | None,
    rule: str | None,
    start_time: str | None,
    end_time: str | None,
    duration: str | None,
    first_day: str | None,
    time_zone: str | None,
) -> dict[str, Any]:
    """Return the fields of the API for the flags of a schedule. Raises UsageError."""
    if rule is not None and (period or days):
        raise click.UsageError("give --rule, or --every and --on, not both")
    if end_time is not None and duration is not None:
        raise click.UsageError("give --to or --for, not both")
    values: dict[str, Any] = {
        "rule": _rule_of(period, days) if period or days else rule,
        "start_time": start_time,
        "end_time": end_time,
        "duration_seconds": None if duration is None else parse_duration(duration, "--for"),
        "first_day": first_day,
        "time_zone": time_zone,
    }
    return {key: value for key, value in values.items() if value is not None}


def _rule_of(period: str | None, days: str | None) -> str:
    if period is None:
        raise click.UsageError("--on requires --every")
    unit = period.strip().lower()
    try:
        if unit == "day":
            schedule = Schedule(Repetition.DAILY)
        elif unit == "month":
            schedule = Schedule(Repetition.MONTHLY, month_day=_parse_month_day(days))
        elif unit == "week":
            schedule = Schedule(Repetition.WEEKLY, weekdays=_parse_weekdays(days))
        elif match := _WEEKS_PATTERN.fullmatch(unit):
            schedule = Schedule(Repetition.EVERY_N_WEEKS, int(match[1]), _parse_weekdays(days))
        else:
            raise click.BadParameter(f"{period!r} is not day, week, '2 weeks' or month", param_hint="--every")
        return schedule.rule
    except ScheduleError as error:
        raise click.BadParameter(str(error), param_hint="--every") from error


def _parse_month_day(days: str | None) -> int:
    text = (days or "1").strip().lower()
    if text == "last":
        return LAST_MONTH_DAY
    if not (text.isascii() and text.isdigit()):
        raise click.BadParameter(f"{text!r} is not a day of the month, 1 to 31 or last", param_hint="--on")
    return int(text)


def _parse_weekdays(days: str | None) -> tuple[int, ...]:
    if days is None:
        raise click.UsageError("--every week requires --on, such as --on sat,sun")
    return tuple(_parse_weekday(day.strip()) for day in days.split(","))


def _parse_weekday(text: str) -> int:
    """Return the number of a weekday: `su`, `sun` or `sunday`."""
    names: Sequence[str] = [name.lower() for name in WEEKDAY_NAMES]
    for number, name in enumerate(names):
        if text.lower() in (WEEKDAY_CODES[number].lower(), name[:3], name):
            return number
    raise click.BadParameter(f"{text!r} is not a weekday such as sun", param_hint="--on")
