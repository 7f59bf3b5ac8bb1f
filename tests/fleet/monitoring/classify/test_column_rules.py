"""Verdict counts of incidents in a whole fleet.

That each rule says what the scalar's says is the law in `test_columns`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fleet.monitoring.classify import classify_columns, count_states, prepare_frame, update_memory
from fleet.monitoring.columns import blank_heartbeats, blank_memory
from fleet.monitoring.evidence import FeedFreshness, FleetEvidence, ReconnectMode
from fleet.vocabulary.instances import InstanceKind
from fleet.vocabulary.verdicts import State
from tests.fakes.small_fleet import NOW, SILENT, TIMING, UNHEALTHY, instance

AUTHS, PROXIES, AGENTS = 3, 10, 1000


def count_verdicts(
    faults: Mapping[int, Mapping[str, Any]], *, connections: int = 1, lost_count: int = 0
) -> dict[State, int]:
    """Count verdicts of agents evenly distributed over auths and proxies; the last `lost_count` have no tunnels."""
    kinds = [InstanceKind.AUTH] * AUTHS + [InstanceKind.PROXY] * PROXIES
    instances = {i: instance(i, kind, f"{kind}-{i}", **faults.get(i, {})) for i, kind in enumerate(kinds)}
    read = FeedFreshness(NOW, NOW)
    feeds = dict.fromkeys(range(AUTHS, AUTHS + PROXIES), read)
    frame = prepare_frame(FleetEvidence("default", instances, read, feeds, timing=TIMING), NOW)
    heartbeats, (agents, proxies) = _heartbeats(connections), _tunnels(connections)
    initial_memory = update_memory(blank_memory(AGENTS), heartbeats, agents, proxies, NOW - 60).memory
    is_kept = agents < AGENTS - lost_count
    agents, proxies = agents[is_kept], proxies[is_kept]
    memory = update_memory(initial_memory, heartbeats, agents, proxies, NOW, frame).memory
    states = classify_columns(heartbeats, memory, agents, proxies, frame, NOW)["state"]
    return {state: count for state, count in count_states(states).items() if count}


@pytest.mark.parametrize(
    ("faults", "connections", "lost_count", "count_by_state"),
    [
        ({}, 1, 0, {State.HEALTHY: 1000}),
        ({3: SILENT}, 1, 0, {State.STRANDED: 100, State.HEALTHY: 900}),
        ({3: SILENT}, 2, 0, {State.DEGRADED: 200, State.HEALTHY: 800}),
        ({3: SILENT, 4: SILENT}, 2, 0, {State.STRANDED: 100, State.DEGRADED: 200, State.HEALTHY: 700}),
        ({3: UNHEALTHY}, 1, 0, {State.AT_RISK: 100, State.HEALTHY: 900}),
        ({0: UNHEALTHY}, 1, 0, {State.AT_RISK: 334, State.HEALTHY: 666}),
        ({0: UNHEALTHY, 1: UNHEALTHY, 2: UNHEALTHY}, 1, 0, {State.AT_RISK: 1000}),
        ({}, 1, 7, {State.OFFLINE: 7, State.HEALTHY: 993}),
        (dict.fromkeys(range(AUTHS + PROXIES), SILENT), 1, 0, {State.UNKNOWN: 1000}),
    ],
)
def test_incident_counts(
    faults: Mapping[int, Mapping[str, Any]],
    connections: int,
    lost_count: int,
    count_by_state: dict[State, int],
) -> None:
    """Only agents that depend on a failed instance change; killed agents are offline."""
    assert count_verdicts(faults, connections=connections, lost_count=lost_count) == count_by_state


def _heartbeats(connections: int) -> npt.NDArray[np.void]:
    rows = blank_heartbeats(AGENTS)
    rows["expires_at"], rows["ttl"], rows["mode"] = NOW + 16, 20, ReconnectMode.PICK_FIRST
    rows["auth"] = np.arange(AGENTS) % AUTHS
    rows["desired_count"] = rows["claimed_count"] = connections
    return rows


def _tunnels(connections: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16]]:
    agents = np.repeat(np.arange(AGENTS), connections)
    proxies = AUTHS + (agents + np.tile(np.arange(connections), AGENTS)) % PROXIES
    return agents.astype(np.uint32), proxies.astype(np.uint16)
