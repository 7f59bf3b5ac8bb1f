"""Changes of instances in a round: spells and rows of the history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.monitoring.classify import FleetFrame, prepare_frame
from fleet.monitoring.evidence import FleetEvidence
from fleet.monitoring.instance_evidence import InstanceEvidence
from fleet.monitoring.pollers.instance_changes import (
    find_changed_spells,
    find_instance_changes,
    visible_part_of,
)
from fleet.monitoring.state.codec import InstanceSpell
from fleet.monitoring.state.outbox import BACKEND_INDEX, CLUSTER_INDEX
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, InstanceState, PollAttempt

NOW = 1_700_000_000.0


def frame_of(*errors: str, blind: bool = False, readyz: int = 200) -> FleetFrame:
    """Return a frame with one auth, whose last attempts had these errors, newest first; without any: it responds."""
    attempts = tuple(
        PollAttempt(NOW - 5 * age, ok=not error, error=error) for age, error in enumerate(errors)
    )
    facts = InstanceFacts(
        id="a", index=0, kind=InstanceKind.AUTH, name="auth-1", address="", attempts=attempts, readyz=readyz
    )
    return prepare_frame(FleetEvidence(cluster="default", instances={0: facts}, blind=blind), NOW)


def test_unchanged_instance_has_no_new_spell() -> None:
    """The cluster and the backend have spells too, from the first round on."""
    frame = frame_of("", "")
    spells = find_changed_spells({}, frame, NOW)
    assert spells.keys() == {0, BACKEND_INDEX, CLUSTER_INDEX}
    assert spells[0].state is InstanceState.OK
    assert find_changed_spells(spells, frame, NOW + 5) == {}


def test_change_of_the_reason_alone_is_recorded_and_not_visible() -> None:
    """The history has the sentence of each moment; a page reads it when the state changes."""
    before = find_changed_spells({}, frame_of("no answer", "no answer"), NOW)
    after = find_changed_spells(before, frame_of("refused", "no answer"), NOW)
    assert [*after] == [0]
    assert visible_part_of(after[0]) == visible_part_of(before[0])
    rows, evidence = find_instance_changes(before, after)
    assert rows[["instance", "old", "new"]].tolist() == [(0, InstanceState.SILENT, InstanceState.SILENT)]
    assert [InstanceEvidence.from_json(text).errors for text in evidence] == [("refused", "no answer")]


@pytest.mark.parametrize("state", [InstanceState.OK, InstanceState.SILENT])
def test_blind_pollers_know_no_state(state: InstanceState) -> None:
    """The problem may continue, so its start stays."""
    before = InstanceSpell(state, NOW - 9)
    spells = find_changed_spells(
        {0: before, CLUSTER_INDEX: InstanceSpell(InstanceState.OK)}, frame_of("", blind=True), NOW
    )
    assert spells[0] == replace(before, state=InstanceState.UNKNOWN)
    assert spells[CLUSTER_INDEX].state is InstanceState.UNKNOWN
    assert BACKEND_INDEX not in spells


def test_instance_that_missed_a_poll_is_unknown_with_its_error() -> None:
    """The start of its problem stays: it may continue."""
    spells = find_changed_spells(
        {0: InstanceSpell(InstanceState.SILENT, NOW - 9)}, frame_of("no answer"), NOW
    )
    assert (spells[0].state, spells[0].sick_since) == (InstanceState.UNKNOWN, NOW - 9)
    assert InstanceEvidence.from_json(spells[0].evidence).polled_at == NOW
