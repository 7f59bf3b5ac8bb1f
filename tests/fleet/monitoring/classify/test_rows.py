"""Conversion between packed rows and values."""

from __future__ import annotations

import numpy as np

from fleet.monitoring.classify import count_states, evidence_of
from fleet.monitoring.columns import (
    DISAGREEMENT_SHIFT,
    HAD_TUNNEL,
    HEALTH_CHECK,
    NO_INSTANCE,
    RETIRED,
    blank_heartbeats,
    blank_memory,
)
from fleet.monitoring.evidence import AgentEvidence, Heartbeat, ReconnectMode
from fleet.vocabulary.verdicts import State

NO_TUNNELS = (np.zeros(0, np.uint32), np.zeros(0, np.uint16))


def test_evidence_of_empty_rows_knows_nothing() -> None:
    """Empty rows do not mean instance 0."""
    assert evidence_of(1, "a", blank_heartbeats(2), blank_memory(2), *NO_TUNNELS) == AgentEvidence("a")


def test_evidence_of_full_rows() -> None:
    heartbeats, memory = blank_heartbeats(2), blank_memory(2)
    heartbeats[1] = (100.0, 50.0, 20.0, 10.0, 3, 4, ReconnectMode.RECONNECT, HEALTH_CHECK, 2, 1)
    memory[1] = (60.0, 4, 3, (5, 4, NO_INSTANCE), RETIRED | HAD_TUNNEL | 9 << DISAGREEMENT_SHIFT, 7, 70.0)
    agents, proxies = np.array([1, 0, 1], np.uint32), np.array([9, 8, 4], np.uint16)
    assert evidence_of(1, "a", heartbeats, memory, agents, proxies) == AgentEvidence(
        id="a",
        heartbeat=Heartbeat(
            auth=3,
            expires_at=100.0,
            ttl=20.0,
            via_proxy=4,
            mode=ReconnectMode.RECONNECT,
            health_check=True,
            policy_read_at=50.0,
            desired_count=2,
            claimed_count=1,
            tracked_count=7,
            ttl_seen=10.0,
        ),
        tunnels=(4, 9),
        last_proxies=(5, 4),
        last_auth=3,
        is_retired=True,
        had_tunnel=True,
        working_until=60.0,
        lost_at=70.0,
        disagreement_rounds=9,
    )


def test_count_states_has_every_state() -> None:
    """States without agents have the count 0."""
    counts = count_states(np.array([State.HEALTHY, State.HEALTHY, State.STRANDED], np.uint8))
    assert list(counts) == list(State)
    assert (counts[State.HEALTHY], counts[State.STRANDED], counts[State.UNKNOWN]) == (2, 1, 0)
