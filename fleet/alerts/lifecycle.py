"""The life cycle of one incident: pending, firing, recovering, resolved, and when a notification is due. Pure.

docs/reference/alerts.md, "Incident lifecycle".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from fleet.alerts.inhibition import GRACE_SECONDS
from fleet.alerts.notifications import format_duration
from fleet.alerts.rules import Rule, RuleKind
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

#: State changes within `FLAP_SECONDS` that make an incident flap; so many seconds without one end the flapping.
FLAP_COUNT = 4
FLAP_SECONDS = 1800.0
#: An update is sent when more agents are affected than the last notification said: by this factor and number.
_GROWTH_FACTOR = 1.5
_MIN_GROWTH = 5
#: Maximum number of points of the trend, and minimum seconds between two points.
_TREND_POINTS = 60
_TREND_STEP_SECONDS = 10.0
#: Seconds for which agents that still recover from a cause that is gone do not open an incident of their own. The
#: slowest recovery that RFD 226 allows takes 13 min.
_LINGER_SECONDS = 900.0
#: Seconds after its due time for which the first notification reports the worst state so far. A later one, for
#: example after a silence of an hour, reports the current state.
_LATE_SECONDS = 60.0
#: Stands in for a rule that was deleted while its incident is open.
_NO_RULE = Rule("deleted", RuleKind.STRANDED, Severity.WARNING)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation of a cluster."""

    now: float
    #: Time of the newest poll of the fleet; identifies the poll.
    round: float
    #: Rules by name.
    rules: Mapping[str, Rule]

    def strongest_rule(self, incident: Incident) -> Rule:
        """Return the rule whose intervals apply to an incident: the most severe one that fires."""
        names = [name for name, mark in incident.marks.items() if mark.is_firing] or list(incident.marks)
        rules = [self.rules[name] for name in names if name in self.rules]
        return max(rules, key=lambda rule: rule.severity, default=_NO_RULE)


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
    incident: Incident, finding: Finding | None, evaluation: Evaluation, *, is_explaining: bool = False
) -> LifecycleStep:
    """Advance an incident by one evaluation, with what the rules found at its cause.

    `is_explaining`: agents that this incident explains are still affected.
    """
    if incident.state is IncidentState.RESOLVED:
        return LifecycleStep(incident)
    if finding is not None:
        incident = _with_measurements(_with_marks(incident, finding, evaluation), finding, evaluation)
    if incident.state is IncidentState.PENDING:
        return _advance_pending(incident, finding, evaluation)
    return _advance_open(incident, finding, evaluation, is_explaining=is_explaining)


def hold(incident: Incident, now: float) -> LifecycleStep:
    """Advance an incident while Refloat is blind: pending ones are dropped, and recovery starts over."""
    if incident.state is IncidentState.PENDING:
        return LifecycleStep(None)
    if incident.state is IncidentState.RECOVERING:
        return LifecycleStep(replace(incident, quiet_since=now))
    return LifecycleStep(incident)


def plan_notification(incident: Incident, evaluation: Evaluation) -> NotificationPlan:
    """Return the next notification, as far as it is known at this evaluation."""
    if incident.state is IncidentState.RESOLVED:
        if incident.notices:
            return NotificationPlan(evaluation.now, NotificationKind.RESOLVED, "the incident is resolved")
        return NotificationPlan(None, None, "the incident resolved before anything was sent")
    if hold_reason := _hold_reason(incident):
        # The resolved notification is sent anyway: some receivers keep an alert open until they get one.
        is_ending = incident.state is IncidentState.RECOVERING and incident.notices
        return (
            _plan_resolution(incident, evaluation) if is_ending else NotificationPlan(None, None, hold_reason)
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
        return _plan_resolution(incident, evaluation)
    return _plan_while_firing(incident, evaluation.strongest_rule(incident), evaluation.now)


def _hold_reason(incident: Incident) -> str:
    """Return why only the resolved notification is sent; empty if all are sent."""
    if incident.inhibited_by:
        if is_console_cause(incident.inhibited_by):
            return "Refloat cannot see the fleet"
        return f"inhibited by {incident.inhibited_by}"
    if incident.silenced_by:
        return f"silenced: {incident.silenced_by}"
    return "incidents of severity info are sent in digests only" if incident.severity is Severity.INFO else ""


def _plan_resolution(incident: Incident, evaluation: Evaluation) -> NotificationPlan:
    """Return the plan of a recovering incident."""
    resolves_at = (incident.quiet_since or evaluation.now) + recover_seconds_of(incident, evaluation)
    kind = NotificationKind.RESOLVED if incident.notices else None
    return NotificationPlan(
        resolves_at if kind else None, kind, "the incident resolves unless a rule fires again"
    )


def due_notification(incident: Incident, evaluation: Evaluation) -> NotificationKind | None:
    """Return the kind of notification to send now, if any."""
    next_plan = plan_notification(incident, evaluation)
    if incident.state is IncidentState.RECOVERING and next_plan.kind is NotificationKind.RESOLVED:
        return None
    return next_plan.kind if next_plan.at is not None and next_plan.at <= evaluation.now else None


def with_notification(incident: Incident, now: float) -> Incident:
    """Return the incident after a notification about it."""
    return replace(
        incident,
        notified_at=now,
        notified_severity=incident.severity,
        notified_affected=incident.affected,
        notices=incident.notices + 1,
    )


def recover_seconds_of(incident: Incident, evaluation: Evaluation) -> float:
    """Return the seconds without findings until an incident resolves: the longest that any of its rules demands."""
    if incident.flapping_since is not None:
        return FLAP_SECONDS
    firing_rules = [
        evaluation.rules[name]
        for name, mark in incident.marks.items()
        if mark.is_firing and name in evaluation.rules
    ]
    return max(
        (rule.recover_seconds for rule in firing_rules),
        default=evaluation.strongest_rule(incident).recover_seconds,
    )


def _plan_while_firing(incident: Incident, rule: Rule, now: float) -> NotificationPlan:
    notified_at = incident.notified_at
    if notified_at is None:
        first_at = _first_notification_at(incident, rule)
        has_firing_mark = any(mark.is_firing for mark in incident.marks.values()) or not incident.marks
        if not has_firing_mark and now >= first_at + _LATE_SECONDS:
            return NotificationPlan(
                None,
                None,
                "the rule that fired no longer holds, and the others have not held long enough to fire",
            )
        return NotificationPlan(
            first_at, NotificationKind.FIRING, f"grouping wait of {format_duration(rule.group_wait)}"
        )
    if incident.severity > (incident.notified_severity or Severity.INFO):
        return NotificationPlan(notified_at, NotificationKind.WORSE, "the severity increased")
    if incident.acked_at is not None:
        return NotificationPlan(None, None, "the incident is acknowledged")
    growth_threshold = max(
        _GROWTH_FACTOR * incident.notified_affected, incident.notified_affected + _MIN_GROWTH
    )
    # The severity is about to increase: send one notification, not two.
    is_about_to_worsen = any(
        mark.severity > incident.severity for mark in incident.marks.values() if not mark.is_firing
    )
    if incident.affected > growth_threshold and incident.flapping_since is None and not is_about_to_worsen:
        return NotificationPlan(
            notified_at + rule.group_interval, NotificationKind.UPDATE, "many more agents are affected"
        )
    repeat = f"repeat every {format_duration(rule.repeat_seconds)}"
    return NotificationPlan(notified_at + rule.repeat_seconds, NotificationKind.REPEAT, repeat)


def _first_notification_at(incident: Incident, rule: Rule) -> float:
    """Return when the first notification is due, after the grouping wait."""
    return max(incident.fired_at or 0.0, incident.opened_at + rule.group_wait)


def _with_marks(incident: Incident, finding: Finding, evaluation: Evaluation) -> Incident:
    marks = {}
    for signal in finding.signals:
        rule = evaluation.rules.get(signal.rule, _NO_RULE)
        previous_mark = incident.marks.get(signal.rule)
        if previous_mark is None:
            since, rounds, newest_round = evaluation.now, 1, evaluation.round
        elif _is_settled(previous_mark, rule):
            since, rounds, newest_round = (
                previous_mark.since,
                previous_mark.round_count,
                previous_mark.last_round,
            )
        else:
            since, newest_round = previous_mark.since, max(previous_mark.last_round, evaluation.round)
            rounds = previous_mark.round_count + (evaluation.round > previous_mark.last_round)
        is_firing = rounds >= rule.pending_rounds and evaluation.now - since >= rule.pending_seconds
        is_firing = is_firing or (previous_mark is not None and previous_mark.is_firing)
        marks[signal.rule] = RuleMark(
            since,
            newest_round,
            rounds,
            signal.severity,
            signal.count,
            signal.sentence,
            is_firing,
            signal.is_label_scoped,
        )
    return incident if marks == incident.marks else replace(incident, marks=marks)


def _is_settled(mark: RuleMark, rule: Rule) -> bool:
    """Return whether further polls do not count, so that a mark that only waits for time is not written at each one."""
    return mark.is_firing or mark.round_count >= rule.pending_rounds


def _with_measurements(incident: Incident, finding: Finding, evaluation: Evaluation) -> Incident:
    marks = incident.marks.values()
    counted_marks = [mark for mark in marks if mark.is_firing] or list(marks)
    worst_mark = max(counted_marks, key=lambda mark: (mark.severity, mark.count))
    after = _with_worst(incident, worst_mark, finding)
    severity, sentence = worst_mark.severity, worst_mark.sentence
    if (
        _is_before_first_notification(after, evaluation)
        and after.worst_severity is not None
        and severity < after.worst_severity
    ):
        severity, sentence = after.worst_severity, after.worst_sentence
    measurements: dict[str, Any] = {
        "severity": severity,
        "affected": finding.affected,
        "peak": max(incident.peak, finding.affected),
        "names": finding.names or incident.names,
        "heals_at": finding.heals_at,
        "stuck": finding.stuck,
        "sentence": sentence,
        "labels": tuple(sorted(finding.labels.union(incident.labels))),
    }
    if _measurements_of(after) != tuple(measurements.values()):
        after = replace(after, **measurements)
    return _with_trend_point(after, evaluation.now)


#: The fields that `_with_measurements` compares, in its order, because copying an unchanged incident is the slowest
#: step.
_measurements_of = attrgetter(
    "severity", "affected", "peak", "names", "heals_at", "stuck", "sentence", "labels"
)


def _is_before_first_notification(incident: Incident, evaluation: Evaluation) -> bool:
    """Return whether the first notification of an incident is still to be sent."""
    return (
        not incident.notices
        and evaluation.now
        < _first_notification_at(incident, evaluation.strongest_rule(incident)) + _LATE_SECONDS
    )


def _with_worst(incident: Incident, mark: RuleMark, finding: Finding) -> Incident:
    """Keep the worst severity of an incident, and the sentence of its peak.

    Agents at risk become stranded while their total stays the same: with equal totals, the state with more stranded
    agents is the worse one.
    """
    severity, sentence, stranded_count = (
        incident.worst_severity,
        incident.worst_sentence,
        incident.worst_stranded,
    )
    is_more_severe = (
        mark.is_firing and not incident.inhibited_by and (severity is None or mark.severity > severity)
    )
    if is_more_severe:
        severity = mark.severity
    affects_more = (finding.affected, finding.stranded_count) > (incident.peak, stranded_count)
    if not sentence or affects_more or (is_more_severe and not incident.peak):
        sentence, stranded_count = finding.harm or mark.sentence, finding.stranded_count
    if (severity, sentence, stranded_count) == (
        incident.worst_severity,
        incident.worst_sentence,
        incident.worst_stranded,
    ):
        return incident
    return replace(incident, worst_severity=severity, worst_sentence=sentence, worst_stranded=stranded_count)


def _with_trend_point(incident: Incident, now: float) -> Incident:
    trend = incident.trend
    if trend and (trend[-1][1] == incident.affected or now - trend[-1][0] < _TREND_STEP_SECONDS):
        return incident
    return replace(incident, trend=(*trend, (now, incident.affected))[-_TREND_POINTS:])


def _advance_pending(incident: Incident, finding: Finding | None, evaluation: Evaluation) -> LifecycleStep:
    if finding is None:
        return LifecycleStep(None)
    if incident.inhibited_by or not any(mark.is_firing for mark in incident.marks.values()):
        return LifecycleStep(incident)
    fired_incident = replace(incident, state=IncidentState.FIRING, fired_at=evaluation.now)
    return LifecycleStep(
        fired_incident, (TimelineEntry(evaluation.now, TimelineKind.FIRING, incident.sentence),)
    )


def _advance_open(
    incident: Incident, finding: Finding | None, evaluation: Evaluation, *, is_explaining: bool
) -> LifecycleStep:
    timeline_entries: list[TimelineEntry] = []
    now = evaluation.now
    if finding is not None and incident.state is IncidentState.RECOVERING:
        incident = replace(
            incident, state=IncidentState.FIRING, quiet_since=None, flips=_append_flip(incident.flips, now)
        )
        timeline_entries.append(TimelineEntry(now, TimelineKind.BACK, incident.sentence))
    elif finding is None and incident.state is IncidentState.FIRING:
        incident = replace(
            incident,
            state=IncidentState.RECOVERING,
            quiet_since=now,
            flips=_append_flip(incident.flips, now),
            affected=0,
            heals_at=None,
            sentence=incident.worst_sentence or incident.sentence,
        )
        incident = _with_trend_point(incident, now)
        timeline_entries.append(
            TimelineEntry(
                now, TimelineKind.RECOVERING, "No rule holds any more. The incident resolves if it stays so."
            )
        )
    incident, flapping_entries = _update_flapping(incident, now)
    timeline_entries += flapping_entries
    quiet_since = incident.quiet_since if finding is None else None
    if quiet_since is not None and now - quiet_since >= recover_seconds_of(incident, evaluation) + (
        _LINGER_SECONDS if is_explaining else 0.0
    ):
        # Report the worst state, not the last one, in which perhaps a single agent was still recovering.
        severity = incident.severity if incident.worst_severity is None else incident.worst_severity
        sentence = incident.worst_sentence or incident.sentence
        incident = replace(
            incident,
            state=IncidentState.RESOLVED,
            resolved_at=now,
            affected=0,
            severity=severity,
            sentence=sentence,
        )
        timeline_entries.append(
            TimelineEntry(
                now,
                TimelineKind.RESOLVED,
                f"Resolved. Peak: {incident.peak} affected agent{'s' if incident.peak != 1 else ''}.",
            )
        )
    return LifecycleStep(incident, tuple(timeline_entries))


def _append_flip(flips: tuple[float, ...], now: float) -> tuple[float, ...]:
    return (*(at for at in flips if now - at < FLAP_SECONDS), now)


def _update_flapping(incident: Incident, now: float) -> tuple[Incident, list[TimelineEntry]]:
    recent_flips = [at for at in incident.flips if now - at < FLAP_SECONDS]
    if incident.flapping_since is None and len(recent_flips) >= FLAP_COUNT:
        text = f"The incident changed state {len(recent_flips)} times within {format_duration(FLAP_SECONDS)}."
        return replace(incident, flapping_since=now), [TimelineEntry(now, TimelineKind.FLAPPING, text)]
    if incident.flapping_since is not None and not recent_flips and incident.state is IncidentState.FIRING:
        return replace(incident, flapping_since=None), [
            TimelineEntry(now, TimelineKind.STEADY, "The incident is stable again.")
        ]
    return incident, []


def next_change_at(incident: Incident, evaluation: Evaluation) -> float:
    """Return when time alone changes an incident that this evaluation left unchanged; infinite if never.

    That is while rules and findings stay the same. Every comparison with `now` above has its entry here.
    """
    if incident.state is IncidentState.RESOLVED:
        return math.inf
    times = [plan_notification(incident, evaluation).at]
    if incident.state is not IncidentState.RECOVERING:
        times += [
            _fires_at(name, mark, evaluation) for name, mark in incident.marks.items() if not mark.is_firing
        ]
    if not incident.notices:
        times.append(_first_notification_at(incident, evaluation.strongest_rule(incident)) + _LATE_SECONDS)
    if incident.trend and incident.trend[-1][1] != incident.affected:
        times.append(incident.trend[-1][0] + _TREND_STEP_SECONDS)
    if incident.flapping_since is not None and incident.flips:
        times.append(incident.flips[-1] + FLAP_SECONDS)
    if incident.quiet_since is not None:
        resolves_at = incident.quiet_since + recover_seconds_of(incident, evaluation)
        times += [incident.quiet_since + GRACE_SECONDS, resolves_at, resolves_at + _LINGER_SECONDS]
    return min((at for at in times if at is not None and at >= evaluation.now), default=math.inf)


def _fires_at(name: str, mark: RuleMark, evaluation: Evaluation) -> float:
    rule = evaluation.rules.get(name, _NO_RULE)
    # The next poll counts, whenever it comes.
    return mark.since + rule.pending_seconds if _is_settled(mark, rule) else evaluation.now
