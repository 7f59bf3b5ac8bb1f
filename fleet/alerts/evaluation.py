"""One evaluation of a cluster: the new state of its incidents, and the notifications that are due. Pure.

docs/reference/alerts.md, "Evaluations".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from fleet.alerts.facts import ClusterFacts
from fleet.alerts.findings import evaluate_rules
from fleet.alerts.flapping import FLAP_SECONDS
from fleet.alerts.inhibition import JOINT_KINDS, inhibitor_of, select_representatives
from fleet.alerts.lifecycle.context import EvaluationContext
from fleet.alerts.lifecycle.notification_plan import find_due_notification, with_notification
from fleet.alerts.lifecycle.stages import advance, advance_while_blind
from fleet.alerts.rules import Rule
from fleet.alerts.silences import Silence, find_silence
from fleet.vocabulary.incidents import (
    CauseKind,
    Finding,
    Incident,
    IncidentState,
    Notification,
    NotificationKind,
    TimelineEntry,
    TimelineKind,
)


@dataclass(slots=True)
class EvaluationOutcome:
    """The result of one evaluation."""

    #: Unresolved incidents after the evaluation, by key.
    incidents: dict[str, Incident] = field(default_factory=dict)
    #: New and changed incidents, including resolved ones.
    changed_incidents: list[Incident] = field(default_factory=list)
    #: Incidents that ended without firing.
    dropped_incidents: list[Incident] = field(default_factory=list)
    timeline_entries: list[tuple[Incident, TimelineEntry]] = field(default_factory=list)
    notifications: list[Notification] = field(default_factory=list)
    #: Changes that only channels that update a notification in place receive.
    updates_in_place: list[Notification] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PreviousIncident:
    """The last resolved incident of a cause."""

    generation: int
    flap_times: tuple[float, ...] = ()


def evaluate(
    incidents: Mapping[str, Incident],
    facts: ClusterFacts,
    rules: Sequence[Rule],
    active_silences: Sequence[Silence],
    find_previous_incident: Callable[[str], PreviousIncident | None],
) -> EvaluationOutcome:
    """Evaluate the rules once. `find_previous_incident` returns the last incident of a cause by key.

    1. Apply the rules, by cause. 2. Open an incident for each cause that has none. 3. Determine what inhibits and what
    silences each incident. 4. Advance each incident. 5. Collect the due notifications.
    """
    now = facts.now
    evaluation_context = EvaluationContext(now, facts.as_of or 0.0, {rule.name: rule for rule in rules})
    findings = evaluate_rules(facts, rules)
    incidents_before = {**incidents}
    for key, finding in findings.items():
        if key not in incidents_before:
            incidents_before[key] = _open_incident(facts.cluster, finding, find_previous_incident(key), now)
        elif incidents_before[key].state is IncidentState.RECOVERING and finding.began_at is not None:
            # The cause had recovered, so the current failure began later.
            incidents_before[key] = replace(incidents_before[key], began_at=finding.began_at)
    outcome = EvaluationOutcome()
    representatives = select_representatives(incidents_before.values())
    members_by_key = _collect_members_by_key(representatives, facts)
    inhibitor_by_key = {
        key: inhibitor_of(incident, findings.get(key), representatives, members_by_key, now)
        for key, incident in (incidents_before.items() if representatives else ())
    }
    explaining_keys = frozenset(
        inhibitor_by_key[key]
        for key, finding in findings.items()
        # Agents that were stranded before the stronger incident opened have another cause.
        if finding.cause.kind is CauseKind.AGENTS
        and inhibitor_by_key.get(key)
        and incidents_before[key].opened_at >= incidents_before[inhibitor_by_key[key]].opened_at
    )
    inputs = _EvaluationInputs(
        evaluation_context, inhibitor_by_key, explaining_keys, active_silences, is_fresh=facts.is_fresh
    )
    for key, incident in incidents_before.items():
        _advance_incident(incident, findings.get(key), inputs, outcome, is_new=key not in incidents)
    return outcome


@dataclass(frozen=True, slots=True)
class _EvaluationInputs:
    """Values shared by all incidents of one evaluation."""

    evaluation_context: EvaluationContext
    #: Key of the inhibiting incident by key of the incident, and the keys of incidents that inhibit agents.
    inhibitor_by_key: Mapping[str, str]
    explaining_keys: frozenset[str]
    active_silences: Sequence[Silence]
    is_fresh: bool


def _advance_incident(
    incident: Incident,
    finding: Finding | None,
    inputs: _EvaluationInputs,
    outcome: EvaluationOutcome,
    *,
    is_new: bool,
) -> None:
    evaluation_context = inputs.evaluation_context
    current = _with_inhibition_and_silence(incident, inputs)
    is_blind = not inputs.is_fresh and incident.cause.kind is not CauseKind.CONSOLE
    if is_blind:
        step = advance_while_blind(current, evaluation_context.now)
    else:
        step = advance(
            current, finding, evaluation_context, is_explaining=incident.key in inputs.explaining_keys
        )
    after = step.incident
    if after is None:
        if not is_new:
            outcome.dropped_incidents.append(incident)
        return
    kind = None if is_blind else find_due_notification(after, evaluation_context)
    if kind is not None:
        after = with_notification(after, kind, evaluation_context.now)
        outcome.notifications.append(
            Notification(kind, after, evaluation_context.now, after.notification_count)
        )
        text = f"Notification due ({kind.value})."
        outcome.timeline_entries.append(
            (after, TimelineEntry(evaluation_context.now, TimelineKind.NOTIFICATION, text))
        )
    elif (update_kind := _find_update_in_place(incident, after)) is not None:
        outcome.updates_in_place.append(
            Notification(update_kind, after, evaluation_context.now, after.notification_count)
        )
    outcome.timeline_entries += [(after, entry) for entry in step.timeline_entries]
    if is_new or after != incident:
        outcome.changed_incidents.append(after)
    if after.state is not IncidentState.RESOLVED:
        outcome.incidents[after.key] = after


_silence_fields_of = attrgetter("silenced_by", "silenced_until", "silence_creator")


def _find_update_in_place(before: Incident, after: Incident) -> NotificationKind | None:
    """Return what changed of a notified incident: its silence, its state or its severity; None if nothing did."""
    if not after.is_open or not after.is_notified:
        return None
    if _silence_fields_of(before) != _silence_fields_of(after):
        return NotificationKind.SILENCED if after.silenced_by else NotificationKind.UNSILENCED
    if after.flapping_since is not None:
        return None
    if before.state is after.state:
        return None if before.severity is after.severity else NotificationKind.SEVERITY
    is_recovering = after.state is IncidentState.RECOVERING
    return NotificationKind.RECOVERING if is_recovering else NotificationKind.RECURRED


def _with_inhibition_and_silence(incident: Incident, inputs: _EvaluationInputs) -> Incident:
    """Return the incident with its current inhibition and silence."""
    inhibited_by = inputs.inhibitor_by_key.get(incident.key, "")
    silence = find_silence(incident, inputs.active_silences)
    silence_fields = ("", None, "") if silence is None else (silence.name, silence.ends_at, silence.creator)
    # Avoid copies: copying a thousand incidents takes longer than everything else here.
    if inhibited_by == incident.inhibited_by and silence_fields == _silence_fields_of(incident):
        return incident
    silenced_by, silenced_until, silence_creator = silence_fields
    updated_incident = replace(
        incident,
        inhibited_by=inhibited_by,
        silenced_by=silenced_by,
        silenced_until=silenced_until,
        silence_creator=silence_creator,
    )
    if (
        updated_incident.state is IncidentState.FIRING
        and updated_incident.inhibited_by
        and not updated_incident.is_notified
        and updated_incident.fired_at
    ):
        # Not notified yet: back to pending until nothing inhibits it.
        return replace(updated_incident, state=IncidentState.PENDING, fired_at=None, worst_severity=None)
    return updated_incident


def _collect_members_by_key(
    representatives: Iterable[Incident], facts: ClusterFacts
) -> Mapping[str, frozenset[str]]:
    """Return the keys of the instances by proxy group or region with an open incident; regions include their groups."""
    joint_keys = {incident.key for incident in representatives if incident.cause.kind in JOINT_KINDS}
    keys = {cause.key: frozenset(keys) for cause, keys in facts.members_by_cause.items()}
    return {
        key: keys[key]
        | {
            other_key
            for other_key, other_members in keys.items()
            if other_key != key and other_members <= keys[key]
        }
        for key in joint_keys & keys.keys()
    }


def _open_incident(cluster: str, finding: Finding, previous: PreviousIncident | None, now: float) -> Incident:
    flap_times = (
        () if previous is None else tuple(at for at in previous.flap_times if now - at < FLAP_SECONDS)
    )
    return Incident(
        cluster=cluster,
        cause=finding.cause,
        generation=1 if previous is None else previous.generation + 1,
        state=IncidentState.PENDING,
        opened_at=now,
        began_at=finding.began_at,
        # Opening again counts as a state change, so that slow flapping is detected.
        flap_times=(*flap_times, now) if flap_times else (),
    )
