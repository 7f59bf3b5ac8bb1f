from __future__ import annotations

import numpy as np

from fleet.monitoring.state.outbox import (
    INSTANCE_TRANSITION,
    TRANSITION,
    RoundChanges,
    pack_round_changes,
    unpack_round_changes,
)


def _owed(agents: int, remembered: int, instances: int) -> RoundChanges:
    return RoundChanges(
        round=7,
        at=1.5,
        transitions=np.array([(n, 2, 3, 4, 5) for n in range(agents)], TRANSITION),
        changed_agents=np.arange(remembered, dtype=np.uint32),
        instances=np.array([(n, 1, 2) for n in range(instances)], INSTANCE_TRANSITION),
    )


def test_owed_there_and_back() -> None:
    """Whatever there is of each kind."""
    for counts in ((2, 3, 4), (0, 0, 1), (1, 0, 0), (0, 5, 0), (2, 0, 3)):
        there = _owed(*counts)
        back = unpack_round_changes(pack_round_changes(there))
        assert (back.round, back.at) == (7, 1.5)
        assert back.transitions.tolist() == there.transitions.tolist()
        assert back.changed_agents.tolist() == there.changed_agents.tolist()
        assert back.instances.tolist() == there.instances.tolist()


def test_owed_nothing_is_no_bytes() -> None:
    """A round in which nothing changed owes nothing."""
    assert pack_round_changes(_owed(0, 0, 0)) == b""


def test_owed_before_there_were_turns_can_be_read() -> None:
    """An upgrade finds in Redis what the version before it owed."""
    older = pack_round_changes(_owed(1, 2, 0))
    assert unpack_round_changes(older).instances.tolist() == []
    assert pack_round_changes(_owed(1, 2, 3)).startswith(older)
