"""Changes of instances in a round: their spells, which the record keeps, and the rows of the history. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fleet.monitoring.classify import FleetFrame, InstanceCondition, health_of
from fleet.monitoring.classify.instances import is_silent
from fleet.monitoring.instance_evidence import evidence_of_instance
from fleet.monitoring.state.codec import InstanceSpell, Rows
from fleet.monitoring.state.outbox import BACKEND_INDEX, CLUSTER_INDEX, HEALTH_NUMBERS, INSTANCE_CHANGE
from fleet.protocol.destination.health import Health
from fleet.vocabulary.instances import InstanceState


def find_changed_spells(
    previous: Mapping[int, InstanceSpell], frame: FleetFrame, now: float
) -> dict[int, InstanceSpell]:
    """Return the spells that differ from those of the previous round."""
    changed_spells = {}
    for index, condition in frame.conditions.items():
        before = previous.get(index, InstanceSpell())
        spell = _spell_of(before, condition, frame, now)
        if spell != before:
            changed_spells[index] = spell
    for index, is_failed in ((BACKEND_INDEX, frame.backend_down), (CLUSTER_INDEX, frame.cluster_unreachable)):
        before = previous.get(index, InstanceSpell())
        spell = _system_spell_of(before, is_failed=is_failed, blind=frame.blind, now=now)
        if spell != before:
            changed_spells[index] = spell
    return changed_spells


def _spell_of(
    before: InstanceSpell, condition: InstanceCondition, frame: FleetFrame, now: float
) -> InstanceSpell:
    if frame.blind:
        # Refloat's own network may be the cause of failures.
        return replace(before, state=InstanceState.UNKNOWN)
    facts = condition.facts
    health = health_of(facts, now, frame.timing)
    sick_since = condition.since if condition.is_sick else None
    evidence = evidence_of_instance(
        facts,
        condition.state,
        health,
        sick_since=sick_since,
        is_silent=is_silent(facts, now, frame.timing),
    )
    if condition.state is InstanceState.UNKNOWN:
        # Not polled recently: the problem may continue.
        return replace(before, state=InstanceState.UNKNOWN, evidence=evidence.to_json())
    return InstanceSpell(
        condition.state, sick_since, health, bool(facts.watch.drain_request), evidence.to_json()
    )


def _system_spell_of(before: InstanceSpell, *, is_failed: bool, blind: bool, now: float) -> InstanceSpell:
    """Return the spell of the backend or the cluster: silent, OK or unknown."""
    if blind:
        return replace(before, state=InstanceState.UNKNOWN)
    if not is_failed:
        return InstanceSpell(InstanceState.OK)
    return InstanceSpell(InstanceState.SILENT, now if before.sick_since is None else before.sick_since)


def find_instance_changes(
    before: Mapping[int, InstanceSpell], after: Mapping[int, InstanceSpell]
) -> tuple[Rows, tuple[str, ...]]:
    """Return INSTANCE_CHANGE rows of the spells that differ in a recorded part, and the evidence of each as JSON."""
    changes = [
        (index, old.state, spell)
        for index, spell in after.items()
        if _recorded_part_of(old := before.get(index, InstanceSpell())) != _recorded_part_of(spell)
    ]
    rows = [
        (index, old_state, spell.state, HEALTH_NUMBERS[spell.health], spell.is_draining)
        for index, old_state, spell in changes
    ]
    return np.array(rows, INSTANCE_CHANGE), tuple(spell.evidence for _, _, spell in changes)


def visible_part_of(spell: InstanceSpell) -> tuple[InstanceState, Health, bool]:
    """Return the part of a spell for which open pages load instances again."""
    return spell.state, spell.health, spell.is_draining


def _recorded_part_of(spell: InstanceSpell) -> tuple[InstanceState, Health, bool, str]:
    return (*visible_part_of(spell), spell.evidence)
