"""When a notification of an incident is due, of which kind and why. Pure. docs/reference/alerts.md, "Notifications"."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from fleet.alerts.flapping import FLAP_SECONDS
from fleet.alerts.lifecycle.context import EvaluationContext, is_settled
from fleet.alerts.rules import Rule
from fleet.protocol.durations import format_readable
from fleet.vocabulary.incidents import Incident, IncidentState, NotificationKind, Severity, is_console_cause

#: An update is sent when more agents are affected than the last notification said: by this factor and number.
_GROWTH_FACTOR = 1.5
_MIN_GROWTH = 5
#: Seconds after its due time for which the first notification reports the worst state so far. A later one, for
#: example after a silence of an hour, reports the current state.
FIRST_NOTIFICATION_GRACE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class NotificationPlan:
    """The next notification of an incident: time, kind and reason. `at` None: none is planned."""

    at: float | None
    kind: NotificationKind | None
    reason: str


def plan_notification(incident: Incident, evaluation_context: EvaluationContext) -> NotificationPlan:
    """Return the next notification, as far as it is known at this evaluation."""
    if incident.state is IncidentState.RESOLVED:
        if incident.is_notified:
            return NotificationPlan(
                evaluation_context.now, NotificationKind.RESOLVED, "the incident is resolved"
            )
        return NotificationPlan(None, None, "no notification said that the incident was open")
    if suppression_reason := _find_suppression_reason(incident):
        # The resolved notification is sent anyway: some receivers keep an alert open until they get one.
        is_ending = incident.state is IncidentState.RECOVERING and incident.is_notified
        return (
            _plan_resolution(incident, evaluation_context)
            if is_ending
            else NotificationPlan(None, None, suppression_reason)
        )
    notified_at = incident.notified_at
    if incident.flapping_since is not None and (notified_at is None or notified_at < incident.flapping_since):
        return NotificationPlan(
            incident.flapping_since, NotificationKind.FLAPPING, "the incident is flapping"
        )
    if incident.state is IncidentState.PENDING:
        return NotificationPlan(None, None, _describe_pending(incident, evaluation_context))
    if incident.state is IncidentState.RECOVERING:
        return _plan_resolution(incident, evaluation_context)
    return _plan_while_firing(incident, evaluation_context.strongest_rule(incident), evaluation_context.now)


def _describe_pending(incident: Incident, evaluation_context: EvaluationContext) -> str:
    """Return when a pending incident fires, as far as only the time is missing."""
    fire_times = [
        mark.since + rule.pending_seconds
        for rule_name, mark in incident.marks.items()
        if (rule := evaluation_context.rules.get(rule_name)) is not None and is_settled(mark, rule)
    ]
    if not fire_times:
        return "the incident is pending: its rule has not held long enough to fire"
    # A fixed time: a remaining time would be written to the database at every evaluation.
    fires_at = datetime.fromtimestamp(min(fire_times), UTC)
    return f"the incident is pending: it fires at {fires_at:%H:%M:%S} UTC if it lasts until then"


def find_due_notification(
    incident: Incident, evaluation_context: EvaluationContext
) -> NotificationKind | None:
    """Return the kind of notification to send now, if any."""
    next_plan = plan_notification(incident, evaluation_context)
    if incident.state is IncidentState.RECOVERING and next_plan.kind is NotificationKind.RESOLVED:
        return None
    return next_plan.kind if next_plan.at is not None and next_plan.at <= evaluation_context.now else None


def with_notification(incident: Incident, kind: NotificationKind, now: float) -> Incident:
    """Return the incident after a notification about it."""
    if kind is NotificationKind.SHORT_OUTAGE:
        return replace(
            incident, short_outage_notified_at=now, notification_count=incident.notification_count + 1
        )
    return replace(
        incident,
        notified_at=now,
        notified_severity=incident.severity,
        notified_affected_count=incident.affected_count,
        notification_count=incident.notification_count + 1,
    )


def recover_seconds_of(incident: Incident, evaluation_context: EvaluationContext) -> float:
    """Return the seconds without findings until an incident resolves: the longest that any of its rules demands."""
    if incident.flapping_since is not None:
        return FLAP_SECONDS
    firing_rules = [
        evaluation_context.rules[rule_name]
        for rule_name, mark in incident.marks.items()
        if mark.is_firing and rule_name in evaluation_context.rules
    ]
    return max(
        (rule.recover_seconds for rule in firing_rules),
        default=evaluation_context.strongest_rule(incident).recover_seconds,
    )


def first_notification_at(incident: Incident, rule: Rule) -> float:
    """Return when the first notification is due, after the group wait."""
    return max(incident.fired_at or 0.0, incident.opened_at + rule.group_wait)


def is_before_first_notification(incident: Incident, evaluation_context: EvaluationContext) -> bool:
    """Return whether the first notification of an incident is still to be sent."""
    return (
        not incident.is_notified
        and evaluation_context.now
        < first_notification_at(incident, evaluation_context.strongest_rule(incident))
        + FIRST_NOTIFICATION_GRACE_SECONDS
    )


def _find_suppression_reason(incident: Incident) -> str:
    """Return why only the resolved notification is sent; empty if all are sent."""
    if incident.inhibited_by:
        if is_console_cause(incident.inhibited_by):
            return "Refloat cannot see the fleet"
        return f"inhibited by {incident.inhibited_by}"
    if incident.silenced_by:
        return f"silenced: {incident.silenced_by}"
    return "incidents of severity info are sent in digests only" if incident.severity is Severity.INFO else ""


def _plan_resolution(incident: Incident, evaluation_context: EvaluationContext) -> NotificationPlan:
    """Return the plan of a recovering incident."""
    if not incident.is_notified:
        return _plan_short_outage(incident, evaluation_context)
    resolves_at = (incident.recovering_since or evaluation_context.now) + recover_seconds_of(
        incident, evaluation_context
    )
    return NotificationPlan(
        resolves_at, NotificationKind.RESOLVED, "the incident resolves unless a rule fires again"
    )


def _plan_short_outage(incident: Incident, evaluation_context: EvaluationContext) -> NotificationPlan:
    """Return the plan of an incident that recovered before anything was sent: one notification that it is over."""
    rule = evaluation_context.strongest_rule(incident)
    due_at = first_notification_at(incident, rule)
    if incident.short_outage_notified_at is not None:
        return NotificationPlan(None, None, "the notification of the short outage was sent")
    if evaluation_context.now >= due_at + FIRST_NOTIFICATION_GRACE_SECONDS:
        # For example a silence or a stronger cause held it back: it would be late, and nothing is left to do.
        return NotificationPlan(None, None, "the incident recovered before anything was sent")
    reason = f"the outage was shorter than the group wait of {format_readable(rule.group_wait)}"
    return NotificationPlan(due_at, NotificationKind.SHORT_OUTAGE, reason)


def _describe_acknowledgement(incident: Incident) -> str:
    """Return what an acknowledged incident still notifies of, before it is resolved."""
    notified_severity = incident.notified_severity or Severity.INFO
    worsening = f", a severity above {notified_severity.slug}" if notified_severity < max(Severity) else ""
    return f"the incident is acknowledged, so only its resolution{worsening} and flapping are notified"


def _plan_while_firing(incident: Incident, rule: Rule, now: float) -> NotificationPlan:
    notified_at = incident.notified_at
    if notified_at is None:
        first_at = first_notification_at(incident, rule)
        has_firing_mark = any(mark.is_firing for mark in incident.marks.values()) or not incident.marks
        if not has_firing_mark and now >= first_at + FIRST_NOTIFICATION_GRACE_SECONDS:
            return NotificationPlan(
                None,
                None,
                "the rule that fired no longer holds, and the others have not held long enough to fire",
            )
        return NotificationPlan(
            first_at,
            NotificationKind.FIRING,
            f"group wait of {format_readable(rule.group_wait)}",
        )
    if incident.severity > (incident.notified_severity or Severity.INFO):
        return NotificationPlan(notified_at, NotificationKind.WORSE, "the severity increased")
    if incident.acknowledged_at is not None:
        return NotificationPlan(None, None, _describe_acknowledgement(incident))
    growth_threshold = max(
        _GROWTH_FACTOR * incident.notified_affected_count, incident.notified_affected_count + _MIN_GROWTH
    )
    # The severity is about to increase: send one notification, not two.
    is_about_to_worsen = any(
        mark.severity > incident.severity for mark in incident.marks.values() if not mark.is_firing
    )
    if (
        incident.affected_count > growth_threshold
        and incident.flapping_since is None
        and not is_about_to_worsen
    ):
        return NotificationPlan(
            notified_at + rule.group_interval, NotificationKind.UPDATE, "many more agents are affected"
        )
    repeat_reason = f"repeat every {format_readable(rule.repeat_seconds)}"
    return NotificationPlan(notified_at + rule.repeat_seconds, NotificationKind.REPEAT, repeat_reason)
