from __future__ import annotations

import numpy as np

from fleet.monitoring.state.outbox import (
    INSTANCE_TRANSITION,
    TRANSITION,
    RoundChanges,
    pack_round_changes,
    unpack_round_changes,
)


def _round_changes(agents: int, changed_count: int, instances: int) -> RoundChanges:
    return RoundChanges(
        round=7,
        concluded_at=1.5,
        transitions=np.array([(n, 2, 3, 4, 5) for n in range(agents)], TRANSITION),
        agents_to_save=np.arange(changed_count, dtype=np.uint32),
        instance_transitions=np.array([(n, 1, 2) for n in range(instances)], INSTANCE_TRANSITION),
    )


def test_round_changes_round_trip() -> None:
    """With and without changes of each kind."""
    for counts in ((2, 3, 4), (0, 0, 1), (1, 0, 0), (0, 5, 0), (2, 0, 3)):
        original = _round_changes(*counts)
        unpacked = unpack_round_changes(pack_round_changes(original))
        assert (unpacked.round, unpacked.concluded_at) == (7, 1.5)
        assert unpacked.transitions.tolist() == original.transitions.tolist()
        assert unpacked.agents_to_save.tolist() == original.agents_to_save.tolist()
        assert unpacked.instance_transitions.tolist() == original.instance_transitions.tolist()


def test_no_changes_are_packed_as_no_bytes() -> None:
    """A poll without changes writes nothing."""
    assert pack_round_changes(_round_changes(0, 0, 0)) == b""


def test_changes_without_instances_of_an_older_version_are_readable() -> None:
    """An upgrade reads the outbox of the previous version."""
    older = pack_round_changes(_round_changes(1, 2, 0))
    assert unpack_round_changes(older).instance_transitions.tolist() == []
    assert pack_round_changes(_round_changes(1, 2, 3)).startswith(older)
