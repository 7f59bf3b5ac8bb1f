"""Places of agents: their auth, the proxy that the map shows them at, and the proxies with tunnels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleet.monitoring.classify import places_of, prepare_frame, presences_of
from fleet.monitoring.columns import (
    NO_INSTANCE,
    PLACE_PROXY_COUNT,
    ResourcePresence,
    blank_heartbeats,
    blank_memory,
)
from tests.fakes.small_fleet import NOW, fleet


def test_place_has_the_newest_proxy_and_all_proxies_with_tunnels() -> None:
    """Agent 0 keeps two tunnels; agent 1 has lost its tunnel and stays where it was; agent 2 was never seen."""
    memory = blank_memory(3)
    memory["last_auth"][:2] = 1
    memory["last_proxies"][0, :2] = (7, 5)
    memory["last_proxies"][1, 0] = 6
    places = places_of(memory, np.array([0, 0], np.uint32), np.array([5, 7], np.uint16))
    assert places["auth"].tolist() == [1, 1, NO_INSTANCE]
    assert places["proxy"].tolist() == [7, 6, NO_INSTANCE]
    assert places["proxies"].tolist() == [[5, 7, NO_INSTANCE], [NO_INSTANCE] * 3, [NO_INSTANCE] * 3]
    assert places["tunnel_count"].tolist() == [2, 0, 0]


@given(st.sets(st.tuples(st.integers(0, 4), st.integers(0, 8)), max_size=30))
def test_proxies_equal_the_reported_tunnels(tunnels: set[tuple[int, int]]) -> None:
    """All of them if they fit, otherwise as many as fit; ascending, each once."""
    pairs = sorted(tunnels, key=lambda pair: (pair[1], pair[0]))
    agents, proxies = (np.array([pair[n] for pair in pairs], np.uint32) for n in range(2))
    places = places_of(blank_memory(5), agents, proxies.astype(np.uint16))
    for agent in range(5):
        expected = sorted(proxy for tunnel_agent, proxy in tunnels if tunnel_agent == agent)
        listed_proxies = [proxy for proxy in places["proxies"][agent].tolist() if proxy != NO_INSTANCE]
        assert places["tunnel_count"][agent] == len(expected)
        assert len(listed_proxies) == min(len(expected), PLACE_PROXY_COUNT)
        assert sorted(set(listed_proxies)) == listed_proxies
        assert set(listed_proxies) <= set(expected)


def test_presence_of_resources() -> None:
    """By the times of the frame: between them it is not known whether an auth has renewed the resource."""
    frame = replace(prepare_frame(fleet(), NOW), expired_until=NOW - 9, unexpired_from=NOW)
    heartbeats = blank_heartbeats(4)
    heartbeats["expires_at"] = [NOW + 1, NOW - 9, NOW - 1, 0.0]
    assert presences_of(heartbeats, frame).tolist() == [
        *(ResourcePresence.UNEXPIRED, ResourcePresence.EXPIRED),
        *(ResourcePresence.UNCLEAR, ResourcePresence.EXPIRED),
    ]
    places = places_of(
        blank_memory(1), np.zeros(0, np.uint32), np.zeros(0, np.uint16), np.array([2], np.uint8)
    )
    assert places["presence"].tolist() == [ResourcePresence.EXPIRED]
