from __future__ import annotations

import pytest

from fleet.changes import NoEvidenceError
from fleet.changes.policies.plan_input import agent_counts_by_proxies_of, policy_snapshot_of
from fleet.monitoring import columns
from fleet.monitoring.evidence import ReconnectMode
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader

NOW = 1_700_000_000.0


def test_snapshot_counts_load_balancing_modes_by_auth() -> None:
    """Of unexpired heartbeats; old data is refused."""
    table = FakeReader(as_of=NOW - 1).table("default", NOW)
    table.heartbeats["auth"] = [0, 0, 1, 1]
    table.heartbeats["mode"] = [
        ReconnectMode.PICK_FIRST,
        ReconnectMode.PICK_FIRST,
        ReconnectMode.RECONNECT,
        ReconnectMode.UNKNOWN,
    ]
    table.heartbeats["flags"][2] = columns.HEALTH_CHECK
    table.heartbeats["expires_at"][1] = NOW - 1
    snapshot = policy_snapshot_of(table, 0.6, NOW)
    assert snapshot.balancing_counts == {
        "auth-id-1": {("pick_first", False): 1},
        "auth-id-2": {("reconnect", True): 1},
    }
    assert (
        snapshot.agent_count,
        snapshot.round_interval,
        snapshot.age_seconds,
        snapshot.load_counts["auth-id-1"],
    ) == (
        4,
        0.6,
        1.0,
        2,
    )
    with pytest.raises(NoEvidenceError):
        policy_snapshot_of(FakeReader(as_of=NOW - 60).table("default", NOW), 0.6, NOW)


def test_agents_are_counted_by_their_proxies() -> None:
    """Retired agents do not count."""
    table = FakeReader(as_of=NOW - 1, tunnels_per_agent=2).table("default", NOW)
    table.verdicts["state"][0] = State.RETIRED
    counts = agent_counts_by_proxies_of(table)
    assert sum(counts.values()) == 3
    assert {len(proxies) for proxies in counts} == {2}
