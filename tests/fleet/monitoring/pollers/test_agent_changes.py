"""Changes of a round, agent by agent: rows to write, changes to show, and changes to record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.monitoring.columns import (
    NO_INSTANCE,
    PLACE,
    REASON_BITS,
    VERDICT,
    ResourcePresence,
    blank_heartbeats,
    blank_memory,
    blank_places,
)
from fleet.monitoring.events import AgentDelta
from fleet.monitoring.pollers.agent_changes import (
    event_changes_of,
    find_changed_agents,
    find_changed_rows,
    history_rows_of,
)
from fleet.monitoring.state.codec import Rows
from fleet.monitoring.state.record import empty_record
from fleet.vocabulary.verdicts import Reason, State

NOW = 1_700_000_000.0


def verdicts_of(*states: State) -> Rows:
    """Return VERDICT rows without a cause."""
    rows: Rows = np.zeros(len(states), VERDICT)
    rows["state"], rows["cause"] = states, NO_INSTANCE
    return rows


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=20), st.integers(0, 3))
def test_changed_rows_are_those_that_differ_and_new_ones(
    pairs: list[tuple[int, int]], new_count: int
) -> None:
    """In any field, ascending, each once."""
    before, after = blank_places(len(pairs)), blank_places(len(pairs) + new_count)
    before["auth"], after["auth"][: len(pairs)] = [old for old, _ in pairs], [new for _, new in pairs]
    expected = [index for index, (old, new) in enumerate(pairs) if old != new]
    assert find_changed_rows(before, after).tolist() == [*expected, *range(len(pairs), len(after))]


@pytest.mark.parametrize(
    ("column", "field", "value", "is_visible", "is_recorded"),
    [
        ("verdicts", "state", State.STRANDED, True, True),
        ("verdicts", "cause", 4, True, True),
        ("verdicts", "reason_and_recovery", Reason.PROXY_UNHEALTHY, False, True),
        ("verdicts", "since", 5.0, False, False),
        ("verdicts", "recovers_at", 5.0, False, True),
        ("verdicts", "recovers_at", 0.0005, False, False),
        ("verdicts", "strands_at", NOW + 5, False, True),
        ("verdicts", "strands_at", NOW, False, False),
        ("places", "presence", ResourcePresence.EXPIRED, False, True),
        ("places", "auth", 3, True, True),
        ("places", "proxy", 3, True, True),
        ("places", "proxies", (1, 2, NO_INSTANCE), False, True),
        ("places", "tunnel_count", 4, False, True),
    ],
)
def test_what_people_see_and_what_is_recorded(
    column: str, field: str, value: object, is_visible: bool, is_recorded: bool
) -> None:
    """A deadline that has passed moves on with the rounds: neither; a second tunnel is recorded, but moves no cell."""
    verdicts, places = verdicts_of(State.HEALTHY, State.HEALTHY), blank_places(2)
    places["presence"] = ResourcePresence.UNEXPIRED
    new = {"verdicts": verdicts.copy(), "places": places.copy()}
    new[column][field][1] = value
    changes = find_changed_agents(
        verdicts, new["verdicts"], places, new["places"], np.array([0, 1], np.uint32), NOW
    )
    assert changes.visible_agents.tolist() == [1] * is_visible
    assert changes.recorded_agents.tolist() == [1] * is_recorded


def test_presence_after_an_upgrade_is_no_change() -> None:
    """Rounds of an earlier version did not record it: not every agent has changed."""
    verdicts, places = verdicts_of(State.HEALTHY), blank_places(1)
    new_places = places.copy()
    new_places["presence"] = ResourcePresence.UNEXPIRED
    changes = find_changed_agents(verdicts, verdicts, places, new_places, np.array([0], np.uint32), NOW)
    assert changes.recorded_agents.tolist() == []


def test_a_new_agent_without_data_is_shown_and_not_recorded() -> None:
    """Its history begins when something is known about it."""
    verdicts, places = verdicts_of(State.UNKNOWN, State.HEALTHY, State.UNKNOWN), blank_places(3)
    places["proxy"][2] = 1
    agents = np.arange(3, dtype=np.uint32)
    changes = find_changed_agents(np.zeros(0, VERDICT), verdicts, np.zeros(0, PLACE), places, agents, NOW)
    assert changes.visible_agents.tolist() == [0, 1, 2]
    assert changes.recorded_agents.tolist() == [1, 2]


def test_history_has_old_and_new_state_and_all_tunnels() -> None:
    """Of an agent with more tunnels than a place can hold too; a new agent was unknown before."""
    verdicts = verdicts_of(State.STRANDED, State.HEALTHY, State.EXCESS)
    verdicts["reason_and_recovery"][0] = Reason.NO_TUNNEL
    places = blank_places(3)
    places["auth"], places["tunnel_count"] = 9, [0, 1, 5]
    tunnels = {1: [4], 2: [8, 3, 5, 4, 6]}
    record = replace(
        empty_record("default"),
        tunnel_agents=np.array([agent for agent, proxies in tunnels.items() for _ in proxies], np.uint32),
        tunnel_proxies=np.array([proxy for proxies in tunnels.values() for proxy in proxies], np.uint16),
        heartbeats=blank_heartbeats(3),
    )
    memory = blank_memory(3)
    memory["tracked_count"], places["presence"] = 3, ResourcePresence.EXPIRED
    rows, proxies = history_rows_of(
        verdicts_of(State.HEALTHY, State.HEALTHY),
        verdicts,
        places,
        memory,
        np.array([0, 2], np.uint32),
        record,
    )
    assert rows["evidence"].tolist() == [ResourcePresence.EXPIRED | 3 << 9] * 2
    assert rows["via_proxy"].tolist() == [NO_INSTANCE] * 2
    assert rows[["agent", "old", "new", "auth"]].tolist() == [
        (0, State.HEALTHY, State.STRANDED, 9),
        (2, State.UNKNOWN, State.EXCESS, 9),
    ]
    assert (rows["reason_and_recovery"] & REASON_BITS).tolist() == [Reason.NO_TUNNEL, Reason.NONE]
    assert rows["tunnel_count"].tolist() == [0, 5]
    assert proxies.tolist() == [3, 4, 5, 6, 8]


def test_events_name_state_and_place() -> None:
    """By agent index, in plain numbers that JSON can carry."""
    verdicts, places = verdicts_of(State.HEALTHY, State.STRANDED), blank_places(2)
    verdicts["cause"][1], places["proxy"][1], places["auth"][1] = 3, 2, 1
    changes = event_changes_of(verdicts, places, np.array([1], np.uint32))
    assert changes == (AgentDelta(1, State.STRANDED, proxy=2, auth=1, cause=3),)
    assert {type(value) for value in changes[0]} == {int, State}
