"""Present incidents, silences, maintenance windows and deliveries for pages: texts, dates and ages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

import numpy as np
import numpy.typing as npt

from dashboards.alerts.trend_line import trend_points_of
from dashboards.fleet.failing_channels import describe_recipients
from dashboards.shared import record_reader
from dashboards.shared.presenters import age_ms_of, to_moment_or_none
from fleet.alerts import store
from fleet.alerts.headlines.actions import VIEW, HeadlineAction
from fleet.alerts.headlines.headline import IncidentDescriber, IncidentHeadline
from fleet.alerts.lifecycle.context import EvaluationContext
from fleet.alerts.lifecycle.notification_plan import plan_notification
from fleet.alerts.notifications import (
    agents_path,
    describe_recovery,
    format_utc,
    headline_of,
    subject_of,
)
from fleet.alerts.receivers import plan_notification_receivers
from fleet.alerts.routing.tree import Route, escalates_at, match_routes
from fleet.alerts.rules import Rule
from fleet.alerts.runbooks.finder import RunbookFinder
from fleet.alerts.runbooks.remedies import find_auth_refusal
from fleet.alerts.silences import Silence, find_active_silences, find_silence_name
from fleet.alerts.wording.words import format_remaining
from fleet.models.alerting import Channel
from fleet.models.incidents import Incident, IncidentEvent
from fleet.monitoring.columns import NO_INSTANCE, REASON_BITS
from fleet.monitoring.evidence import ReconnectMode
from fleet.monitoring.last_tunnels import describe_unreachable_agents
from fleet.monitoring.state import StateError
from fleet.monitoring.views import FleetTable
from fleet.protocol.durations import format_readable
from fleet.vocabulary import incidents as incident_values
from fleet.vocabulary.campaigns import ConnectionKind
from fleet.vocabulary.incidents import (
    CauseKind,
    IncidentState,
    Notification,
    NotificationKind,
    is_console_cause,
)
from fleet.vocabulary.instances import InstanceKind, InstanceState
from fleet.vocabulary.runbooks import RunbookCause, runbook_path_of
from fleet.vocabulary.verdicts import Reason

Indices = npt.NDArray[np.intp]

#: Kinds of causes whose agents a reconnect campaign can move.
_MOVABLE_CAUSE_KINDS = frozenset({CauseKind.PROXY.value, CauseKind.AUTH.value})


@dataclass(frozen=True, slots=True)
class IncidentView:
    """One incident as pages and the API show it: computed fields here, all others from `incident`."""

    incident: incident_values.Incident
    #: Number of the incident in URLs; `incident.id` is its permanent id.
    number: int
    severity: str
    summary: str
    cause_kind: str
    cause: str
    agent_names: list[str]
    opened_age_ms: int | None
    resolved_age_ms: int | None
    duration_seconds: float
    duration_text: str
    is_flapping: bool
    acknowledged_by: str
    #: What inhibits the incident, as text; empty if nothing does.
    inhibition_text: str
    #: Recovery as text; empty if no agents are affected.
    recovery_text: str
    #: How long it is until the last agent has recovered: `in about 12 min`; empty unless that is predicted.
    recovery_remaining: str
    #: Actions that help the affected agents now, and those that only prevent the next failure.
    actions: tuple[HeadlineAction, ...]
    preventions: tuple[HeadlineAction, ...]
    #: Points of the trend line for an SVG polyline.
    trend_points: str
    agents_url: str
    #: Result of `next_notification_of`, if the caller asked for it.
    next_notification: Mapping[str, Any] | None
    #: Its runbook, and the path of the page; None if the caller did not ask for it.
    runbook: RunbookCause | None = None
    runbook_path: str = ""

    @property
    def affected_count(self) -> int:
        """The number of affected agents now."""
        return self.incident.affected_count

    @property
    def peak_count(self) -> int:
        """The highest number of affected agents so far."""
        return self.incident.peak_count

    @property
    def is_resolved(self) -> bool:
        """Whether the incident is over."""
        return self.incident.state is IncidentState.RESOLVED

    @property
    def tone(self) -> str:
        """CSS class of its colours, after `incident-`: its severity, or `resolved`, because red is for what lasts."""
        return IncidentState.RESOLVED.value if self.is_resolved else self.severity

    @property
    def repairs(self) -> list[HeadlineAction]:
        """The actions that are no campaign: the page has its own button for a campaign."""
        return [action for action in self.actions if action.permission == VIEW]

    @property
    def recovers_at(self) -> datetime | None:
        """The latest time of automatic recovery; None if none is predicted."""
        return to_moment_or_none(self.incident.recovers_at)

    def __getattr__(self, name: str) -> Any:
        """Return a field of the incident; times as dates."""
        field = getattr(self.incident, name)
        return to_moment_or_none(field) if name.endswith("_at") else field


def read_active_silences(cluster: str, now: float) -> list[Silence]:
    """Return the silences and maintenance windows that are active in a cluster now."""
    return find_active_silences(store.read_silences(now), store.read_maintenance_windows(), cluster, now)


def with_silence(row: Incident, active_silences: Sequence[Silence]) -> incident_values.Incident:
    """Return an incident with the silence that matches it now. Its row has that only after the next evaluation."""
    incident = store.incident_of(row)
    is_resolved = incident.state is IncidentState.RESOLVED
    return (
        incident
        if is_resolved
        else replace(incident, silenced_by=find_silence_name(incident, active_silences))
    )


def find_describer(cluster: str, now: float) -> IncidentDescriber | None:
    """Return what describes incidents as of the newest round; None while the record cannot be read."""
    try:
        table = record_reader.reader().table(cluster, now)
    except StateError:
        return None
    return IncidentDescriber(table, now)


def find_runbook_finder(rows: Sequence[Incident], cluster: str, now: float) -> RunbookFinder:
    """Return what finds the runbooks of these incidents as of the newest round."""
    try:
        table = record_reader.reader().table(cluster, now)
    except StateError:
        table = None
    return RunbookFinder(cluster, table, min((row.opened_at for row in rows), default=now))


def present_incident(
    row: Incident,
    now: float,
    url_prefix: str = "",
    cause_names: Mapping[str, str] | None = None,
    *,
    active_silences: Sequence[Silence],
    next_notification: Mapping[str, Any] | None = None,
    describer: IncidentDescriber | None = None,
    runbook: RunbookCause | None = None,
) -> IncidentView:
    """Present one incident.

    `cause_names`: by key, for inhibition; `active_silences`: result of `read_active_silences`; `describer`: of the
    newest round, whose agents an open incident shows; None: those of the last evaluation.
    """
    incident = with_silence(row, active_silences)
    if not incident.is_open:
        describer = None
    headline = None if describer is None else describer.describe(incident.cause)
    if headline is not None:
        incident = replace(incident, affected_count=headline.affected_count)
    cause, duration = incident.cause, incident.duration_seconds(now)
    is_resolved = incident.state is IncidentState.RESOLVED
    return IncidentView(
        incident=incident,
        number=row.pk,
        severity=incident.severity.slug,
        summary=headline_of(incident) if headline is None else headline.summary.removesuffix("."),
        cause_kind=cause.kind.value,
        cause=cause.name,
        agent_names=list(incident.agent_names),
        opened_age_ms=age_ms_of(incident.opened_at, now),
        resolved_age_ms=age_ms_of(incident.resolved_at, now),
        duration_seconds=round(duration, 1),
        duration_text=format_readable(round(duration)),
        is_flapping=incident.flapping_since is not None,
        acknowledged_by=row.acknowledged_by,
        inhibition_text=_describe_inhibition(incident.inhibited_by, cause_names or {}),
        # An incident of the whole fleet has no single cause, so the recovery of its agents is not known.
        recovery_text=headline.recovery if headline is not None else _describe_recovery_of(incident, now),
        recovery_remaining=_remaining_of(incident, headline, now),
        actions=() if describer is None else describer.actions.find(incident.cause.key),
        preventions=() if headline is None else headline.preventions,
        trend_points=trend_points_of(incident.trend, incident.resolved_at or now if is_resolved else now),
        agents_url=f"{url_prefix}{agents_path(cause)}",
        next_notification=next_notification,
        runbook=runbook,
        runbook_path=""
        if runbook is None
        else f"{url_prefix}{runbook_path_of(runbook, incident_number=row.pk)}",
    )


def _describe_recovery_of(incident: incident_values.Incident, now: float) -> str:
    """Return the recovery as of the last evaluation; an incident of the whole fleet has no single cause, so none."""
    has_cause = incident.cause.kind is not CauseKind.FLEET
    return describe_recovery(incident, now) if incident.affected_count and has_cause else ""


def _remaining_of(incident: incident_values.Incident, headline: IncidentHeadline | None, now: float) -> str:
    """Return the time until the recovery that the text of an open incident names."""
    recovers_at = incident.recovers_at if headline is None else headline.recovers_at
    if not incident.is_open or not incident.affected_count or recovers_at is None:
        return ""
    return format_remaining(recovers_at - now)


def _describe_inhibition(key: str, cause_names: Mapping[str, str]) -> str:
    """Return what inhibits an incident, as text. While Refloat is blind, incidents are on hold."""
    if is_console_cause(key):
        return "on hold: Refloat cannot see the fleet"
    return f"inhibited by {cause_names.get(key, key)}" if key else ""


def cause_names_of(rows: Iterable[Incident]) -> dict[str, str]:
    """Return the names of the causes of incidents, by key."""
    return {row.key: store.incident_of(row).cause.label for row in rows}


def next_notification_of(
    row: Incident,
    rules: Iterable[Rule],
    now: float,
    routes: Sequence[Route],
    active_silences: Sequence[Silence],
) -> dict[str, Any]:
    """Return the next notification of an incident: `at`, `reason`, `channels` (names), `path` (routes).

    `resolved_channels`: names of the channels that get the resolved notification although no notification is planned;
    `recipients`: the channels of either as text, each failing one with the time since which it fails.
    `routes`: those of the cluster; `active_silences`: result of `read_active_silences`.
    """
    incident = with_silence(row, active_silences)
    notification_plan = plan_notification(
        incident, EvaluationContext(now, 0.0, {rule.name: rule for rule in rules})
    )
    if incident.state is IncidentState.RESOLVED:
        return {
            "at": None,
            "reason": "the incident is resolved",
            "channels": [],
            "resolved_channels": [],
            "recipients": "",
            "path": [],
        }
    matched_routes = match_routes(routes, incident)
    at, reason = notification_plan.at, notification_plan.reason
    if incident.inhibited_by:
        inhibitor_rows = Incident.objects.filter(cluster=row.cluster_id, key=incident.inhibited_by).order_by(
            "-generation"
        )
        reason = reason.replace(
            incident.inhibited_by,
            cause_names_of(inhibitor_rows[:1]).get(incident.inhibited_by, incident.inhibited_by),
        )
    escalation_at = escalates_at(matched_routes, incident)
    kind = notification_plan.kind or NotificationKind.FIRING
    if escalation_at is not None and (at is None or escalation_at < at):
        at, reason, kind = escalation_at, "escalation unless acknowledged", NotificationKind.ESCALATED
    notification = Notification(kind, incident, at or now, incident.notification_count)
    planned_receivers = plan_notification_receivers(notification, row, routes, at or now)
    planned_delays = [
        (send_at, delay_reason) for send_at, delay_reason in planned_receivers.values() if delay_reason
    ]
    if at is not None and planned_receivers and len(planned_delays) == len(planned_receivers):
        at, delay_reason = min(planned_delays)
        reason = f"{reason}, delayed until the end of the {delay_reason}"
    channels = _read_channels(planned_receivers) if at is not None else []
    resolved_channels = (
        _read_channels(store.plan_resolved_receivers(row, {}, now))
        if at is None and incident.is_notified
        else []
    )
    return {
        "at": to_moment_or_none(at),
        "age_ms": age_ms_of(at, now),
        "reason": reason,
        "channels": [name for name, _ in channels],
        "resolved_channels": [name for name, _ in resolved_channels],
        "recipients": describe_recipients([*channels, *resolved_channels], now),
        "path": [" / ".join(matched_route.path) for matched_route in matched_routes],
    }


def _read_channels(channel_ids: Iterable[int]) -> list[tuple[str, float | None]]:
    """Return the names of channels, each with the time since which it has been failing."""
    return list(Channel.objects.filter(pk__in=list(channel_ids)).values_list("name", "failing_since"))


def find_common_attributes(table: FleetTable, indices: Indices) -> list[dict[str, Any]]:
    """Return the most common reasons, home proxies, auths and reconnect modes of the agents of an incident."""
    if not len(indices):
        return []
    total = len(indices)

    def name(index: int) -> str:
        view = table.instances.get(index)
        return "none" if index == NO_INSTANCE or view is None else view.facts.name

    reasons = (table.verdicts["reason_and_recovery"][indices] & REASON_BITS).tolist()
    counts_by_title: dict[str, Counter[str]] = {
        "Reason": Counter(Reason(reason).label for reason in reasons),
        "Home proxy": Counter(name(index) for index in table.memory["home_proxy"][indices].tolist()),
        "Auth": Counter(name(index) for index in table.memory["last_auth"][indices].tolist()),
        "Reconnect mode": Counter(
            ReconnectMode(mode).slug for mode in table.heartbeats["mode"][indices].tolist()
        ),
    }
    return [
        {
            "title": title,
            "parts": [
                {"name": attribute, "count": count, "share": round(100 * count / total)}
                for attribute, count in counts.most_common(5)
            ],
            "more": max(0, len(counts) - 5),
        }
        for title, counts in counts_by_title.items()
    ]


def newest_notification_of(event: IncidentEvent | None) -> dict[str, Any]:
    """Return what a browser shows of the newest notification. `event` identifies the notification; 0: none yet."""
    if event is None:
        return {"event": 0}
    row = event.incident
    incident = store.incident_of(row)
    is_resolved = incident.state is IncidentState.RESOLVED
    notification = Notification(
        NotificationKind.RESOLVED if is_resolved else NotificationKind.FIRING,
        incident,
        incident.resolved_at or event.at,
        0,
    )
    severity = "resolved" if is_resolved else incident.severity.slug
    return {"event": event.pk, "text": subject_of(notification), "severity": severity, "number": row.pk}


def reconnect_query_of(
    row: Incident, cause_state: InstanceState | None, table: FleetTable
) -> tuple[str, str]:
    """Return the query of the reconnect page for the agents of an incident, or the reason why there is none.

    Refloat reaches agents through their tunnels, and not through a proxy that does not respond. An agent that is
    stranded by its auth still has its tunnels.
    """
    if row.state == IncidentState.RESOLVED.value or row.cause_kind not in _MOVABLE_CAUSE_KINDS:
        return "", ""
    if row.cause_kind == CauseKind.PROXY.value:
        is_affecting = store.incident_of(row).affected_count > 0
        if cause_state is InstanceState.SILENT:
            # Only the proxy itself advises agents to leave it.
            sentence = describe_unreachable_agents(row.cause_name)
            return "", sentence if is_affecting else ""
        if cause_state is InstanceState.OK and not is_affecting:
            return "", ""
        return urlencode({"proxy": row.cause_name}), ""
    auths = (view for view in table.instances.values() if view.facts.kind is InstanceKind.AUTH)
    view = next((view for view in auths if view.facts.name == row.cause_name), None)
    if view is None or not (table.memory["last_auth"] == view.facts.index).any():
        return "", ""
    if refusal := find_auth_refusal(table, view):
        return "", refusal
    return urlencode({"connection": ConnectionKind.AUTH.value, "auth": row.cause_name}), ""


def format_time_range(starts_at: float, ends_at: float) -> str:
    """Return a time range in UTC as text."""
    return f"{format_utc(starts_at)[:16]} to {format_utc(ends_at)[:16]} UTC"
