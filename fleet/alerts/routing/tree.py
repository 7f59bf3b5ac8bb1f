"""Notification routes: a tree that selects the channels of an incident, with escalation and quiet hours. Pure.

docs/reference/alerts.md, "Notification routes".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from fleet.alerts.matchers import Matcher, matches_incident
from fleet.vocabulary.incidents import Cause, Incident, IncidentState, NotificationKind, RuleMark, Severity

#: Start of the waiting reason of a delivery that quiet hours delay.
QUIET_HOURS_REASON_PREFIX = "quiet hours"


@dataclass(frozen=True, slots=True)
class QuietHours:
    """A daily time range in local time in which only critical notifications are sent."""

    start: time
    end: time
    zone: str

    def end_after(self, now: float) -> float | None:
        """Return the end of the current quiet hours; None outside quiet hours."""
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
    """One route.

    The first child that matches takes the incident; `should_continue`: later children are tried, too.
    """

    name: str
    matchers: tuple[Matcher, ...] = ()
    #: Cluster that owns the route; empty: the whole installation.
    cluster: str = ""
    #: Minimum severity.
    min_severity: Severity = Severity.WARNING
    #: Ids of channels; empty: those of the parent.
    channel_ids: tuple[int, ...] = ()
    #: The channels of the parent are notified, too.
    includes_parent_channels: bool = False
    #: Seconds without acknowledgement after which a critical incident escalates; None: never. And the channels then.
    #: A stored route without an escalation has that of its parent.
    escalate_after: float | None = None
    escalate_to: tuple[int, ...] = ()
    quiet_hours: QuietHours | None = None
    should_continue: bool = False
    children: tuple[Route, ...] = ()
    #: Key of the stored route; 0 for none.
    number: int = 0

    def accepts(self, incident: Incident) -> bool:
        """Return whether the route matches an incident."""
        return (
            self.cluster in ("", incident.cluster)
            and incident.severity >= self.min_severity
            and matches_incident(self.matchers, incident)
        )

    def effective_channel_ids(self, parent_channel_ids: tuple[int, ...]) -> tuple[int, ...]:
        """Return the channels of the route, given those of its parent."""
        if self.includes_parent_channels:
            return tuple(dict.fromkeys((*parent_channel_ids, *self.channel_ids)))
        return self.channel_ids or parent_channel_ids


@dataclass(frozen=True, slots=True)
class MatchedRoute:
    """A route that an incident ends at, with its path and its effective channels."""

    route: Route
    path: tuple[str, ...]
    channel_ids: tuple[int, ...]


def match_routes(roots: Iterable[Route], incident: Incident) -> list[MatchedRoute]:
    """Return the routes that an incident ends at."""
    return list(_match_subtree(roots, incident, (), ()))


def _match_subtree(
    routes: Iterable[Route], incident: Incident, path: tuple[str, ...], inherited_channel_ids: tuple[int, ...]
) -> Iterator[MatchedRoute]:
    for route in routes:
        if not route.accepts(incident):
            continue
        route_path = (*path, route.name)
        effective_channel_ids = route.effective_channel_ids(inherited_channel_ids)
        matched_children = list(_match_subtree(route.children, incident, route_path, effective_channel_ids))
        yield from matched_children or [MatchedRoute(route, route_path, effective_channel_ids)]
        if not route.should_continue:
            return


def plan_receivers(
    matched_routes: Sequence[MatchedRoute], incident: Incident, kind: NotificationKind, now: float
) -> dict[int, tuple[float, str]]:
    """Return the channels of a notification, each with the earliest time and the reason for waiting (empty: none)."""
    schedule_by_channel: dict[int, tuple[float, str]] = {}
    for matched_route in matched_routes:
        is_escalation = kind is NotificationKind.ESCALATED
        channel_ids = matched_route.route.escalate_to if is_escalation else matched_route.channel_ids
        if not is_escalation and incident.escalated_at is not None:
            # After an escalation, the escalation channels get all further notifications.
            channel_ids = (*channel_ids, *matched_route.route.escalate_to)
        send_at, reason = now, ""
        if matched_route.route.quiet_hours is not None and incident.severity < Severity.CRITICAL:
            end = matched_route.route.quiet_hours.end_after(now)
            if end is not None:
                send_at, reason = end, f"{QUIET_HOURS_REASON_PREFIX} of route {matched_route.route.name}"
        for channel_id in channel_ids:
            if channel_id not in schedule_by_channel or send_at < schedule_by_channel[channel_id][0]:
                schedule_by_channel[channel_id] = (send_at, reason)
    return schedule_by_channel


def escalates_at(matched_routes: Sequence[MatchedRoute], incident: Incident) -> float | None:
    """Return when an incident escalates unless it is acknowledged; None if it does not."""
    if (
        incident.state is not IncidentState.FIRING
        or not incident.is_notified
        or incident.acknowledged_at is not None
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


@dataclass(frozen=True, slots=True)
class TrialStep:
    """A channel that the incident would notify."""

    channel_id: int
    #: Seconds from the first notification.
    after_seconds: float
    #: Why it waits; empty if it does not.
    reason: str = ""
    is_escalation: bool = False


@dataclass(frozen=True, slots=True)
class RouteTrial:
    """The result of a trial: the steps in the order of time, and the routes that the incident ends at."""

    steps: tuple[TrialStep, ...]
    matched_routes: tuple[MatchedRoute, ...]


def make_trial_incident(
    cluster: str, cause: Cause, severity: Severity, agent_set: str, rule: str, now: float
) -> Incident:
    """Return an incident as it is when its first notification is sent."""
    return Incident(
        cluster,
        cause,
        1,
        IncidentState.FIRING,
        now,
        severity=severity,
        fired_at=now,
        notified_at=now,
        notification_count=1,
        agent_sets=(agent_set,) if agent_set else (),
        marks={rule: RuleMark(now, now, 1, severity, 1, "", is_firing=True)} if rule else {},
    )


def try_routes(roots: Sequence[Route], incident: Incident, now: float) -> RouteTrial:
    """Return whom an incident would notify if its first notification were sent now."""
    matched_routes = match_routes(roots, incident)
    first_receivers = plan_receivers(matched_routes, incident, NotificationKind.FIRING, now)
    steps = [TrialStep(channel, at - now, reason) for channel, (at, reason) in first_receivers.items()]
    escalation_at = escalates_at(matched_routes, incident)
    if escalation_at is not None:
        escalated = plan_receivers(matched_routes, incident, NotificationKind.ESCALATED, escalation_at)
        steps += [
            TrialStep(channel, escalation_at - now, "nobody acknowledged the incident", is_escalation=True)
            for channel in escalated
        ]
    return RouteTrial(tuple(sorted(steps, key=lambda step: step.after_seconds)), tuple(matched_routes))
