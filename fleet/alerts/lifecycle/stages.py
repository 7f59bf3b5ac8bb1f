"""The stages of one incident: pending, firing, recovering, resolved. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fleet.alerts.flapping import FLAP_SECONDS, append_flap_time, update_flapping
from fleet.alerts.inhibition import INHIBITION_GRACE_SECONDS
from fleet.alerts.lifecycle.context import DELETED_RULE, EvaluationContext, is_settled
from fleet.alerts.lifecycle.measurements import (
    TREND_STEP_SECONDS,
    affected_until_of,
    with_marks,
    with_measurements,
    with_trend_point,
)
from fleet.alerts.lifecycle.notification_plan import (
    FIRST_NOTIFICATION_GRACE_SECONDS,
    first_notification_at,
    plan_notification,
    recover_seconds_of,
)
from fleet.alerts.rules import RuleKind
from fleet.vocabulary.incidents import (
    Finding,
    Incident,
    IncidentState,
    RuleMark,
    Severity,
    TimelineEntry,
    TimelineKind,
)

#: Seconds for which agents that still recover from a cause that is gone do not open an incident of their own. The
#: slowest recovery that RFD 226 allows takes 13 min.
_LINGER_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class LifecycleStep:
    """The result of one evaluation for an incident; None if the incident is dropped."""

    incident: Incident | None
    timeline_entries: tuple[TimelineEntry, ...] = ()


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
    previous_severity = incident.severity
    if finding is not None:
        incident = with_measurements(
            with_marks(incident, finding, evaluation_context), finding, evaluation_context
        )
    if incident.state is IncidentState.PENDING:
        return _advance_pending(incident, finding, evaluation_context)
    severity_entries = _describe_severity_change(incident, previous_severity, evaluation_context.now)
    step = _advance_open(incident, finding, evaluation_context, is_explaining=is_explaining)
    return replace(step, timeline_entries=severity_entries + step.timeline_entries)


def _describe_severity_change(
    incident: Incident, previous_severity: Severity, now: float
) -> tuple[TimelineEntry, ...]:
    """Return the timeline entry of a new severity; none while the incident is flapping."""
    if incident.severity is previous_severity or incident.flapping_since is not None:
        return ()
    verb = "increased" if incident.severity > previous_severity else "decreased"
    text = (
        f"The severity {verb} from {previous_severity.slug} to {incident.severity.slug}: {incident.summary}"
    )
    return (TimelineEntry(now, TimelineKind.SEVERITY, text),)


def advance_while_blind(incident: Incident, now: float) -> LifecycleStep:
    """Advance an incident while Refloat is blind: pending ones are dropped, and recovery starts over."""
    if incident.state is IncidentState.PENDING:
        return LifecycleStep(None)
    if incident.state is IncidentState.RECOVERING:
        return LifecycleStep(replace(incident, recovering_since=now))
    return LifecycleStep(incident)


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
    if not incident.is_notified:
        times.append(
            first_notification_at(incident, evaluation_context.strongest_rule(incident))
            + FIRST_NOTIFICATION_GRACE_SECONDS
        )
    if incident.trend and incident.trend[-1][1] != incident.affected_count:
        times.append(incident.trend[-1][0] + TREND_STEP_SECONDS)
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
            affected_until=affected_until_of(incident, 0, now),
            recovers_at=None,
            summary=_describe_past(incident, evaluation_context),
        )
        incident = with_trend_point(incident, now)
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


def _fires_at(rule_name: str, mark: RuleMark, evaluation_context: EvaluationContext) -> float:
    rule = evaluation_context.rules.get(rule_name, DELETED_RULE)
    # The next poll counts, whenever it comes.
    return mark.since + rule.pending_seconds if is_settled(mark, rule) else evaluation_context.now
