from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fleet.changes.networking.closing_plan import ObservedAgent, ObservedProxy, ObservedTunnel
from fleet.changes.networking.plan import (
    FleetSnapshot,
    compare_with_plan,
    compared_agents_of,
    describe_outcome,
    end_seconds_of,
    format_range,
    has_tunnel_moves,
    is_done,
    moves_tunnels,
    plan_of,
)
from fleet.protocol.networking.config import NetworkingConfig, Strategy

ONE = NetworkingConfig(tunnel_strategy=str(Strategy.PROXY_PEERING), agent_connection_count=1)
RFD = replace(ONE, graceful_tunnel_closing=True)
MESH = NetworkingConfig()
PROXIES = tuple(ObservedProxy(f"p{n}", f"proxy-{n}") for n in (1, 2))


def _fleet(*, desired: int = 1, unsure: bool = False) -> FleetSnapshot:
    agent = ObservedAgent(
        "a", desired, (ObservedTunnel("p1", 0, 1.0), ObservedTunnel("p2", 1, 2.0)), can_close=True
    )
    proxies = (PROXIES[0], replace(PROXIES[1], is_uncertain=unsure))
    return FleetSnapshot((agent,), proxies, {"p1": 1, "p2": 1}, agent_count=5, as_of=100.0, age_seconds=1.23)


def test_plan_is_json_with_the_number_in_its_question() -> None:
    """It is kept with the change, as it was shown."""
    plan = plan_of(ONE, RFD, _fleet())
    assert json.loads(json.dumps(plan)) == plan
    assert plan["question"] == "Close 1 tunnel of 1 agent?"
    assert (plan["agents"], plan["age"], plan["watched"]) == (1, 1.2, {"a": 2})
    assert plan["rule_before"] == "no rule: no tunnels close"
    assert end_seconds_of(plan) == 3600.0


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (replace(MESH, graceful_tunnel_closing=True), "only tunnels to expired proxies"),
        (replace(MESH, tunnel_disconnect_threshold=60.0), "no effect without proxy peering"),
    ],
)
def test_agent_mesh_is_explained(after: NetworkingConfig, words: str) -> None:
    """Before the operator wonders why nothing happens."""
    plan = plan_of(MESH, after, _fleet(desired=0))
    assert plan["closing"]["closes"] == [0, 0]
    assert any(words in note for note in plan["notes"])
    assert plan["question"] == "Change the networking config? No tunnels close."


def test_fewer_wanted_without_a_rule_closes_none() -> None:
    """The number alone lets nothing go, and the plan says so."""
    two = replace(ONE, agent_connection_count=2)
    plan = plan_of(two, ONE, _fleet(desired=2))
    assert plan["closing"]["closes"] == [0, 0]
    assert any("no closing rule is enabled" in note for note in plan["notes"])


def test_more_wanted_are_dialled() -> None:
    """The question has that number."""
    plan = plan_of(ONE, replace(ONE, agent_connection_count=3), replace(_fleet(), agents=(
        ObservedAgent("a", 1, (ObservedTunnel("p1"),), can_close=True),
    )))  # fmt: skip
    assert plan["question"] == "Open 1 more tunnel from 1 agent?"


def test_compare_counts_what_is_dialled() -> None:
    """Up to what was foreseen of each agent; one that left dials no more. All of it is there before it is done."""
    agents = (ObservedAgent("a", 1, (ObservedTunnel("p1"),)), ObservedAgent("b", 1, (ObservedTunnel("p1"),)))
    plan = plan_of(ONE, replace(ONE, agent_connection_count=2), replace(_fleet(), agents=agents))
    assert has_tunnel_moves(plan)
    assert compared_agents_of(plan) == {"a", "b"}
    assert end_seconds_of(plan) == 60.0
    some = compare_with_plan(plan, {"a": 3, "b": 1})
    assert (some["dialled"], some["to_dial"], is_done(some)) == (1, 2, False)
    assert describe_outcome(some) == "1 tunnel opened, expected: 2"
    gone = compare_with_plan(plan, {"a": 2})
    assert (gone["dialled"], gone["gone"]) == (1, 1)
    done = compare_with_plan(plan, {"a": 2, "b": 2})
    assert is_done(done)
    assert describe_outcome(done) == "2 tunnels opened, as expected"


def test_sick_proxies_old_agents_and_users_are_named() -> None:
    """Each is a note."""
    fleet = _fleet(unsure=True)
    old = replace(fleet.agents[0], id="b", can_close=False)
    users = replace(
        fleet.agents[0], id="c", tunnels=(ObservedTunnel("p1", 1, 1.0), ObservedTunnel("p2", 1, 2.0))
    )
    notes = " ".join(plan_of(ONE, RFD, replace(fleet, agents=(*fleet.agents, old, users)))["notes"])
    for words in ("Not healthy now: proxy-2", "1 agents with excess tunnels", "ends with its last"):
        assert words in notes


def test_other_fields_touch_no_tunnel() -> None:
    """They need no sight of the fleet; pings say what they change."""
    after = replace(ONE, keep_alive_interval=10.0, idle_timeout_message="bye")
    assert not moves_tunnels(ONE, after)
    plan = plan_of(ONE, after, None)
    assert "detected after 30s (now 15m0s)" in plan["notes"][0]
    assert "idle_timeout_message" in plan["notes"][1]
    assert end_seconds_of(plan) == 0.0


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({"a": 1}, {"closed": 1, "gone": 0, "difference": 0}),
        ({"a": 2}, {"closed": 0, "gone": 0, "difference": -1}),
        ({"a": 0}, {"closed": 2, "gone": 0, "difference": 1}),
        ({}, {"closed": 0, "gone": 1, "difference": -1}),
    ],
)
def test_compare_shows_the_difference(now: dict[str, int], expected: dict[str, int]) -> None:
    """More, fewer, or as foreseen; an agent that left closed nothing."""
    found = compare_with_plan(plan_of(ONE, RFD, _fleet()), now)
    assert found == {**expected, "foreseen": [1, 1], "dialled": 0, "to_dial": 0}


def test_said() -> None:
    """One number where there is no doubt."""
    assert (format_range((3, 3)), format_range([1000, 2000])) == ("3", "1,000 to 2,000")
