"""One look at a cluster: what becomes of its incidents, and which messages are due. Pure.

docs/alerts.md, "One look".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleet.alerts.facts import Facts
from fleet.alerts.findings import evaluate_rules
from fleet.alerts.inhibition import JOINT_KINDS, inhibitor_of, select_representatives
from fleet.alerts.lifecycle import FLAP_SECONDS, Evaluation, advance, due_notification, hold, with_notification
from fleet.alerts.rules import Rule
from fleet.alerts.silences import Silence, find_silence_name
from fleet.vocabulary.incidents import (
    CauseKind,
    Finding,
    TimelineEntry,
    Incident,
    IncidentState,
    Notification,
    TimelineKind,
)


@dataclass(slots=True)
class EvaluationOutcome:
    """What one look changed."""

    #: Every incident that is not resolved, after the look, by key.
    incidents: dict[str, Incident] = field(default_factory=dict)
    #: Those that are new or are not what they were, resolved ones too.
    changed_incidents: list[Incident] = field(default_factory=list)
    #: Those that never fired and are no more.
    dropped_incidents: list[Incident] = field(default_factory=list)
    timeline_entries: list[tuple[Incident, TimelineEntry]] = field(default_factory=list)
    notifications: list[Notification] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PreviousIncident:
    """What is known of a cause whose last incident is over."""

    generation: int
    flips: tuple[float, ...] = ()


def evaluate(
    incidents: Mapping[str, Incident],
    facts: Facts,
    rules: Sequence[Rule],
    active_silences: Sequence[Silence],
    find_previous: Callable[[str], PreviousIncident | None],
) -> EvaluationOutcome:
    """Take one look. `past` knows the last incident of a cause, by its key.

    1. Find what the rules find, by cause. 2. Open an incident for each cause that has none. 3. Ask which stronger
    trouble explains each, and which silence covers it. 4. Advance each. 5. Send what is due.
    """
    now = facts.now
    evaluation = Evaluation(now, facts.as_of or 0.0, {rule.name: rule for rule in rules})
    findings = evaluate_rules(facts, rules)
    before = {**incidents}
    for key, finding in findings.items():
        if key not in before:
            before[key] = _open_incident(facts.cluster, finding, find_previous(key), now)
        elif before[key].state is IncidentState.RECOVERING and finding.began_at is not None:
            # It was well meanwhile: what it suffers from now began later.
            before[key] = replace(before[key], began_at=finding.began_at)
    outcome = EvaluationOutcome()
    candidates = select_representatives(before.values())
    members = _members_by_key(candidates, facts)
    inhibitors = {
        key: inhibitor_of(subject, findings.get(key), candidates, members, now)
        for key, subject in (before.items() if candidates else ())
    }
    explaining_keys = frozenset(
        inhibitors[key]
        for key, subject in findings.items()
        # Who was stranded before it came has been stranded by something else.
        if subject.cause.kind is CauseKind.AGENTS
        and inhibitors.get(key)
        and before[key].opened_at >= before[inhibitors[key]].opened_at
    )
    context = _EvaluationContext(evaluation, inhibitors, explaining_keys, active_silences, is_fresh=facts.fresh)
    for key, incident in before.items():
        _advance_incident(incident, findings.get(key), context, outcome, is_new=key not in incidents)
    return outcome


@dataclass(frozen=True, slots=True)
class _EvaluationContext:
    """What is the same for all incidents of one look."""

    evaluation: Evaluation
    #: What explains each incident, by its key, and the keys of all that explain agents.
    inhibitors: Mapping[str, str]
    explaining_keys: frozenset[str]
    active_silences: Sequence[Silence]
    is_fresh: bool


def _advance_incident(
    incident: Incident, finding: Finding | None, context: _EvaluationContext, outcome: EvaluationOutcome, *, is_new: bool
) -> None:
    evaluation = context.evaluation
    current = _with_inhibition(incident, context)
    is_blind = not context.is_fresh and incident.cause.kind is not CauseKind.CONSOLE
    if is_blind:
        step = hold(current, evaluation.now)
    else:
        step = advance(current, finding, evaluation, is_explaining=incident.key in context.explaining_keys)
    after = step.incident
    if after is None:
        if not is_new:
            outcome.dropped_incidents.append(incident)
        return
    kind = None if is_blind else due_notification(after, evaluation)
    if kind is not None:
        after = with_notification(after, evaluation.now)
        outcome.notifications.append(Notification(kind, after, evaluation.now, after.notices))
        text = f"A message goes out: {kind.value}."
        outcome.timeline_entries.append((after, TimelineEntry(evaluation.now, TimelineKind.NOTICE, text)))
    outcome.timeline_entries += [(after, entry) for entry in step.timeline_entries]
    if is_new or after != incident:
        outcome.changed_incidents.append(after)
    if after.state is not IncidentState.RESOLVED:
        outcome.incidents[after.key] = after


def _with_inhibition(incident: Incident, context: _EvaluationContext) -> Incident:
    """Return the incident with what explains it and what silences it now."""
    inhibited_by = context.inhibitors.get(incident.key, "")
    silenced_by = find_silence_name(incident, context.active_silences)
    # A copy of a thousand incidents takes longer than all that is decided about them.
    if (inhibited_by, silenced_by) == (incident.inhibited_by, incident.silenced_by):
        return incident
    updated_incident = replace(incident, inhibited_by=inhibited_by, silenced_by=silenced_by)
    if updated_incident.state is IncidentState.FIRING and updated_incident.inhibited_by and not updated_incident.notices and updated_incident.fired_at:
        # Nobody heard of it: it waits until it stands for itself.
        return replace(updated_incident, state=IncidentState.PENDING, fired_at=None, worst_severity=None)
    return updated_incident


def _members_by_key(candidates: Iterable[Incident], facts: Facts) -> Mapping[str, frozenset[str]]:
    """By the key of a group or region with an open incident, whom it stands for: a region also for its groups."""
    joint_keys = {incident.key for incident in candidates if incident.cause.kind in JOINT_KINDS}
    keys = {cause.key: frozenset(keys) for cause, keys in facts.members_by_cause.items()}
    return {
        key: keys[key] | {other_key for other_key, other_members in keys.items() if other_key != key and other_members <= keys[key]}
        for key in joint_keys & keys.keys()
    }


def _open_incident(cluster: str, finding: Finding, previous: PreviousIncident | None, now: float) -> Incident:
    flips = () if previous is None else tuple(at for at in previous.flips if now - at < FLAP_SECONDS)
    return Incident(
        cluster=cluster,
        cause=finding.cause,
        generation=1 if previous is None else previous.generation + 1,
        state=IncidentState.PENDING,
        opened_at=now,
        began_at=finding.began_at,
        # Opening again is a turn, too: slow flapping is flapping.
        flips=(*flips, now) if flips else (),
    )
