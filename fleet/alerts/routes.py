"""Who hears of what: a tree of routes, with a second level when nobody acknowledges, and quiet hours. Pure.

docs/alerts.md, "Routes".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from fleet.alerts.matchers import Matcher, matches
from fleet.vocabulary.incidents import Incident, IncidentState, NoticeKind, Severity

#: How the reason begins why a message waits for the end of quiet hours.
QUIET = "quiet hours"


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
    least: Severity = Severity.WARNING
    #: Ids of channels; none: those of the parent.
    channels: tuple[int, ...] = ()
    #: Nobody acknowledged a critical incident for so long: these are told too. None: never.
    escalate_after: float | None = None
    escalate_to: tuple[int, ...] = ()
    quiet: QuietHours | None = None
    goes_on: bool = False
    children: tuple[Route, ...] = ()

    def takes(self, incident: Incident) -> bool:
        """Whether it is for this incident."""
        return (
            self.cluster in ("", incident.cluster)
            and incident.severity >= self.least
            and matches(self.matchers, incident)
        )


@dataclass(frozen=True, slots=True)
class Leaf:
    """Where an incident ends up: a route with what it inherited."""

    route: Route
    path: tuple[str, ...]
    channels: tuple[int, ...]


def leaves(roots: Iterable[Route], incident: Incident) -> list[Leaf]:
    """The routes that an incident takes."""
    return list(_walk(roots, incident, (), ()))


def _walk(
    routes: Iterable[Route], incident: Incident, path: tuple[str, ...], channels: tuple[int, ...]
) -> Iterator[Leaf]:
    for route in routes:
        if not route.takes(incident):
            continue
        here = (*path, route.name)
        own = route.channels or channels
        below = list(_walk(route.children, incident, here, own))
        yield from below or [Leaf(route, here, own)]
        if not route.goes_on:
            return


def receivers(
    found: Sequence[Leaf], incident: Incident, kind: NoticeKind, now: float
) -> dict[int, tuple[float, str]]:
    """Channels that get a message: not before when, and why then (empty: at once)."""
    told: dict[int, tuple[float, str]] = {}
    for leaf in found:
        second = kind is NoticeKind.ESCALATED
        channels = leaf.route.escalate_to if second else leaf.channels
        if not second and incident.escalated_at is not None:
            # Who was called in hears how it goes on.
            channels = (*channels, *leaf.route.escalate_to)
        at, why = now, ""
        if leaf.route.quiet is not None and incident.severity < Severity.CRITICAL:
            end = leaf.route.quiet.end_after(now)
            if end is not None:
                at, why = end, f"{QUIET} of the route {leaf.route.name}"
        for channel in channels:
            if channel not in told or at < told[channel][0]:
                told[channel] = (at, why)
    return told


def escalates_at(found: Sequence[Leaf], incident: Incident) -> float | None:
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
    waits = [
        leaf.route.escalate_after
        for leaf in found
        if leaf.route.escalate_after is not None and leaf.route.escalate_to
    ]
    return (incident.fired_at or incident.opened_at) + min(waits) if waits else None
