"""Who hears of what: a tree of routes, with a second level when nobody acknowledges, and quiet hours. Pure.

docs/alerts.md, "Routes".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from fleet.alerts.matchers import Matcher, matches
from fleet.vocabulary.incidents import Incident, IncidentState, NotificationKind, Severity

#: How the reason begins why a message waits for the end of quiet hours.
QUIET_HOURS_REASON = "quiet hours"


@dataclass(frozen=True, slots=True)
class QuietHours:
    """A time of every day, by the clock on the wall, at which only critical messages are sent."""

    start: time
    end: time
    zone: str

    def end_after(self, now: float) -> float | None:
        """When the quiet hours end that it is in now; None when it is in none."""
        zone = ZoneInfo(self.zone)
        local = datetime.fromtimestamp(now, zone)
        for day in (local.date() - timedelta(days=1), local.date()):
            start = datetime.combine(day, self.start, zone)
            last = day if self.end > self.start else day + timedelta(days=1)
            end = datetime.combine(last, self.end, zone)
            if start.timestamp() <= now < end.timestamp():
                return end.timestamp()
        return None


@dataclass(frozen=True, slots=True)
class Route:
    """One node of the tree. The first child that matches takes the incident, and those after it if `goes_on`."""

    name: str
    matchers: tuple[Matcher, ...] = ()
    #: The cluster that owns it; empty: the installation.
    cluster: str = ""
    #: Only incidents that are at least so severe.
    min_severity: Severity = Severity.WARNING
    #: Ids of channels; none: those of the parent.
    channels: tuple[int, ...] = ()
    #: Nobody acknowledged a critical incident for so long: these are told too. None: never.
    escalate_after: float | None = None
    escalate_to: tuple[int, ...] = ()
    quiet_hours: QuietHours | None = None
    should_continue: bool = False
    children: tuple[Route, ...] = ()

    def accepts(self, incident: Incident) -> bool:
        """Whether it is for this incident."""
        return (
            self.cluster in ("", incident.cluster)
            and incident.severity >= self.min_severity
            and matches(self.matchers, incident)
        )


@dataclass(frozen=True, slots=True)
class MatchedRoute:
    """Where an incident ends up: a route with what it inherited."""

    route: Route
    path: tuple[str, ...]
    channels: tuple[int, ...]


def match_routes(roots: Iterable[Route], incident: Incident) -> list[MatchedRoute]:
    """The routes that an incident takes."""
    return list(_match_subtree(roots, incident, (), ()))


def _match_subtree(
    routes: Iterable[Route], incident: Incident, path: tuple[str, ...], channels: tuple[int, ...]
) -> Iterator[MatchedRoute]:
    for route in routes:
        if not route.accepts(incident):
            continue
        route_path = (*path, route.name)
        own_channels = route.channels or channels
        matched_children = list(_match_subtree(route.children, incident, route_path, own_channels))
        yield from matched_children or [MatchedRoute(route, route_path, own_channels)]
        if not route.should_continue:
            return


def plan_receivers(
    matched_routes: Sequence[MatchedRoute], incident: Incident, kind: NotificationKind, now: float
) -> dict[int, tuple[float, str]]:
    """Channels that get a message: not before when, and why then (empty: at once)."""
    schedule_by_channel: dict[int, tuple[float, str]] = {}
    for matched_route in matched_routes:
        is_escalation = kind is NotificationKind.ESCALATED
        channels = matched_route.route.escalate_to if is_escalation else matched_route.channels
        if not is_escalation and incident.escalated_at is not None:
            # Who was called in hears how it goes on.
            channels = (*channels, *matched_route.route.escalate_to)
        send_at, reason = now, ""
        if matched_route.route.quiet_hours is not None and incident.severity < Severity.CRITICAL:
            end = matched_route.route.quiet_hours.end_after(now)
            if end is not None:
                send_at, reason = end, f"{QUIET_HOURS_REASON} of the route {matched_route.route.name}"
        for channel in channels:
            if channel not in schedule_by_channel or send_at < schedule_by_channel[channel][0]:
                schedule_by_channel[channel] = (send_at, reason)
    return schedule_by_channel


def escalates_at(matched_routes: Sequence[MatchedRoute], incident: Incident) -> float | None:
    """When the second level is told of an incident that nobody acknowledges."""
    if (
        incident.state is not IncidentState.FIRING
        or not incident.notices
        or incident.acked_at is not None
        or incident.escalated_at is not None
        or incident.severity < Severity.CRITICAL
        or incident.silenced_by
        or incident.inhibited_by
    ):
        return None
    delays = [
        matched_route.route.escalate_after
        for matched_route in matched_routes
        if matched_route.route.escalate_after is not None and matched_route.route.escalate_to
    ]
    return (incident.fired_at or incident.opened_at) + min(delays) if delays else None
