"""What an evaluation measures of an incident: marks of its rules, severity, numbers, trend. Pure."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Any

from fleet.alerts.lifecycle.context import DELETED_RULE, EvaluationContext, is_settled
from fleet.alerts.lifecycle.notification_plan import is_before_first_notification
from fleet.vocabulary.incidents import Finding, Incident, RuleMark

#: Maximum number of points of the trend, and minimum seconds between two points.
_MAX_TREND_POINTS = 60
TREND_STEP_SECONDS = 10.0


def with_marks(incident: Incident, finding: Finding, evaluation_context: EvaluationContext) -> Incident:
    marks = {}
    for signal in finding.signals:
        rule = evaluation_context.rules.get(signal.rule_name, DELETED_RULE)
        previous_mark = incident.marks.get(signal.rule_name)
        if previous_mark is None:
            since, round_count, last_round_at = evaluation_context.now, 1, evaluation_context.newest_round_at
        elif is_settled(previous_mark, rule):
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


def with_measurements(
    incident: Incident, finding: Finding, evaluation_context: EvaluationContext
) -> Incident:
    marks = incident.marks.values()
    counted_marks = [mark for mark in marks if mark.is_firing] or list(marks)
    worst_mark = max(counted_marks, key=lambda mark: (mark.severity, mark.count))
    after = _with_worst_state(incident, worst_mark, finding)
    severity, summary = worst_mark.severity, worst_mark.summary
    if (
        is_before_first_notification(after, evaluation_context)
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
        "affected_until": affected_until_of(incident, finding.affected_count, evaluation_context.now),
        "is_stuck": finding.is_stuck,
        "is_cause_recovering": finding.is_cause_recovering,
        "summary": summary,
        "agent_sets": tuple(sorted(finding.agent_sets.union(incident.agent_sets))),
    }
    if _measurements_of(after) != tuple(measurements.values()):
        after = replace(after, **measurements)
    return with_trend_point(after, evaluation_context.now)


#: The fields that `with_measurements` compares, in its order, because copying an unchanged incident is the slowest
#: step.
_measurements_of = attrgetter(
    *("severity", "affected_count", "peak_count", "agent_names", "recovers_at", "affected_until"),
    *("is_stuck", "is_cause_recovering", "summary", "agent_sets"),
)


def affected_until_of(incident: Incident, affected_count: int, now: float) -> float | None:
    """Return when the last agents had recovered, given the number of affected agents now; None if not yet."""
    if affected_count:
        return None
    return now if incident.affected_count else incident.affected_until


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


def with_trend_point(incident: Incident, now: float) -> Incident:
    trend = incident.trend
    if trend and (trend[-1][1] == incident.affected_count or now - trend[-1][0] < TREND_STEP_SECONDS):
        return incident
    return replace(incident, trend=(*trend, (now, incident.affected_count))[-_MAX_TREND_POINTS:])
