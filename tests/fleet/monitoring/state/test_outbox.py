from __future__ import annotations

import struct

import numpy as np

from fleet.monitoring.columns import NO_INSTANCE
from fleet.monitoring.state.outbox import (
    AGENT_CHANGE,
    GROUP_COUNT,
    HEALTH_NUMBERS,
    INSTANCE_CHANGE,
    RoundChanges,
    pack_round_changes,
    unpack_round_changes,
)
from fleet.protocol.destination.health import Health


def _round_changes(agents: int, saved_count: int, instances: int) -> RoundChanges:
    return RoundChanges(
        round=7,
        concluded_at=1.5,
        agent_changes=np.array(
            [(n, 9.5, 2, 3, 8, 4, 5, 6, n, 1, 2, 3.5) for n in range(agents)], AGENT_CHANGE
        ),
        proxies=np.arange(sum(range(agents)), dtype=np.uint16),
        agents_to_save=np.arange(saved_count, dtype=np.uint32),
        instance_changes=np.array([(n, 1, 2, 3, True) for n in range(instances)], INSTANCE_CHANGE),
        instance_evidence=tuple(f'{{"readyz":{n}}}' for n in range(instances)),
    )


def test_round_changes_round_trip() -> None:
    """With and without changes of each kind."""
    for counts in ((2, 3, 4), (0, 0, 1), (1, 0, 0), (0, 5, 0), (3, 0, 3)):
        original = _round_changes(*counts)
        unpacked = unpack_round_changes(pack_round_changes(original))
        assert (unpacked.round, unpacked.concluded_at) == (7, 1.5)
        for name in ("agent_changes", "proxies", "agents_to_save", "instance_changes"):
            assert getattr(unpacked, name).tolist() == getattr(original, name).tolist(), name
        assert unpacked.instance_evidence == original.instance_evidence


def test_counts_round_trip() -> None:
    """A minute without agents is one nevertheless; a round within a minute has no groups."""
    counts = np.arange(3, dtype=np.uint32)
    for groups in (None, np.zeros(0, GROUP_COUNT), np.array([(1, 2, 3, 4)], GROUP_COUNT)):
        original = RoundChanges(7, 1.5, agents_to_save=counts, state_counts=counts, group_counts=groups)
        unpacked = unpack_round_changes(pack_round_changes(original))
        assert unpacked.state_counts.tolist() == [0, 1, 2]
        assert unpacked.has_places
        assert (None if unpacked.group_counts is None else unpacked.group_counts.tolist()) == (
            None if groups is None else groups.tolist()
        )
    assert pack_round_changes(RoundChanges(7, 1.5, group_counts=np.zeros(0, GROUP_COUNT)))


def test_no_changes_are_packed_as_no_bytes() -> None:
    """A poll without changes writes nothing."""
    assert pack_round_changes(_round_changes(0, 0, 0)) == b""


def test_entries_of_the_earlier_version_are_readable() -> None:
    """An upgrade reads the outbox of the previous version: states without places."""
    earlier = (
        struct.pack("<QdII", 7, 1.5, 1, 2) + struct.pack("<IHBBB", 4, 2, 9, 3, 5) + struct.pack("<II", 1, 4)
    )
    unpacked = unpack_round_changes(earlier)
    assert (unpacked.round, unpacked.concluded_at) == (7, 1.5)
    assert unpacked.agent_changes.tolist() == [
        (4, 0.0, 2, NO_INSTANCE, NO_INSTANCE, 9, 3, 5, 0, NO_INSTANCE, 0, 0.0)
    ]
    assert unpacked.agents_to_save.tolist() == [1, 4]
    assert not unpacked.has_places
    assert unpacked.proxies.tolist() == unpacked.instance_changes.tolist() == []
    with_instance = unpack_round_changes(earlier + struct.pack("<HBB", 6, 1, 2))
    assert with_instance.instance_changes.tolist() == [(6, 1, 2, 0, False)]


def test_entries_of_version_2_are_readable() -> None:
    """Places, but no evidence: the presence of the resource was not recorded."""
    changes = struct.pack("<IdHHHBBBB", 4, 9.5, 2, 3, 8, 9, 3, 5, 1) + struct.pack("<H", 8)
    instance = struct.pack("<HBBBB", 6, 1, 2, 3, 1)
    header = struct.pack("<QQdIIIIII", 0xFFFF_FFFF_FFFF_0002, 7, 1.5, 1, 1, 0, 1, 0, 0xFFFF_FFFF)
    unpacked = unpack_round_changes(header + changes + instance)
    assert unpacked.agent_changes.tolist() == [(4, 9.5, 2, 3, 8, 9, 3, 5, 1, NO_INSTANCE, 0, 0.0)]
    assert unpacked.proxies.tolist() == [8]
    assert unpacked.instance_changes.tolist() == [(6, 1, 2, 3, True)]
    assert (unpacked.instance_evidence, unpacked.group_counts) == ((), None)


def test_every_health_has_a_number() -> None:
    """And no two have the same."""
    assert sorted(HEALTH_NUMBERS[health] for health in Health) == list(range(len(Health)))
