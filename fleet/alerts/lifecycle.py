"""The life cycle of one incident: pending, firing, recovering, resolved, and when a notification is due. Pure.

docs/reference/alerts.md, "Incident lifecycle".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from fleet.alerts.flapping import FLAP_SECONDS, append_flap_time, update_flapping
from fleet.alerts.inhibition import INHIBITION_GRACE_SECONDS
from fleet.alerts.rules import Rule, RuleKind
from fleet.protocol.durations import format_readable
from fleet.vocabulary.incidents import (
    Finding,
    Incident,
    IncidentState,
    NotificationKind,
    RuleMark,
    Severity,
    TimelineEntry,
    TimelineKind,
    is_console_cause,
)

#: An update is sent when more agents are affected than the last notification said: by this factor and number.
_GROWTH_FACTOR = 1.5
_MIN_GROWTH = 5
#: Maximum number of points of the trend, and minimum seconds between two points.
_MAX_TREND_POINTS = 60
_TREND_STEP_SECONDS = 10.0
#: Seconds for which agents that still recover from a cause that is gone do not open an incident of their own. The
#: slowest recovery that RFD 226 allows takes 13 min.
_LINGER_SECONDS = 900.0
#: Seconds after its due time for which the first notification reports the worst state so far. A later one, for
#: example after a silence of an hour, reports the current state.
_FIRST_NOTIFICATION_GRACE_SECONDS = 60.0
#: Stands in for a rule that was deleted while its incident is open.
_DELETED_RULE = Rule("deleted", RuleKind.STRANDED, Severity.WARNING)


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """One evaluation of a cluster."""

    now: float
    #: Time of the newest poll of the fleet; identifies the poll.
    newest_round_at: float
    #: Rules by name.
    rules: Mapping[str, Rule]

    def strongest_rule(self, incident: Incident) -> Rule:
        """Return the rule whose intervals apply to an incident: the most severe one that fires."""
        rule_names = [rule_name for rule_name, mark in incident.marks.items() if mark.is_firing] or list(
            incident.marks
        )
        rules = [self.rules[rule_name] for rule_name in rule_names if rule_name in self.rules]
        return max(rules, key=lambda rule: rule.severity, default=_DELETED_RULE)


@dataclass(frozen=True, slots=True)
class LifecycleStep:
    """The result of one evaluation for an incident; None if the incident is dropped."""

    incident: Incident | None
    timeline_entries: tuple[TimelineEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class NotificationPlan:
    """The next notification of an incident: time, kind and reason. `at` None: none is planned."""

    at: float | None
    kind: NotificationKind | None
    reason: str


def advance(
    incident: Incident,
    finding: Finding | None,
    evaluation_context: EvaluationContext,
    *,
    is_explaining: bool = False,
) -> LifecycleStep:
    """Advance an incident by one evaluation, with what the rules found at its cause.

    `is_explaining`: agents that this incident explains are still affected.
    """
    if incident.state is IncidentState.RESOLVED:
        return LifecycleStep(incident)
    if finding is not None:
        incident = _with_measurements(
            _with_marks(incident, finding, evaluation_context), finding, evaluation_context
        )
    if incident.state is IncidentState.PENDING:
        return _advance_pending(incident, finding, evaluation_context)
    return _advance_open(incident, finding, evaluation_context, is_explaining=is_explaining)


def advance_while_blind(incident: Incident, now: float) -> LifecycleStep:
    """Advance an incident while Refloat is blind: pending ones are dropped, and recovery starts over."""
    if incident.state is IncidentState.PENDING:
        return LifecycleStep(None)
    if incident.state is IncidentState.RECOVERING:
        return LifecycleStep(replace(incident, recovering_since=now))
    return LifecycleStep(incident)


def plan_notification(incident: Incident, evaluation_context: EvaluationContext) -> NotificationPlan:
    """Return the next notification, as far as it is known at this evaluation."""
    if incident.state is IncidentState.RESOLVED:
        if incident.notification_count:
            return NotificationPlan(
                evaluation_context.now, NotificationKind.RESOLVED, "the incident is resolved"
            )
        return NotificationPlan(None, None, "the incident resolved before anything was sent")
    if suppression_reason := _find_suppression_reason(incident):
        # The resolved notification is sent anyway: some receivers keep an alert open until they get one.
        is_ending = incident.state is IncidentState.RECOVERING and incident.notification_count
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
        return NotificationPlan(
            None, None, "the incident is pending: its rule has not held long enough to fire"
        )
    if incident.state is IncidentState.RECOVERING:
        return _plan_resolution(incident, evaluation_context)
    return _plan_while_firing(incident, evaluation_context.strongest_rule(incident), evaluation_context.now)


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
    resolves_at = (incident.recovering_since or evaluation_context.now) + recover_seconds_of(
        incident, evaluation_context
    )
    kind = NotificationKind.RESOLVED if incident.notification_count else None
    return NotificationPlan(
        resolves_at if kind else None, kind, "the incident resolves unless a rule fires again"
    )


def find_due_notification(
    incident: Incident, evaluation_context: EvaluationContext
) -> NotificationKind | None:
    """Return the kind of notification to send now, if any."""
    next_plan = plan_notification(incident, evaluation_context)
    if incident.state is IncidentState.RECOVERING and next_plan.kind is NotificationKind.RESOLVED:
        return None
    return next_plan.kind if next_plan.at is not None and next_plan.at <= evaluation_context.now else None


def with_notification(incident: Incident, now: float) -> Incident:
    """Return the incident after a notification about it."""
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


def _plan_while_firing(incident: Incident, rule: Rule, now: float) -> NotificationPlan:
    notified_at = incident.notified_at
    if notified_at is None:
        first_notification_at = _first_notification_at(incident, rule)
        has_firing_mark = any(mark.is_firing for mark in incident.marks.values()) or not incident.marks
        if not has_firing_mark and now >= first_notification_at + _FIRST_NOTIFICATION_GRACE_SECONDS:
            return NotificationPlan(
                None,
                None,
                "the rule that fired no longer holds, and the others have not held long enough to fire",
            )
        return NotificationPlan(
            first_notification_at,
            NotificationKind.FIRING,
            f"grouping wait of {format_readable(rule.group_wait)}",
        )
    if incident.severity > (incident.notified_severity or Severity.INFO):
        return NotificationPlan(notified_at, NotificationKind.WORSE, "the severity increased")
    if incident.acknowledged_at is not None:
        return NotificationPlan(None, None, "the incident is acknowledged")
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


def _first_notification_at(incident: Incident, rule: Rule) -> float:
    """Return when the first notification is due, after the grouping wait."""
    return max(incident.fired_at or 0.0, incident.opened_at + rule.group_wait)


def _with_marks(incident: Incident, finding: Finding, evaluation_context: EvaluationContext) -> Incident:
    marks = {}
    for signal in finding.signals:
        rule = evaluation_context.rules.get(signal.rule_name, _DELETED_RULE)
        previous_mark = incident.marks.get(signal.rule_name)
        if previous_mark is None:
            since, round_count, last_round_at = evaluation_context.now, 1, evaluation_context.newest_round_at
        elif _is_settled(previous_mark, rule):
            since, round_count, last_round_at = (
                previous_mark.since,
                previous_mark.round_count,
                previous_mark.last_round_at,
            )
        else:
            since, last_round_at = (
                previous_mark.since,
                max(previous_mark.last_round_at, evaluation_context.newest_round_at),
            )
            round_count = previous_mark.round_count + (
                evaluation_context.newest_round_at > previous_mark.last_round_at
            )
        is_firing = (
            round_count >= rule.pending_rounds and evaluation_context.now - since >= rule.pending_seconds
        )
        is_firing = is_firing or (previous_mark is not None and previous_mark.is_firing)
        marks[signal.rule_name] = RuleMark(
            since,
            last_round_at,
            round_count,
            signal.severity,
            signal.count,
            signal.summary,
            is_firing,
            signal.is_agent_set_scoped,
        )
    if marks == incident.marks:
        return incident
    firing_names = {rule_name for rule_name, mark in marks.items() if mark.is_firing}
    fired_rule_names = tuple(sorted(firing_names.union(incident.fired_rule_names)))
    return replace(incident, marks=marks, fired_rule_names=fired_rule_names)


def _is_settled(mark: RuleMark, rule: Rule) -> bool:
    """Return whether further polls do not count, so that a mark that only waits for time is not written at each one."""
    return mark.is_firing or mark.round_count >= rule.pending_rounds


def _with_measurements(
    incident: Incident, finding: Finding, evaluation_context: EvaluationContext
) -> Incident:
    marks = incident.marks.values()
    counted_marks = [mark for mark in marks if mark.is_firing] or list(marks)
    worst_mark = max(counted_marks, key=lambda mark: (mark.severity, mark.count))
    after = _with_worst_state(incident, worst_mark, finding)
    severity, summary = worst_mark.severity, worst_mark.summary
    if (
        _is_before_first_notification(after, evaluation_context)
        and after.worst_severity is not None
        and severity < after.worst_severity
    ):
        severity, summary = after.worst_severity, after.worst_summary
    measurements: dict[str, Any] = {
        "severity": severity,
        "affected_count": finding.affected_count,
        "peak_count": max(incident.peak_count, finding.affected_count),
        "agent_names": finding.agent_names or incident.agent_names,
        "recovers_at": finding.recovers_at,
        "is_stuck": finding.is_stuck,
        "summary": summary,
        "agent_sets": tuple(sorted(finding.agent_sets.union(incident.agent_sets))),
    }
    if _measurements_of(after) != tuple(measurements.values()):
        after = replace(after, **measurements)
    return _with_trend_point(after, evaluation_context.now)


#: The fields that `_with_measurements` compares, in its order, because copying an unchanged incident is the slowest
#: step.
_measurements_of = attrgetter(
    *("severity", "affected_count", "peak_count", "agent_names", "recovers_at", "is_stuck", "summary"),
    "agent_sets",
)


def _is_before_first_notification(incident: Incident, evaluation_context: EvaluationContext) -> bool:
    """Return whether the first notification of an incident is still to be sent."""
    return (
        not incident.notification_count
        and evaluation_context.now
        < _first_notification_at(incident, evaluation_context.strongest_rule(incident))
        + _FIRST_NOTIFICATION_GRACE_SECONDS
    )


def _with_worst_state(incident: Incident, mark: RuleMark, finding: Finding) -> Incident:
    """Keep the worst severity of an incident, and the summary of its peak.

    Agents at risk become stranded while their total stays the same: with equal totals, the state with more stranded
    agents is the worse one.
    """
    severity, summary, stranded_count = (
        incident.worst_severity,
        incident.worst_summary,
        incident.worst_stranded_count,
    )
    is_more_severe = (
        mark.is_firing and not incident.inhibited_by and (severity is None or mark.severity > severity)
    )
    if is_more_severe:
        severity = mark.severity
    affects_more = (finding.affected_count, finding.stranded_count) > (incident.peak_count, stranded_count)
    if not summary or affects_more or (is_more_severe and not incident.peak_count):
        summary, stranded_count = finding.past_summary or mark.summary, finding.stranded_count
    if (severity, summary, stranded_count) == (
        incident.worst_severity,
        incident.worst_summary,
        incident.worst_stranded_count,
    ):
        return incident
    return replace(
        incident, worst_severity=severity, worst_summary=summary, worst_stranded_count=stranded_count
    )


def _with_trend_point(incident: Incident, now: float) -> Incident:
    trend = incident.trend
    if trend and (trend[-1][1] == incident.affected_count or now - trend[-1][0] < _TREND_STEP_SECONDS):
        return incident
    return replace(incident, trend=(*trend, (now, incident.affected_count))[-_MAX_TREND_POINTS:])


def _advance_pending(
    incident: Incident, finding: Finding | None, evaluation_context: EvaluationContext
) -> LifecycleStep:
    if finding is None:
        return LifecycleStep(None)
    if incident.inhibited_by or not any(mark.is_firing for mark in incident.marks.values()):
        return LifecycleStep(incident)
    fired_incident = replace(incident, state=IncidentState.FIRING, fired_at=evaluation_context.now)
    return LifecycleStep(
        fired_incident, (TimelineEntry(evaluation_context.now, TimelineKind.FIRING, incident.summary),)
    )


def _advance_open(
    incident: Incident, finding: Finding | None, evaluation_context: EvaluationContext, *, is_explaining: bool
) -> LifecycleStep:
    timeline_entries: list[TimelineEntry] = []
    now = evaluation_context.now
    if finding is not None and incident.state is IncidentState.RECOVERING:
        incident = replace(
            incident,
            state=IncidentState.FIRING,
            recovering_since=None,
            flap_times=append_flap_time(incident.flap_times, now),
        )
        timeline_entries.append(TimelineEntry(now, TimelineKind.RECURRED, incident.summary))
    elif finding is None and incident.state is IncidentState.FIRING:
        incident = replace(
            incident,
            state=IncidentState.RECOVERING,
            recovering_since=now,
            flap_times=append_flap_time(incident.flap_times, now),
            affected_count=0,
            recovers_at=None,
            summary=_describe_past(incident, evaluation_context),
        )
        incident = _with_trend_point(incident, now)
        timeline_entries.append(
            TimelineEntry(
                now,
                TimelineKind.RECOVERING,
                "No alert rule matches any more. If this continues, the incident resolves.",
            )
        )
    incident, flapping_entries = update_flapping(incident, now)
    timeline_entries += flapping_entries
    recovering_since = incident.recovering_since if finding is None else None
    if recovering_since is not None and now - recovering_since >= recover_seconds_of(
        incident, evaluation_context
    ) + (_LINGER_SECONDS if is_explaining else 0.0):
        # Report the worst state, not the last one, in which perhaps a single agent was still recovering.
        severity = incident.severity if incident.worst_severity is None else incident.worst_severity
        incident = replace(
            incident,
            state=IncidentState.RESOLVED,
            resolved_at=now,
            affected_count=0,
            severity=severity,
            summary=_describe_past(incident, evaluation_context),
        )
        timeline_entries.append(
            TimelineEntry(
                now,
                TimelineKind.RESOLVED,
                f"Resolved. Peak: {incident.peak_count} affected agent{'s' if incident.peak_count != 1 else ''}.",
            )
        )
    return LifecycleStep(incident, tuple(timeline_entries))


def _describe_past(incident: Incident, evaluation_context: EvaluationContext) -> str:
    """Return the summary of an incident that no rule matches any more: that of its peak.

    If no rule about agents fired, the title was about the instance, and still is.
    """
    summary = incident.worst_summary or incident.summary
    fired_kinds = {
        evaluation_context.rules[rule_name].kind
        for rule_name in incident.fired_rule_names
        if rule_name in evaluation_context.rules
    }
    is_about_instance = fired_kinds == {RuleKind.INSTANCE} and incident.peak_count
    is_named = incident.cause.name in summary
    return f"{incident.cause.name} was failing: {summary}" if is_about_instance and not is_named else summary


def next_change_at(incident: Incident, evaluation_context: EvaluationContext) -> float:
    """Return when time alone changes an incident that this evaluation left unchanged; infinite if never.

    That is while rules and findings stay the same. Every comparison with `now` above has its entry here.
    """
    if incident.state is IncidentState.RESOLVED:
        return math.inf
    times = [plan_notification(incident, evaluation_context).at]
    if incident.state is not IncidentState.RECOVERING:
        times += [
            _fires_at(rule_name, mark, evaluation_context)
            for rule_name, mark in incident.marks.items()
            if not mark.is_firing
        ]
    if not incident.notification_count:
        times.append(
            _first_notification_at(incident, evaluation_context.strongest_rule(incident))
            + _FIRST_NOTIFICATION_GRACE_SECONDS
        )
    if incident.trend and incident.trend[-1][1] != incident.affected_count:
        times.append(incident.trend[-1][0] + _TREND_STEP_SECONDS)
    if incident.flapping_since is not None and incident.flap_times:
        times.append(incident.flap_times[-1] + FLAP_SECONDS)
    if incident.recovering_since is not None:
        resolves_at = incident.recovering_since + recover_seconds_of(incident, evaluation_context)
        times += [
            incident.recovering_since + INHIBITION_GRACE_SECONDS,
            resolves_at,
            resolves_at + _LINGER_SECONDS,
        ]
    return min((at for at in times if at is not None and at >= evaluation_context.now), default=math.inf)


def _fires_at(rule_name: str, mark: RuleMark, evaluation_context: EvaluationContext) -> float:
    rule = evaluation_context.rules.get(rule_name, _DELETED_RULE)
    # The next poll counts, whenever it comes.
    return mark.since + rule.pending_seconds if _is_settled(mark, rule) else evaluation_context.now
