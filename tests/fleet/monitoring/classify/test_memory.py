"""What a round remembers: homes, last auths and proxies, and when tunnels were lost."""

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
    empty_heartbeats,
    empty_memory,
)
from fleet.monitoring.evidence import FeedFreshness
from tests.fakes.small_fleet import NOW, PROXY_1, PROXY_2, SILENT, TIMING, fleet

Tunnels = tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16]]


def tunnels(rows: Iterable[tuple[int, int]]) -> Tunnels:
    """Make tunnel columns of (agent, proxy) pairs."""
    pairs = np.array(list(rows), np.int64).reshape(-1, 2)
    return pairs[:, 0].astype(np.uint32), pairs[:, 1].astype(np.uint16)


def proxies_after(before: Sequence[int], now_on: Sequence[int]) -> list[int]:
    """Say what one agent's newest proxies are once it is seen on these."""
    memory = empty_memory(1)
    memory["last_proxies"][0, : len(before)] = before
    after = update_memory(memory, empty_heartbeats(1), *tunnels((0, proxy) for proxy in now_on), NOW).memory
    return [proxy for proxy in after["last_proxies"][0].tolist() if proxy != NO_INSTANCE]


def test_remember_first_tunnel_gives_home_for_ever() -> None:
    """The first proxy seen is the home, and moving does not change it."""
    first = update_memory(empty_memory(2), empty_heartbeats(2), *tunnels([(0, 7)]), NOW)
    assert first.homes_changed
    assert first.memory["home"].tolist() == [7, NO_INSTANCE]
    assert first.memory["flags"].tolist() == [HAD_TUNNEL, 0]
    second = update_memory(first.memory, empty_heartbeats(2), *tunnels([(0, 8)]), NOW)
    assert not second.homes_changed
    assert second.memory["home"].tolist() == [7, NO_INSTANCE]


def test_remember_several_first_tunnels_spread_homes() -> None:
    """Agents first seen on the same two proxies do not all live on the lower one."""
    rows = [(agent, proxy) for agent in range(100) for proxy in (4, 9)]
    homes = update_memory(empty_memory(100), empty_heartbeats(100), *tunnels(rows), NOW).memory["home"]
    assert sorted(set(homes.tolist())) == [4, 9]
    assert (homes == 4).sum() == 50


def test_remember_orders_proxies_newest_first() -> None:
    """New ones first, then those it still has, then those it had; three at most, each once."""
    assert proxies_after([], [5]) == [5]
    assert proxies_after([5], [6]) == [6, 5]
    assert proxies_after([6, 5], [5]) == [5, 6]
    assert proxies_after([6, 5], [5, 6]) == [6, 5]
    assert proxies_after([6, 5, 4], [4, 5, 7]) == [7, 5, 4]
    assert proxies_after([6, 5, 4], [9, 8, 7, 3]) == [3, 7, 8]
    assert proxies_after([6, 5], []) == [6, 5]


def test_remember_mesh_agent_does_not_change_every_round() -> None:
    """An agent with more tunnels than are remembered settles."""
    rows = tunnels((0, proxy) for proxy in range(10))
    first = update_memory(empty_memory(1), empty_heartbeats(1), *rows, NOW)
    assert update_memory(first.memory, empty_heartbeats(1), *rows, NOW + 1).memory is first.memory


def test_remember_notes_when_the_last_tunnel_was_lost() -> None:
    """Losing all tunnels is stamped once and cleared when there is one again; never having had one is no loss."""
    first = update_memory(empty_memory(2), empty_heartbeats(2), *tunnels([(0, 7)]), NOW)
    lost = update_memory(first.memory, empty_heartbeats(2), *tunnels([]), NOW + 1)
    assert lost.memory["lost_at"].tolist() == [NOW + 1, 0]
    assert update_memory(lost.memory, empty_heartbeats(2), *tunnels([]), NOW + 2).memory is lost.memory
    back = update_memory(lost.memory, empty_heartbeats(2), *tunnels([(0, 8)]), NOW + 3)
    assert back.memory["lost_at"].tolist() == [0, 0]


def test_remember_last_auth_survives_expiry() -> None:
    """The auth of the newest heartbeat is kept when the row is emptied."""
    heartbeats = empty_heartbeats(1)
    heartbeats["expires_at"], heartbeats["auth"] = NOW, 3
    seen = update_memory(empty_memory(1), heartbeats, *tunnels([]), NOW)
    assert seen.memory["last_auth"].tolist() == [3]
    assert update_memory(seen.memory, empty_heartbeats(1), *tunnels([]), NOW).memory is seen.memory


def test_remember_changes_nothing_in_place_and_grows() -> None:
    """The memory given stays as it is; agents beyond its end begin empty."""
    memory = empty_memory(1)
    after = update_memory(memory, empty_heartbeats(3), *tunnels([(0, 7)]), NOW).memory
    assert memory["home"].tolist() == [NO_INSTANCE]
    assert after["home"].tolist() == [7, NO_INSTANCE, NO_INSTANCE]


def after_round(rows: Tunnels, facts: Mapping[str, Any], feed: FeedFreshness) -> npt.NDArray[np.void]:
    """Remember an agent of proxy-1 through a round in which proxy-1 is as described."""
    frame = prepare_frame(
        fleet(proxy_1=facts, tunnels={PROXY_1: feed, PROXY_2: FeedFreshness(NOW, NOW)}), NOW
    )
    first = update_memory(empty_memory(1), empty_heartbeats(1), *tunnels([(0, PROXY_1)]), NOW - 60).memory
    return update_memory(first, empty_heartbeats(1), *rows, NOW, frame).memory


def test_remember_with_frame_takes_a_silent_proxys_last_report_for_no_news() -> None:
    """The tunnel on a silent proxy is lost, and the one it moved to is newer."""
    moved = after_round(tunnels([(0, PROXY_1), (0, PROXY_2)]), SILENT, FeedFreshness(NOW, NOW - 3))
    assert moved["last_proxies"][0].tolist()[:2] == [PROXY_2, PROXY_1]
    assert moved["lost_at"][0] == 0
    assert after_round(tunnels([(0, PROXY_1)]), SILENT, FeedFreshness(NOW, NOW - 3))["lost_at"][0] == NOW


def test_remember_with_frame_loses_nothing_by_not_reading() -> None:
    """A proxy that is fine but was not read lately takes no tunnel away."""
    assert after_round(tunnels([(0, PROXY_1)]), {}, FeedFreshness(NOW - 60, NOW - 60))["lost_at"][0] == 0


def test_remember_counts_the_rounds_of_a_disagreement_and_forgets_them() -> None:
    """An agent claims two tunnels and one is reported: counted up to what makes a verdict, until both views agree."""
    frame = prepare_frame(fleet(), NOW)
    rows = tunnels([(0, PROXY_1)])
    heartbeats, memory = empty_heartbeats(1), empty_memory(1)
    heartbeats["claimed"] = 2
    rounds = []
    for _ in range(TIMING.disagreement_rounds + 5):
        memory = update_memory(memory, heartbeats, *rows, NOW, frame).memory
        rounds.append(int(memory["flags"][0]) >> DISAGREEMENT_SHIFT)
    assert rounds[:3] == [1, 2, 3]
    assert set(rounds[-5:]) == {TIMING.disagreement_rounds}
    assert memory["flags"][0] & HAD_TUNNEL

    heartbeats["claimed"] = 1

    assert update_memory(memory, heartbeats, *rows, NOW, frame).memory["flags"].tolist() == [HAD_TUNNEL]


def test_remember_counts_no_disagreement_of_agents_without_a_tunnel() -> None:
    """Thousands of stranded agents would be written in every round, and their verdict is another one."""
    heartbeats = empty_heartbeats(1)
    heartbeats["claimed"] = 1
    memory = update_memory(empty_memory(1), heartbeats, *tunnels([]), NOW, prepare_frame(fleet(), NOW)).memory
    assert memory["flags"].tolist() == [0]
