"""Memory of agents: home proxies, last auths and proxies, and the time of lost tunnels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.monitoring.classify import prepare_frame, update_memory
from fleet.monitoring.columns import (
    DISAGREEMENT_SHIFT,
    HAD_TUNNEL,
    NO_INSTANCE,
    VERDICT,
    blank_heartbeats,
    blank_memory,
)
from fleet.monitoring.evidence import FeedFreshness
from fleet.protocol.destination.health import DrainRequest
from fleet.vocabulary.verdicts import State
from fleet.vocabulary.watch import INITIAL_WATCH
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


@pytest.mark.parametrize(
    ("before", "tunnels_now", "after"),
    [
        ([], [5], [5]),
        ([], [6, 5], [5, 6]),
        ([5], [6], [6, 5]),
        ([6, 5], [], [6, 5]),
        # The agent keeps its current proxy while it has a tunnel there, whatever tunnels open and close elsewhere.
        ([5], [5, 6], [5, 6]),
        ([5], [5, 3], [5, 3]),
        ([6, 5], [5, 6], [6, 5]),
        ([6, 5], [6], [6, 5]),
        ([6, 5], [6, 4], [6, 4, 5]),
        ([6, 5, 4], [6, 4], [6, 4, 5]),
        ([6, 5, 4], [6, 4, 7], [6, 7, 4]),
        ([6, 5, 4], [6, 9, 8], [6, 8, 9]),
        # Without it, the newest other one follows.
        ([6, 5], [5], [5, 6]),
        ([6, 5, 4], [5, 4], [5, 4, 6]),
        ([6, 5, 4], [4, 5, 7], [7, 5, 4]),
        ([6, 5, 4], [9, 8, 7, 3], [3, 7, 8]),
    ],
)
def test_last_proxies_begin_with_the_current_one(
    before: Sequence[int], tunnels_now: Sequence[int], after: Sequence[int]
) -> None:
    """Then new ones, present ones and previous ones; at most three, each once."""
    assert last_proxies_after(before, tunnels_now) == after


@settings(max_examples=200, deadline=None)
@given(rounds=st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=12))
def test_current_proxy_changes_only_with_its_tunnel(rounds: Sequence[set[int]]) -> None:
    """Whatever other tunnels open and close, with more tunnels than the memory has slots."""
    memory = blank_memory(1)
    current: int | None = None
    for proxies in rounds:
        memory = update_memory(
            memory, blank_heartbeats(1), *tunnels((0, proxy) for proxy in proxies), NOW
        ).memory
        newest = int(memory["last_proxies"][0, 0])
        if current in proxies or not proxies:
            assert newest == (NO_INSTANCE if current is None else current)
        else:
            assert newest in proxies
            current = newest


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


def current_proxy_after(
    tunnels_now: Sequence[int],
    proxy_1: Mapping[str, Any],
    *,
    working_until: float = 0.0,
    previous_state: State | None = None,
) -> int:
    """Return the current proxy of an agent of proxy-1 after a round with these tunnels and facts of proxy-1."""
    frame = prepare_frame(fleet(proxy_1=proxy_1), NOW)
    memory = update_memory(blank_memory(1), blank_heartbeats(1), *tunnels([(0, PROXY_1)]), NOW - 60).memory
    memory["working_until"] = working_until
    verdicts = None
    if previous_state is not None:
        verdicts = np.zeros(1, VERDICT)
        verdicts["state"] = previous_state
    rows = tunnels((0, proxy) for proxy in tunnels_now)
    after = update_memory(memory, blank_heartbeats(1), *rows, NOW, frame, verdicts).memory
    # A second round without news changes nothing.
    assert update_memory(after, blank_heartbeats(1), *rows, NOW, frame, verdicts).memory is after
    return int(after["last_proxies"][0, 0])


#: Facts of a proxy that drains, and of one that has deregistered and still has tunnels.
DRAINING = {"watch": replace(INITIAL_WATCH, drain_request=DrainRequest("restart", NOW - 5))}
DEREGISTERED = {"gone_at": NOW - 5, "expires_at": NOW + 60}


@pytest.mark.parametrize("facts", [DRAINING, DEREGISTERED])
def test_an_agent_with_another_tunnel_has_left_a_closing_proxy(facts: Mapping[str, Any]) -> None:
    """Its old tunnel stays open while users have connections through it. Without another tunnel it is still there."""
    assert current_proxy_after([PROXY_1, PROXY_2], {}) == PROXY_1
    assert current_proxy_after([PROXY_1, PROXY_2], facts) == PROXY_2
    assert current_proxy_after([PROXY_1], facts) == PROXY_1


def test_a_reconnecting_agent_has_left_its_proxy_once_it_has_a_new_tunnel() -> None:
    """As its campaign counts it; also if the campaign has removed its mark since the previous round."""
    assert current_proxy_after([PROXY_1, PROXY_2], {}, working_until=NOW + 60) == PROXY_2
    assert current_proxy_after([PROXY_1, PROXY_2], {}, working_until=NOW - 60) == PROXY_1
    assert current_proxy_after([PROXY_1, PROXY_2], {}, previous_state=State.WORKING) == PROXY_2
    assert current_proxy_after([PROXY_1, PROXY_2], {}, previous_state=State.HEALTHY) == PROXY_1
    assert current_proxy_after([PROXY_1], {}, working_until=NOW + 60) == PROXY_1


def test_memory_of_agents_at_closing_proxies_only() -> None:
    """A drain of every proxy moves no agent and loses no tunnel."""
    frame = prepare_frame(fleet(proxy_1=DRAINING, proxy_2=DRAINING), NOW)
    first = update_memory(blank_memory(1), blank_heartbeats(1), *tunnels([(0, PROXY_2)]), NOW).memory
    rows = tunnels([(0, PROXY_1), (0, PROXY_2)])
    after = update_memory(first, blank_heartbeats(1), *rows, NOW, frame).memory
    assert after["last_proxies"][0].tolist()[:2] == [PROXY_2, PROXY_1]
    assert after["lost_at"][0] == 0


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
