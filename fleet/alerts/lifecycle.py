"""The life of one incident: pending, firing, recovering, resolved, and when a message is due. Pure.

docs/alerts.md, "The life of an incident".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from fleet.alerts.inhibition import GRACE_SECONDS
from fleet.alerts.rules import Rule, RuleKind
from fleet.vocabulary.incidents import (
    Finding,
    TimelineEntry,
    Incident,
    IncidentState,
    RuleMark,
    NotificationKind,
    Severity,
    TimelineKind,
    is_console_cause,
)

#: So many turns within this time are flapping, and so long without one ends it.
FLAP_COUNT = 4
FLAP_SECONDS = 1800.0
#: A further message when so much more is harmed than the last one said.
_GROWTH_FACTOR = 1.5
_MIN_GROWTH = 5
#: Points of the trend, and the least seconds between two.
_TREND_POINTS = 60
_TREND_STEP_SECONDS = 10.0
#: A cause that is gone may leave agents behind that are on their way back: they are not a trouble of their own for so
#: long. The slowest way back that RFD 226 allows takes 13 minutes.
_LINGER_SECONDS = 900.0
#: The first message says how bad it was, also when the worst is over by then, for so long after it was due: one that a
#: silence held back for an hour says how it is.
_LATE_SECONDS = 60.0
#: The times of an incident whose rule was deleted meanwhile.
_NO_RULE = Rule("deleted", RuleKind.STRANDED, Severity.WARNING)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One look at a cluster."""

    now: float
    #: When the newest round concluded: rounds are told apart by it.
    round: float
    #: By name.
    rules: Mapping[str, Rule]

    def strongest_rule(self, incident: Incident) -> Rule:
        """The rule whose times count for an incident: of those that made it, the most severe."""
        names = [name for name, mark in incident.marks.items() if mark.is_firing] or list(incident.marks)
        rules = [self.rules[name] for name in names if name in self.rules]
        return max(rules, key=lambda rule: rule.severity, default=_NO_RULE)


@dataclass(frozen=True, slots=True)
class LifecycleStep:
    """What one look made of an incident: None when there is none any more."""

    incident: Incident | None
    timeline_entries: tuple[TimelineEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class NotificationPlan:
    """The next message about an incident: when, of which kind, and why then. `at` None: none is to come."""

    at: float | None
    kind: NotificationKind | None
    reason: str


def advance(incident: Incident, finding: Finding | None, evaluation: Evaluation, *, is_explaining: bool = False) -> LifecycleStep:
    """Take one look at an incident, with what was found at its cause.

    `explaining`: agents are harmed still for whom it stands.
    """
    if incident.state is IncidentState.RESOLVED:
        return LifecycleStep(incident)
    if finding is not None:
        incident = _with_measurements(_with_marks(incident, finding, evaluation), finding, evaluation)
    if incident.state is IncidentState.PENDING:
        return _advance_pending(incident, finding, evaluation)
    return _advance_open(incident, finding, evaluation, is_explaining=is_explaining)


def hold(incident: Incident, now: float) -> LifecycleStep:
    """Take a look without eyes: what is pending proves nothing, and what is quiet has to be quiet anew."""
    if incident.state is IncidentState.PENDING:
        return LifecycleStep(None)
    if incident.state is IncidentState.RECOVERING:
        return LifecycleStep(replace(incident, quiet_since=now))
    return LifecycleStep(incident)


def plan_notification(incident: Incident, evaluation: Evaluation) -> NotificationPlan:
    """The next message, as far as this look can tell."""
    if incident.state is IncidentState.RESOLVED:
        if incident.notices:
            return NotificationPlan(evaluation.now, NotificationKind.RESOLVED, "it is over")
        return NotificationPlan(None, None, "it was over before anything was sent")
    if hold_reason := _hold_reason(incident):
        # The end is sent all the same: some receivers keep an alert open until they hear of it.
        is_ending = incident.state is IncidentState.RECOVERING and incident.notices
        return _plan_resolution(incident, evaluation) if is_ending else NotificationPlan(None, None, hold_reason)
    notified_at = incident.notified_at
    if incident.flapping_since is not None and (notified_at is None or notified_at < incident.flapping_since):
        return NotificationPlan(incident.flapping_since, NotificationKind.FLAPPING, "it comes and goes")
    if incident.state is IncidentState.PENDING:
        return NotificationPlan(None, None, "it has not held for long enough to fire")
    if incident.state is IncidentState.RECOVERING:
        return _plan_resolution(incident, evaluation)
    return _plan_while_firing(incident, evaluation.strongest_rule(incident), evaluation.now)


def _hold_reason(incident: Incident) -> str:
    """Return why no notification but the end is sent, or nothing."""
    if incident.inhibited_by:
        if is_console_cause(incident.inhibited_by):
            return "the console cannot see the fleet"
        return f"{incident.inhibited_by} explains it"
    if incident.silenced_by:
        return f"it is silenced: {incident.silenced_by}"
    return "it is shown, and never sent by itself" if incident.severity is Severity.INFO else ""


def _plan_resolution(incident: Incident, evaluation: Evaluation) -> NotificationPlan:
    """Return the plan of an incident that is quiet now."""
    resolves_at = (incident.quiet_since or evaluation.now) + recover_seconds_of(incident, evaluation)
    kind = NotificationKind.RESOLVED if incident.notices else None
    return NotificationPlan(resolves_at if kind else None, kind, "it is resolved then, if it stays quiet")


def due_notification(incident: Incident, evaluation: Evaluation) -> NotificationKind | None:
    """The message to send now, if any."""
    next_plan = plan_notification(incident, evaluation)
    if incident.state is IncidentState.RECOVERING and next_plan.kind is NotificationKind.RESOLVED:
        return None
    return next_plan.kind if next_plan.at is not None and next_plan.at <= evaluation.now else None


def with_notification(incident: Incident, now: float) -> Incident:
    """The incident after a message about it."""
    return replace(
        incident,
        notified_at=now,
        notified_severity=incident.severity,
        notified_affected=incident.affected,
        notices=incident.notices + 1,
    )


def recover_seconds_of(incident: Incident, evaluation: Evaluation) -> float:
    """How long it has to be quiet to be resolved: as long as any rule that made it wants."""
    if incident.flapping_since is not None:
        return FLAP_SECONDS
    firing_rules = [evaluation.rules[name] for name, mark in incident.marks.items() if mark.is_firing and name in evaluation.rules]
    return max((rule.recover_seconds for rule in firing_rules), default=evaluation.strongest_rule(incident).recover_seconds)


def _plan_while_firing(incident: Incident, rule: Rule, now: float) -> NotificationPlan:
    notified_at = incident.notified_at
    if notified_at is None:
        first_at = _first_notification_at(incident, rule)
        has_firing_mark = any(mark.is_firing for mark in incident.marks.values()) or not incident.marks
        if not has_firing_mark and now >= first_at + _LATE_SECONDS:
            return NotificationPlan(None, None, "what fired is over, and what is left has not held for long enough")
        return NotificationPlan(
            first_at, NotificationKind.FIRING, f"the first message waits {rule.group_wait:g} s for what belongs to it"
        )
    if incident.severity > (incident.notified_severity or Severity.INFO):
        return NotificationPlan(notified_at, NotificationKind.WORSE, "it is worse than was said")
    if incident.acked_at is not None:
        return NotificationPlan(None, None, "it is acknowledged")
    growth_threshold = max(_GROWTH_FACTOR * incident.notified_affected, incident.notified_affected + _MIN_GROWTH)
    # About to be worse: that is one message, not two.
    is_about_to_worsen = any(mark.severity > incident.severity for mark in incident.marks.values() if not mark.is_firing)
    if incident.affected > growth_threshold and incident.flapping_since is None and not is_about_to_worsen:
        return NotificationPlan(notified_at + rule.group_interval, NotificationKind.UPDATE, "it harms far more than was said")
    return NotificationPlan(notified_at + rule.repeat_seconds, NotificationKind.REPEAT, "it is said again while it lasts")


def _first_notification_at(incident: Incident, rule: Rule) -> float:
    """When the first message is due: it waits for what belongs to it."""
    return max(incident.fired_at or 0.0, incident.opened_at + rule.group_wait)


def _with_marks(incident: Incident, finding: Finding, evaluation: Evaluation) -> Incident:
    marks = {}
    for signal in finding.signals:
        rule = evaluation.rules.get(signal.rule, _NO_RULE)
        previous_mark = incident.marks.get(signal.rule)
        if previous_mark is None:
            since, rounds, newest_round = evaluation.now, 1, evaluation.round
        elif _is_settled(previous_mark, rule):
            since, rounds, newest_round = previous_mark.since, previous_mark.round_count, previous_mark.last_round
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
    """Whether further rounds say nothing: who waits for the clock alone must not be written each round."""
    return mark.is_firing or mark.round_count >= rule.pending_rounds


def _with_measurements(incident: Incident, finding: Finding, evaluation: Evaluation) -> Incident:
    marks = incident.marks.values()
    counted_marks = [mark for mark in marks if mark.is_firing] or list(marks)
    worst_mark = max(counted_marks, key=lambda mark: (mark.severity, mark.count))
    after = _with_worst(incident, worst_mark, finding)
    severity, sentence = worst_mark.severity, worst_mark.sentence
    if _is_before_first_notification(after, evaluation) and after.worst_severity is not None and severity < after.worst_severity:
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


#: What `_measured` compares, in its order: most looks find the same, and a copy takes longer than all else.
_measurements_of = attrgetter("severity", "affected", "peak", "names", "heals_at", "stuck", "sentence", "labels")


def _is_before_first_notification(incident: Incident, evaluation: Evaluation) -> bool:
    """Whether nobody has heard of an incident yet, and is about to."""
    return not incident.notices and evaluation.now < _first_notification_at(incident, evaluation.strongest_rule(incident)) + _LATE_SECONDS


def _with_worst(incident: Incident, mark: RuleMark, finding: Finding) -> Incident:
    """Keep the worst severity it fired with, and how it was called when it harmed most.

    Agents strand after they were at risk, and their number stays the same: of two such looks the one with more stranded
    agents is the worse one.
    """
    severity, sentence, stranded_count = incident.worst_severity, incident.worst_sentence, incident.worst_stranded
    is_more_severe = mark.is_firing and not incident.inhibited_by and (severity is None or mark.severity > severity)
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
    return LifecycleStep(fired_incident, (TimelineEntry(evaluation.now, TimelineKind.FIRING, incident.sentence),))


def _advance_open(incident: Incident, finding: Finding | None, evaluation: Evaluation, *, is_explaining: bool) -> LifecycleStep:
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
            TimelineEntry(now, TimelineKind.RECOVERING, "Nothing is wrong any more; it has to stay so.")
        )
    incident, flapping_entries = _update_flapping(incident, now)
    timeline_entries += flapping_entries
    quiet_since = incident.quiet_since if finding is None else None
    if quiet_since is not None and now - quiet_since >= recover_seconds_of(incident, evaluation) + (
        _LINGER_SECONDS if is_explaining else 0.0
    ):
        # What it ended with, one agent on its way back, is not what it was.
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
        timeline_entries.append(TimelineEntry(now, TimelineKind.RESOLVED, f"It harmed {incident.peak} at most."))
    return LifecycleStep(incident, tuple(timeline_entries))


def _append_flip(flips: tuple[float, ...], now: float) -> tuple[float, ...]:
    return (*(at for at in flips if now - at < FLAP_SECONDS), now)


def _update_flapping(incident: Incident, now: float) -> tuple[Incident, list[TimelineEntry]]:
    recent_flips = [at for at in incident.flips if now - at < FLAP_SECONDS]
    if incident.flapping_since is None and len(recent_flips) >= FLAP_COUNT:
        text = f"It came and went {len(recent_flips)} times within {FLAP_SECONDS / 60:g} minutes."
        return replace(incident, flapping_since=now), [TimelineEntry(now, TimelineKind.FLAPPING, text)]
    if incident.flapping_since is not None and not recent_flips and incident.state is IncidentState.FIRING:
        return replace(incident, flapping_since=None), [
            TimelineEntry(now, TimelineKind.STEADY, "It has stopped flapping.")
        ]
    return incident, []


def next_change_at(incident: Incident, evaluation: Evaluation) -> float:
    """Return when the clock alone would change an incident that this look left as it was; infinite if it never does.

    Alone: while rules and findings stay the same. Whatever compares a time with `now` above is here.
    """
    if incident.state is IncidentState.RESOLVED:
        return math.inf
    times = [plan_notification(incident, evaluation).at]
    if incident.state is not IncidentState.RECOVERING:
        times += [_fires_at(name, mark, evaluation) for name, mark in incident.marks.items() if not mark.is_firing]
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
    # The next round counts, whenever it comes.
    return mark.since + rule.pending_seconds if _is_settled(mark, rule) else evaluation.now
