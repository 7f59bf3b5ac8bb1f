"""One look at a cluster: what becomes of its incidents, and which messages are due. Pure.

docs/alerts.md, "One look".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleet.alerts.facts import Facts
from fleet.alerts.findings import find
from fleet.alerts.inhibition import JOINT, inhibitor, representatives
from fleet.alerts.lifecycle import FLAP_SECONDS, Look, advance, due, hold, noticed
from fleet.alerts.rules import Rule
from fleet.alerts.silences import Silence, silencing
from fleet.vocabulary.incidents import (
    CauseKind,
    Finding,
    Happening,
    Incident,
    IncidentState,
    Notice,
    TimelineKind,
)


@dataclass(slots=True)
class Outcome:
    """What one look changed."""

    #: Every incident that is not resolved, after the look, by key.
    incidents: dict[str, Incident] = field(default_factory=dict)
    #: Those that are new or are not what they were, resolved ones too.
    changed: list[Incident] = field(default_factory=list)
    #: Those that never fired and are no more.
    dropped: list[Incident] = field(default_factory=list)
    happened: list[tuple[Incident, Happening]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Past:
    """What is known of a cause whose last incident is over."""

    generation: int
    flips: tuple[float, ...] = ()


def look(
    incidents: Mapping[str, Incident],
    facts: Facts,
    rules: Sequence[Rule],
    quiet: Sequence[Silence],
    past: Callable[[str], Past | None],
) -> Outcome:
    """Take one look. `past` knows the last incident of a cause, by its key.

    1. Find what the rules find, by cause. 2. Open an incident for each cause that has none. 3. Ask which stronger
    trouble explains each, and which silence covers it. 4. Advance each. 5. Send what is due.
    """
    now = facts.now
    this = Look(now, facts.as_of or 0.0, {rule.name: rule for rule in rules})
    findings = find(facts, rules)
    before = {**incidents}
    for key, finding in findings.items():
        if key not in before:
            before[key] = _begun(facts.cluster, finding, past(key), now)
        elif before[key].state is IncidentState.RECOVERING and finding.began_at is not None:
            # It was well meanwhile: what it suffers from now began later.
            before[key] = replace(before[key], began_at=finding.began_at)
    outcome = Outcome()
    strong = representatives(before.values())
    members = _members(strong, facts)
    stronger = {
        key: inhibitor(one, findings.get(key), strong, members, now)
        for key, one in (before.items() if strong else ())
    }
    explaining = frozenset(
        stronger[key]
        for key, one in findings.items()
        # Who was stranded before it came has been stranded by something else.
        if one.cause.kind is CauseKind.AGENTS
        and stronger.get(key)
        and before[key].opened_at >= before[stronger[key]].opened_at
    )
    surroundings = _Surroundings(this, stronger, explaining, quiet, seeing=facts.fresh)
    for key, incident in before.items():
        _one(incident, findings.get(key), surroundings, outcome, new=key not in incidents)
    return outcome


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What is the same for all incidents of one look."""

    look: Look
    #: What explains each incident, by its key, and the keys of all that explain agents.
    stronger: Mapping[str, str]
    explaining: frozenset[str]
    quiet: Sequence[Silence]
    seeing: bool


def _one(
    incident: Incident, finding: Finding | None, around: _Surroundings, outcome: Outcome, *, new: bool
) -> None:
    this = around.look
    held = _held(incident, around)
    eyeless = not around.seeing and incident.cause.kind is not CauseKind.CONSOLE
    if eyeless:
        step = hold(held, this.now)
    else:
        step = advance(held, finding, this, explaining=incident.key in around.explaining)
    after = step.incident
    if after is None:
        if not new:
            outcome.dropped.append(incident)
        return
    kind = None if eyeless else due(after, this)
    if kind is not None:
        after = noticed(after, this.now)
        outcome.notices.append(Notice(kind, after, this.now, after.notices))
        said = f"A message goes out: {kind.value}."
        outcome.happened.append((after, Happening(this.now, TimelineKind.NOTICE, said)))
    outcome.happened += [(after, one) for one in step.happened]
    if new or after != incident:
        outcome.changed.append(after)
    if after.state is not IncidentState.RESOLVED:
        outcome.incidents[after.key] = after


def _held(incident: Incident, around: _Surroundings) -> Incident:
    """Return the incident with what explains it and what silences it now."""
    inhibited_by = around.stronger.get(incident.key, "")
    silenced_by = silencing(incident, around.quiet)
    # A copy of a thousand incidents takes longer than all that is decided about them.
    if (inhibited_by, silenced_by) == (incident.inhibited_by, incident.silenced_by):
        return incident
    held = replace(incident, inhibited_by=inhibited_by, silenced_by=silenced_by)
    if held.state is IncidentState.FIRING and held.inhibited_by and not held.notices and held.fired_at:
        # Nobody heard of it: it waits until it stands for itself.
        return replace(held, state=IncidentState.PENDING, fired_at=None, worst_severity=None)
    return held


def _members(strong: Iterable[Incident], facts: Facts) -> Mapping[str, frozenset[str]]:
    """By the key of a group or region with an open incident, whom it stands for: a region also for its groups."""
    open_ = {one.key for one in strong if one.cause.kind in JOINT}
    keys = {cause.key: frozenset(keys) for cause, keys in facts.together.items()}
    return {
        key: keys[key] | {other for other, within in keys.items() if other != key and within <= keys[key]}
        for key in open_ & keys.keys()
    }


def _begun(cluster: str, finding: Finding, past: Past | None, now: float) -> Incident:
    flips = () if past is None else tuple(at for at in past.flips if now - at < FLAP_SECONDS)
    return Incident(
        cluster=cluster,
        cause=finding.cause,
        generation=1 if past is None else past.generation + 1,
        state=IncidentState.PENDING,
        opened_at=now,
        began_at=finding.began_at,
        # Opening again is a turn, too: slow flapping is flapping.
        flips=(*flips, now) if flips else (),
    )
