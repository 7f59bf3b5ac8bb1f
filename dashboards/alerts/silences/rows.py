"""Silences and maintenance windows as the pages list them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dashboards.alerts.silences.conditions import describe_matchers
from dashboards.alerts.silences.matches import FleetScope, SilenceMatches, find_matches
from dashboards.shared.owners import format_owner
from dashboards.shared.presenters import age_ms_of, to_moment_or_none
from dashboards.shared.time_zones import format_day_and_time, format_moment
from fleet.alerts import store
from fleet.alerts.cause_labels import read_cause_names
from fleet.alerts.matchers import Matcher, are_agent_matchers, matches_incident, parse_matchers
from fleet.alerts.recurrence.schedules import describe_schedule
from fleet.alerts.silences import WARN_BEFORE_SECONDS, Window, zone_of
from fleet.alerts.silences import Silence as SilenceValue
from fleet.alerts.wording.words import format_remaining
from fleet.models.alerting import MaintenanceWindow, Silence, filter_applicable_to
from fleet.protocol.durations import format_readable
from fleet.vocabulary import incidents as incident_values
from fleet.vocabulary.incidents import IncidentState

#: Occurrences that a row lists, and those in which a change of the clocks is looked for.
_LISTED_OCCURRENCES, _EXAMINED_OCCURRENCES = 3, 400


@dataclass(frozen=True, slots=True)
class SilenceRow:
    """One silence."""

    number: int
    conditions: list[str]
    owner: str
    can_act: bool
    reason: str
    creator: str
    starts_at: datetime | None
    starts_age_ms: int | None
    ends_at: datetime | None
    ends_age_ms: int | None
    #: `Silenced until 14:30 UTC`.
    until_text: str
    remaining: str
    ends_soon: bool
    #: What it matches now; None unless it is active.
    matches: SilenceMatches | None


@dataclass(frozen=True, slots=True)
class WindowRow:
    """One maintenance window."""

    number: int
    name: str
    conditions: list[str]
    owner: str
    can_act: bool
    reason: str
    creator: str
    is_enabled: bool
    is_active: bool
    #: Why the window cannot be used; empty if it can.
    problem: str
    sentence: str
    next_periods: list[str]
    clock_change: str


@dataclass(frozen=True, slots=True)
class ActiveSilence:
    """A silence or maintenance window that keeps an incident quiet now."""

    #: Number of the silence; 0 for an occurrence of a maintenance window.
    number: int
    ends_at: float
    text: str
    remaining: str
    can_act: bool


def present_silences(
    rows: Iterable[Silence], now: float, scope: FleetScope, writable_owners: Collection[str]
) -> list[SilenceRow]:
    """Present silences of a cluster and of the installation."""
    silence_rows = list(rows)
    matchers_by_number = {row.pk: parse_matchers(row.matchers) for row in silence_rows}
    cause_names = read_cause_names(matchers_by_number.values(), scope.cluster)
    return [
        _present_silence(row, matchers_by_number[row.pk], now, scope, writable_owners, cause_names)
        for row in silence_rows
    ]


def _present_silence(
    row: Silence,
    matchers: Sequence[Matcher],
    now: float,
    scope: FleetScope,
    writable_owners: Collection[str],
    cause_names: Mapping[str, str],
) -> SilenceRow:
    is_active = row.starts_at <= now < row.ends_at
    return SilenceRow(
        number=row.pk,
        conditions=describe_matchers(matchers, cause_names) or ["everything"],
        owner=format_owner(row.cluster),
        can_act=row.cluster in writable_owners,
        reason=row.reason,
        creator=row.creator,
        starts_at=to_moment_or_none(row.starts_at),
        starts_age_ms=age_ms_of(row.starts_at, now),
        ends_at=to_moment_or_none(row.ends_at),
        ends_age_ms=age_ms_of(row.ends_at, now),
        until_text=format_moment(row.ends_at, now),
        remaining=format_remaining(row.ends_at - now),
        ends_soon=is_active and row.ends_at - now <= WARN_BEFORE_SECONDS,
        matches=find_matches(matchers, scope) if is_active else None,
    )


def present_windows(
    rows: Iterable[MaintenanceWindow], now: float, cluster: str, writable_owners: Collection[str]
) -> list[WindowRow]:
    """Present maintenance windows of a cluster and of the installation."""
    window_rows = list(rows)
    cause_names = read_cause_names([parse_matchers(row.matchers) for row in window_rows], cluster)
    return [_present_window(row, now, writable_owners, cause_names) for row in window_rows]


def _present_window(
    row: MaintenanceWindow, now: float, writable_owners: Collection[str], cause_names: Mapping[str, str]
) -> WindowRow:
    window = store.window_of(row)
    next_silences = window.upcoming_silences(now, _LISTED_OCCURRENCES)
    return WindowRow(
        number=row.pk,
        name=row.name,
        conditions=describe_matchers(window.matchers, cause_names) or ["everything"],
        owner=format_owner(row.cluster),
        can_act=row.cluster in writable_owners,
        reason=row.reason,
        creator=row.creator,
        is_enabled=row.enabled,
        is_active=row.enabled and window.current_silence(now) is not None,
        problem=window.problem,
        sentence=describe_window(window, now),
        next_periods=[format_occurrence(silence, now) for silence in next_silences],
        clock_change=describe_clock_change(window, now),
    )


def describe_window(window: Window, now: float) -> str:
    """Return when a window recurs and begins next: `Every Sunday from 02:00 to 04:00 UTC; next: Sun 29 Nov 02:00`."""
    start_time = window.first_start.time()
    text = describe_schedule(window.recurrence_rule, start_time, window.length, window.zone_name)
    text = f"{text[:1].upper()}{text[1:]}"
    if window.problem:
        return f"{text}."
    next_silences = window.upcoming_silences(now)
    if not next_silences:
        return f"{text}; no further occurrence within 5 years."
    zone = zone_of(window.zone_name)
    today, local = (datetime.fromtimestamp(at, zone) for at in (now, next_silences[0].starts_at))
    day = "today " if local.date() == today.date() else ""
    return f"{text}; next: {day}{format_day_and_time(local, today)}."


def describe_clock_change(window: Window, now: float) -> str:
    """Return the next occurrence that is shorter or longer because the clocks change; empty if there is none soon."""
    for silence in window.upcoming_silences(now, _EXAMINED_OCCURRENCES):
        seconds = silence.ends_at - silence.starts_at
        if round(seconds) != round(window.length.total_seconds()):
            local = datetime.fromtimestamp(silence.starts_at, zone_of(window.zone_name))
            return (
                f"On {local:%a} {local.day} {local:%b %Y} the clocks change: the window lasts "
                f"{format_readable(seconds)} instead of {format_readable(window.length.total_seconds())}."
            )
    return ""


def format_occurrence(silence: SilenceValue, now: float) -> str:
    """Return the period of an occurrence in UTC."""
    utc = zone_of("UTC")
    today, start, end = (datetime.fromtimestamp(at, utc) for at in (now, silence.starts_at, silence.ends_at))
    start_text = format_day_and_time(start, today)
    end_text = f"{end:%H:%M}" if end.date() == start.date() else format_day_and_time(end, today)
    return f"{start_text} to {end_text} UTC"


def find_active_silences_of(
    incident: incident_values.Incident, cluster: str, now: float, writable_owners: Collection[str]
) -> list[ActiveSilence]:
    """Return the silences and maintenance windows that match an incident now, the one that ends last first."""
    if incident.state is IncidentState.RESOLVED:
        return []
    active_silences: list[ActiveSilence] = []
    rows = filter_applicable_to(Silence.objects.filter(starts_at__lte=now, ends_at__gt=now), cluster)
    for row in rows:
        if _silences_incident(parse_matchers(row.matchers), incident):
            text = f"until {format_moment(row.ends_at, now)} by {row.creator}: {row.reason}"
            remaining, can_act = format_remaining(row.ends_at - now), row.cluster in writable_owners
            active_silences.append(ActiveSilence(row.pk, row.ends_at, text, remaining, can_act))
    for window_row in filter_applicable_to(MaintenanceWindow.objects.filter(enabled=True), cluster):
        window = store.window_of(window_row)
        silence = window.current_silence(now) if _silences_incident(window.matchers, incident) else None
        if silence is not None:
            until = format_moment(silence.ends_at, now)
            text = f"until {until} by the maintenance window {window_row.name}: {window_row.reason}"
            remaining = format_remaining(silence.ends_at - now)
            active_silences.append(ActiveSilence(0, silence.ends_at, text, remaining, can_act=False))
    return sorted(active_silences, key=lambda active_silence: -active_silence.ends_at)


def _silences_incident(matchers: Sequence[Matcher], incident: incident_values.Incident) -> bool:
    return not are_agent_matchers(matchers) and matches_incident(matchers, incident)
