"""Memory of agents: home proxies, last auths and proxies, and the time of lost tunnels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.monitoring.classify import prepare_frame, update_memory
from fleet.monitoring.columns import (
    DISAGREEMENT_SHIFT,
    HAD_TUNNEL,
    NO_INSTANCE,
    blank_heartbeats,
    blank_memory,
)
from fleet.monitoring.evidence import FeedFreshness
from tests.fakes.small_fleet import NOW, PROXY_1, PROXY_2, SILENT, TIMING, fleet

Tunnels = tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16]]


def tunnels(rows: Iterable[tuple[int, int]]) -> Tunnels:
    """Return the tunnel columns of (agent, proxy) pairs."""
    pairs = np.array(list(rows), np.int64).reshape(-1, 2)
    return pairs[:, 0].astype(np.uint32), pairs[:, 1].astype(np.uint16)


def last_proxies_after(before: Sequence[int], current: Sequence[int]) -> list[int]:
    """Return the last proxies of an agent after a poll that sees it on the `current` proxies."""
    memory = blank_memory(1)
    memory["last_proxies"][0, : len(before)] = before
    after = update_memory(memory, blank_heartbeats(1), *tunnels((0, proxy) for proxy in current), NOW).memory
    return [proxy for proxy in after["last_proxies"][0].tolist() if proxy != NO_INSTANCE]


def test_first_tunnel_sets_the_home_proxy() -> None:
    """Moving does not change the home proxy."""
    first = update_memory(blank_memory(2), blank_heartbeats(2), *tunnels([(0, 7)]), NOW)
    assert first.homes_changed
    assert first.memory["home_proxy"].tolist() == [7, NO_INSTANCE]
    assert first.memory["flags"].tolist() == [HAD_TUNNEL, 0]
    second = update_memory(first.memory, blank_heartbeats(2), *tunnels([(0, 8)]), NOW)
    assert not second.homes_changed
    assert second.memory["home_proxy"].tolist() == [7, NO_INSTANCE]


def test_several_first_tunnels_distribute_home_proxies() -> None:
    """Agents first seen on the same two proxies get different home proxies."""
    rows = [(agent, proxy) for agent in range(100) for proxy in (4, 9)]
    homes = update_memory(blank_memory(100), blank_heartbeats(100), *tunnels(rows), NOW).memory["home_proxy"]
    assert sorted(set(homes.tolist())) == [4, 9]
    assert (homes == 4).sum() == 50


def test_last_proxies_are_ordered_newest_first() -> None:
    """New ones, current ones, then previous ones; at most three, each once."""
    assert last_proxies_after([], [5]) == [5]
    assert last_proxies_after([5], [6]) == [6, 5]
    assert last_proxies_after([6, 5], [5]) == [5, 6]
    assert last_proxies_after([6, 5], [5, 6]) == [6, 5]
    assert last_proxies_after([6, 5, 4], [4, 5, 7]) == [7, 5, 4]
    assert last_proxies_after([6, 5, 4], [9, 8, 7, 3]) == [3, 7, 8]
    assert last_proxies_after([6, 5], []) == [6, 5]


def test_memory_of_a_mesh_agent_is_stable() -> None:
    """Although the agent has more tunnels than the memory stores."""
    rows = tunnels((0, proxy) for proxy in range(10))
    first = update_memory(blank_memory(1), blank_heartbeats(1), *rows, NOW)
    assert update_memory(first.memory, blank_heartbeats(1), *rows, NOW + 1).memory is first.memory


def test_loss_of_the_last_tunnel_is_stored() -> None:
    """Once; the time is cleared when the agent has a tunnel again."""
    first = update_memory(blank_memory(2), blank_heartbeats(2), *tunnels([(0, 7)]), NOW)
    memory_after_loss = update_memory(first.memory, blank_heartbeats(2), *tunnels([]), NOW + 1)
    assert memory_after_loss.memory["lost_at"].tolist() == [NOW + 1, 0]
    assert (
        update_memory(memory_after_loss.memory, blank_heartbeats(2), *tunnels([]), NOW + 2).memory
        is memory_after_loss.memory
    )
    recovered_memory = update_memory(
        memory_after_loss.memory, blank_heartbeats(2), *tunnels([(0, 8)]), NOW + 3
    )
    assert recovered_memory.memory["lost_at"].tolist() == [0, 0]


def test_last_auth_is_kept_after_expiry() -> None:
    """Also when the heartbeat row is emptied."""
    heartbeats = blank_heartbeats(1)
    heartbeats["expires_at"], heartbeats["auth"] = NOW, 3
    first = update_memory(blank_memory(1), heartbeats, *tunnels([]), NOW)
    assert first.memory["last_auth"].tolist() == [3]
    assert update_memory(first.memory, blank_heartbeats(1), *tunnels([]), NOW).memory is first.memory


def test_update_copies_the_memory_and_adds_agents() -> None:
    """New agents have empty rows."""
    memory = blank_memory(1)
    after = update_memory(memory, blank_heartbeats(3), *tunnels([(0, 7)]), NOW).memory
    assert memory["home_proxy"].tolist() == [NO_INSTANCE]
    assert after["home_proxy"].tolist() == [7, NO_INSTANCE, NO_INSTANCE]


def memory_after_round(rows: Tunnels, facts: Mapping[str, Any], feed: FeedFreshness) -> npt.NDArray[np.void]:
    """Return the memory of an agent of proxy-1 after a poll in which proxy-1 has these `facts`."""
    frame = prepare_frame(
        fleet(proxy_1=facts, tunnel_freshness={PROXY_1: feed, PROXY_2: FeedFreshness(NOW, NOW)}), NOW
    )
    first = update_memory(blank_memory(1), blank_heartbeats(1), *tunnels([(0, PROXY_1)]), NOW - 60).memory
    return update_memory(first, blank_heartbeats(1), *rows, NOW, frame).memory


def test_last_report_of_a_silent_proxy_does_not_count() -> None:
    """The tunnel to the silent proxy is lost."""
    moved_memory = memory_after_round(
        tunnels([(0, PROXY_1), (0, PROXY_2)]), SILENT, FeedFreshness(NOW, NOW - 3)
    )
    assert moved_memory["last_proxies"][0].tolist()[:2] == [PROXY_2, PROXY_1]
    assert moved_memory["lost_at"][0] == 0
    assert (
        memory_after_round(tunnels([(0, PROXY_1)]), SILENT, FeedFreshness(NOW, NOW - 3))["lost_at"][0] == NOW
    )


def test_unread_proxy_loses_no_tunnel() -> None:
    """A healthy proxy without a recent report loses no tunnel."""
    assert (
        memory_after_round(tunnels([(0, PROXY_1)]), {}, FeedFreshness(NOW - 60, NOW - 60))["lost_at"][0] == 0
    )


def test_polls_with_a_disagreement_are_counted_until_it_ends() -> None:
    """An agent claims two tunnels and one is reported; the count is limited."""
    frame = prepare_frame(fleet(), NOW)
    rows = tunnels([(0, PROXY_1)])
    heartbeats, memory = blank_heartbeats(1), blank_memory(1)
    heartbeats["claimed_count"] = 2
    rounds = []
    for _ in range(TIMING.min_disagreement_rounds + 5):
        memory = update_memory(memory, heartbeats, *rows, NOW, frame).memory
        rounds.append(int(memory["flags"][0]) >> DISAGREEMENT_SHIFT)
    assert rounds[:3] == [1, 2, 3]
    assert set(rounds[-5:]) == {TIMING.min_disagreement_rounds}
    assert memory["flags"][0] & HAD_TUNNEL

    heartbeats["claimed_count"] = 1

    assert update_memory(memory, heartbeats, *rows, NOW, frame).memory["flags"].tolist() == [HAD_TUNNEL]


def test_agents_without_a_tunnel_have_no_disagreement() -> None:
    """Otherwise thousands of stranded agents would be written in every poll."""
    heartbeats = blank_heartbeats(1)
    heartbeats["claimed_count"] = 1
    memory = update_memory(blank_memory(1), heartbeats, *tunnels([]), NOW, prepare_frame(fleet(), NOW)).memory
    assert memory["flags"].tolist() == [0]
