"""The life of one incident: pending, firing, recovering, resolved, and when a message is due. Pure.

docs/alerts.md, "The life of an incident".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from fleet.alerts.inhibition import GRACE
from fleet.alerts.rules import Rule, RuleKind
from fleet.vocabulary.incidents import (
    Finding,
    Happening,
    Incident,
    IncidentState,
    Mark,
    NoticeKind,
    Severity,
    TimelineKind,
    is_of_console,
)

#: So many turns within this time are flapping, and so long without one ends it.
FLAPS = 4
FLAP_SECONDS = 1800.0
#: A further message when so much more is harmed than the last one said.
_GROWN_BY = 1.5
_GROWN_AT_LEAST = 5
#: Points of the trend, and the least seconds between two.
_TREND = 60
_TREND_STEP = 10.0
#: A cause that is gone may leave agents behind that are on their way back: they are not a trouble of their own for so
#: long. The slowest way back that RFD 226 allows takes 13 minutes.
_LINGER = 900.0
#: The first message says how bad it was, also when the worst is over by then, for so long after it was due: one that a
#: silence held back for an hour says how it is.
_LATE = 60.0
#: The times of an incident whose rule was deleted meanwhile.
_NO_RULE = Rule("deleted", RuleKind.STRANDED, Severity.WARNING)


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a cluster."""

    now: float
    #: When the newest round concluded: rounds are told apart by it.
    round: float
    #: By name.
    rules: Mapping[str, Rule]

    def strongest(self, incident: Incident) -> Rule:
        """The rule whose times count for an incident: of those that made it, the most severe."""
        names = [name for name, mark in incident.marks.items() if mark.ripe] or list(incident.marks)
        known = [self.rules[name] for name in names if name in self.rules]
        return max(known, key=lambda rule: rule.severity, default=_NO_RULE)


@dataclass(frozen=True, slots=True)
class Step:
    """What one look made of an incident: None when there is none any more."""

    incident: Incident | None
    happened: tuple[Happening, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The next message about an incident: when, of which kind, and why then. `at` None: none is to come."""

    at: float | None
    kind: NoticeKind | None
    because: str


def advance(incident: Incident, finding: Finding | None, look: Look, *, explaining: bool = False) -> Step:
    """Take one look at an incident, with what was found at its cause.

    `explaining`: agents are harmed still for whom it stands.
    """
    if incident.state is IncidentState.RESOLVED:
        return Step(incident)
    if finding is not None:
        incident = _measured(_marked(incident, finding, look), finding, look)
    if incident.state is IncidentState.PENDING:
        return _pending(incident, finding, look)
    return _open(incident, finding, look, explaining=explaining)


def hold(incident: Incident, now: float) -> Step:
    """Take a look without eyes: what is pending proves nothing, and what is quiet has to be quiet anew."""
    if incident.state is IncidentState.PENDING:
        return Step(None)
    if incident.state is IncidentState.RECOVERING:
        return Step(replace(incident, quiet_since=now))
    return Step(incident)


def plan(incident: Incident, look: Look) -> Plan:
    """The next message, as far as this look can tell."""
    if incident.state is IncidentState.RESOLVED:
        if incident.notices:
            return Plan(look.now, NoticeKind.RESOLVED, "it is over")
        return Plan(None, None, "it was over before anything was sent")
    if held := _held_back(incident):
        # The end is sent all the same: some receivers keep an alert open until they hear of it.
        ending = incident.state is IncidentState.RECOVERING and incident.notices
        return _end_of(incident, look) if ending else Plan(None, None, held)
    told_at = incident.notified_at
    if incident.flapping_since is not None and (told_at is None or told_at < incident.flapping_since):
        return Plan(incident.flapping_since, NoticeKind.FLAPPING, "it comes and goes")
    if incident.state is IncidentState.PENDING:
        return Plan(None, None, "it has not held for long enough to fire")
    if incident.state is IncidentState.RECOVERING:
        return _end_of(incident, look)
    return _while_firing(incident, look.strongest(incident), look.now)


def _held_back(incident: Incident) -> str:
    """Return why no notification but the end is sent, or nothing."""
    if incident.inhibited_by:
        if is_of_console(incident.inhibited_by):
            return "the console cannot see the fleet"
        return f"{incident.inhibited_by} explains it"
    if incident.silenced_by:
        return f"it is silenced: {incident.silenced_by}"
    return "it is shown, and never sent by itself" if incident.severity is Severity.INFO else ""


def _end_of(incident: Incident, look: Look) -> Plan:
    """Return the plan of an incident that is quiet now."""
    over = (incident.quiet_since or look.now) + recover_seconds(incident, look)
    kind = NoticeKind.RESOLVED if incident.notices else None
    return Plan(over if kind else None, kind, "it is resolved then, if it stays quiet")


def due(incident: Incident, look: Look) -> NoticeKind | None:
    """The message to send now, if any."""
    planned = plan(incident, look)
    if incident.state is IncidentState.RECOVERING and planned.kind is NoticeKind.RESOLVED:
        return None
    return planned.kind if planned.at is not None and planned.at <= look.now else None


def noticed(incident: Incident, now: float) -> Incident:
    """The incident after a message about it."""
    return replace(
        incident,
        notified_at=now,
        notified_severity=incident.severity,
        notified_affected=incident.affected,
        notices=incident.notices + 1,
    )


def recover_seconds(incident: Incident, look: Look) -> float:
    """How long it has to be quiet to be resolved: as long as any rule that made it wants."""
    if incident.flapping_since is not None:
        return FLAP_SECONDS
    known = [look.rules[name] for name, mark in incident.marks.items() if mark.ripe and name in look.rules]
    return max((rule.recover_seconds for rule in known), default=look.strongest(incident).recover_seconds)


def _while_firing(incident: Incident, rule: Rule, now: float) -> Plan:
    told_at = incident.notified_at
    if told_at is None:
        first = _first_at(incident, rule)
        ripe = any(mark.ripe for mark in incident.marks.values()) or not incident.marks
        if not ripe and now >= first + _LATE:
            return Plan(None, None, "what fired is over, and what is left has not held for long enough")
        return Plan(
            first, NoticeKind.FIRING, f"the first message waits {rule.group_wait:g} s for what belongs to it"
        )
    if incident.severity > (incident.notified_severity or Severity.INFO):
        return Plan(told_at, NoticeKind.WORSE, "it is worse than was said")
    if incident.acked_at is not None:
        return Plan(None, None, "it is acknowledged")
    grown = max(_GROWN_BY * incident.notified_affected, incident.notified_affected + _GROWN_AT_LEAST)
    # About to be worse: that is one message, not two.
    ripening = any(mark.severity > incident.severity for mark in incident.marks.values() if not mark.ripe)
    if incident.affected > grown and incident.flapping_since is None and not ripening:
        return Plan(told_at + rule.group_interval, NoticeKind.UPDATE, "it harms far more than was said")
    return Plan(told_at + rule.repeat_seconds, NoticeKind.REPEAT, "it is said again while it lasts")


def _first_at(incident: Incident, rule: Rule) -> float:
    """When the first message is due: it waits for what belongs to it."""
    return max(incident.fired_at or 0.0, incident.opened_at + rule.group_wait)


def _marked(incident: Incident, finding: Finding, look: Look) -> Incident:
    marks = {}
    for signal in finding.signals:
        rule = look.rules.get(signal.rule, _NO_RULE)
        before = incident.marks.get(signal.rule)
        if before is None:
            since, rounds, newest = look.now, 1, look.round
        elif _counts_no_more(before, rule):
            since, rounds, newest = before.since, before.rounds, before.round
        else:
            since, newest = before.since, max(before.round, look.round)
            rounds = before.rounds + (look.round > before.round)
        ripe = rounds >= rule.pending_rounds and look.now - since >= rule.pending_seconds
        ripe = ripe or (before is not None and before.ripe)
        marks[signal.rule] = Mark(
            since,
            newest,
            rounds,
            signal.severity,
            signal.count,
            signal.sentence,
            ripe,
            signal.labelled,
        )
    return incident if marks == incident.marks else replace(incident, marks=marks)


def _counts_no_more(mark: Mark, rule: Rule) -> bool:
    """Whether further rounds say nothing: who waits for the clock alone must not be written each round."""
    return mark.ripe or mark.rounds >= rule.pending_rounds


def _measured(incident: Incident, finding: Finding, look: Look) -> Incident:
    marks = incident.marks.values()
    counting = [mark for mark in marks if mark.ripe] or list(marks)
    worst = max(counting, key=lambda mark: (mark.severity, mark.count))
    after = _worsened(incident, worst, finding)
    severity, sentence = worst.severity, worst.sentence
    if _is_untold(after, look) and after.worst_severity is not None and severity < after.worst_severity:
        severity, sentence = after.worst_severity, after.worst_sentence
    measured: dict[str, Any] = {
        "severity": severity,
        "affected": finding.affected,
        "peak": max(incident.peak, finding.affected),
        "names": finding.names or incident.names,
        "heals_at": finding.heals_at,
        "stuck": finding.stuck,
        "sentence": sentence,
        "labels": tuple(sorted(finding.labels.union(incident.labels))),
    }
    if _measured_of(after) != tuple(measured.values()):
        after = replace(after, **measured)
    return _traced(after, look.now)


#: What `_measured` compares, in its order: most looks find the same, and a copy takes longer than all else.
_measured_of = attrgetter("severity", "affected", "peak", "names", "heals_at", "stuck", "sentence", "labels")


def _is_untold(incident: Incident, look: Look) -> bool:
    """Whether nobody has heard of an incident yet, and is about to."""
    return not incident.notices and look.now < _first_at(incident, look.strongest(incident)) + _LATE


def _worsened(incident: Incident, mark: Mark, finding: Finding) -> Incident:
    """Keep the worst severity it fired with, and how it was called when it harmed most.

    Agents strand after they were at risk, and their number stays the same: of two such looks the one with more stranded
    agents is the worse one.
    """
    severity, sentence, stranded = incident.worst_severity, incident.worst_sentence, incident.worst_stranded
    rises = mark.ripe and not incident.inhibited_by and (severity is None or mark.severity > severity)
    if rises:
        severity = mark.severity
    harms_more = (finding.affected, finding.stranded) > (incident.peak, stranded)
    if not sentence or harms_more or (rises and not incident.peak):
        sentence, stranded = finding.harm or mark.sentence, finding.stranded
    if (severity, sentence, stranded) == (
        incident.worst_severity,
        incident.worst_sentence,
        incident.worst_stranded,
    ):
        return incident
    return replace(incident, worst_severity=severity, worst_sentence=sentence, worst_stranded=stranded)


def _traced(incident: Incident, now: float) -> Incident:
    trend = incident.trend
    if trend and (trend[-1][1] == incident.affected or now - trend[-1][0] < _TREND_STEP):
        return incident
    return replace(incident, trend=(*trend, (now, incident.affected))[-_TREND:])


def _pending(incident: Incident, finding: Finding | None, look: Look) -> Step:
    if finding is None:
        return Step(None)
    if incident.inhibited_by or not any(mark.ripe for mark in incident.marks.values()):
        return Step(incident)
    fired = replace(incident, state=IncidentState.FIRING, fired_at=look.now)
    return Step(fired, (Happening(look.now, TimelineKind.FIRING, incident.sentence),))


def _open(incident: Incident, finding: Finding | None, look: Look, *, explaining: bool) -> Step:
    happened: list[Happening] = []
    now = look.now
    if finding is not None and incident.state is IncidentState.RECOVERING:
        incident = replace(
            incident, state=IncidentState.FIRING, quiet_since=None, flips=_flips(incident.flips, now)
        )
        happened.append(Happening(now, TimelineKind.BACK, incident.sentence))
    elif finding is None and incident.state is IncidentState.FIRING:
        incident = replace(
            incident,
            state=IncidentState.RECOVERING,
            quiet_since=now,
            flips=_flips(incident.flips, now),
            affected=0,
            heals_at=None,
            sentence=incident.worst_sentence or incident.sentence,
        )
        incident = _traced(incident, now)
        happened.append(
            Happening(now, TimelineKind.RECOVERING, "Nothing is wrong any more; it has to stay so.")
        )
    incident, told = _flapping(incident, now)
    happened += told
    quiet = incident.quiet_since if finding is None else None
    if quiet is not None and now - quiet >= recover_seconds(incident, look) + (
        _LINGER if explaining else 0.0
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
        happened.append(Happening(now, TimelineKind.RESOLVED, f"It harmed {incident.peak} at most."))
    return Step(incident, tuple(happened))


def _flips(flips: tuple[float, ...], now: float) -> tuple[float, ...]:
    return (*(at for at in flips if now - at < FLAP_SECONDS), now)


def _flapping(incident: Incident, now: float) -> tuple[Incident, list[Happening]]:
    recent = [at for at in incident.flips if now - at < FLAP_SECONDS]
    if incident.flapping_since is None and len(recent) >= FLAPS:
        said = f"It came and went {len(recent)} times within {FLAP_SECONDS / 60:g} minutes."
        return replace(incident, flapping_since=now), [Happening(now, TimelineKind.FLAPPING, said)]
    if incident.flapping_since is not None and not recent and incident.state is IncidentState.FIRING:
        return replace(incident, flapping_since=None), [
            Happening(now, TimelineKind.STEADY, "It has stopped flapping.")
        ]
    return incident, []


def changes_at(incident: Incident, look: Look) -> float:
    """Return when the clock alone would change an incident that this look left as it was; infinite if it never does.

    Alone: while rules and findings stay the same. Whatever compares a time with `now` above is here.
    """
    if incident.state is IncidentState.RESOLVED:
        return math.inf
    times = [plan(incident, look).at]
    if incident.state is not IncidentState.RECOVERING:
        times += [_ripens_at(name, mark, look) for name, mark in incident.marks.items() if not mark.ripe]
    if not incident.notices:
        times.append(_first_at(incident, look.strongest(incident)) + _LATE)
    if incident.trend and incident.trend[-1][1] != incident.affected:
        times.append(incident.trend[-1][0] + _TREND_STEP)
    if incident.flapping_since is not None and incident.flips:
        times.append(incident.flips[-1] + FLAP_SECONDS)
    if incident.quiet_since is not None:
        over = incident.quiet_since + recover_seconds(incident, look)
        times += [incident.quiet_since + GRACE, over, over + _LINGER]
    return min((at for at in times if at is not None and at >= look.now), default=math.inf)


def _ripens_at(name: str, mark: Mark, look: Look) -> float:
    rule = look.rules.get(name, _NO_RULE)
    # The next round counts, whenever it comes.
    return mark.since + rule.pending_seconds if _counts_no_more(mark, rule) else look.now
