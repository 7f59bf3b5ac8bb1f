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
    expected_duration_seconds_of,
    format_range,
    has_tunnel_moves,
    is_done,
    moves_tunnels,
    plan_of,
)
from fleet.protocol.networking.config import NetworkingConfig, Strategy

BASE_CONFIG = NetworkingConfig(tunnel_strategy=str(Strategy.PROXY_PEERING), agent_connection_count=1)
RFD = replace(BASE_CONFIG, graceful_tunnel_closing=True)
MESH = NetworkingConfig()
PROXIES = tuple(ObservedProxy(f"p{n}", f"proxy-{n}") for n in (1, 2))


def _fleet(*, desired_count: int = 1, is_uncertain: bool = False) -> FleetSnapshot:
    agent = ObservedAgent(
        "a", desired_count, (ObservedTunnel("p1", 0, 1.0), ObservedTunnel("p2", 1, 2.0)), can_close=True
    )
    proxies = (PROXIES[0], replace(PROXIES[1], is_uncertain=is_uncertain))
    return FleetSnapshot((agent,), proxies, {"p1": 1, "p2": 1}, agent_count=5, as_of=100.0, age_seconds=1.23)


def test_plan_is_json_with_the_count_in_its_question() -> None:
    """The plan is stored with the change."""
    plan = plan_of(BASE_CONFIG, RFD, _fleet())
    assert json.loads(json.dumps(plan)) == plan
    assert plan["question"] == "Close 1 tunnel of 1 agent?"
    assert (plan["affected_count"], plan["data_age_seconds"], plan["closing_tunnel_counts"]) == (
        1,
        1.2,
        {"a": 2},
    )
    assert plan["previous_rule"] == "no rule: no tunnels close"
    assert expected_duration_seconds_of(plan) == 3600.0


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (replace(MESH, graceful_tunnel_closing=True), "only tunnels to expired proxies"),
        (replace(MESH, tunnel_disconnect_threshold=60.0), "no effect without proxy peering"),
    ],
)
def test_plan_explains_agent_mesh(after: NetworkingConfig, text: str) -> None:
    """A note explains why no tunnel closes."""
    plan = plan_of(MESH, after, _fleet(desired_count=0))
    assert plan["closing"]["closing_count"] == [0, 0]
    assert any(text in note for note in plan["notes"])
    assert plan["question"] == ""


def test_lower_connection_count_without_a_rule_closes_no_tunnel() -> None:
    """A note says so."""
    two = replace(BASE_CONFIG, agent_connection_count=2)
    plan = plan_of(two, BASE_CONFIG, _fleet(desired_count=2))
    assert plan["closing"]["closing_count"] == [0, 0]
    assert any("1 tunnel of 1 agent stays open for ever" in note for note in plan["notes"])


def test_plan_to_turn_the_rule_off_names_the_tunnels_that_stay() -> None:
    """The form names the same number."""
    plan = plan_of(RFD, BASE_CONFIG, _fleet())
    assert any("1 tunnel of 1 agent stays open for ever" in note for note in plan["notes"])


def test_question_contains_the_count_of_new_tunnels() -> None:
    plan = plan_of(BASE_CONFIG, replace(BASE_CONFIG, agent_connection_count=3), replace(_fleet(), agents=(
        ObservedAgent("a", 1, (ObservedTunnel("p1"),), can_close=True),
    )))  # fmt: skip
    assert plan["question"] == "Open 1 more tunnel from 1 agent?"
    assert plan["closing"]["opening_agent_count"] == 1


def test_question_counts_only_agents_that_open_tunnels() -> None:
    """Another keep-alive interval affects every agent, but opens no tunnels."""
    agents = (ObservedAgent("a", 1, (ObservedTunnel("p1"),)),)
    after = replace(BASE_CONFIG, agent_connection_count=2, keep_alive_interval=10.0)
    plan = plan_of(BASE_CONFIG, after, replace(_fleet(), agents=agents, agent_count=20))
    assert plan["affected_count"] == 20
    assert plan["question"] == "Open 1 more tunnel from 1 agent?"


def test_comparison_counts_opened_tunnels() -> None:
    """Up to the forecast of each agent; deregistered agents open no tunnels."""
    agents = (ObservedAgent("a", 1, (ObservedTunnel("p1"),)), ObservedAgent("b", 1, (ObservedTunnel("p1"),)))
    plan = plan_of(
        BASE_CONFIG, replace(BASE_CONFIG, agent_connection_count=2), replace(_fleet(), agents=agents)
    )
    assert has_tunnel_moves(plan)
    assert compared_agents_of(plan) == {"a", "b"}
    assert expected_duration_seconds_of(plan) == 60.0
    partial = compare_with_plan(plan, {"a": 3, "b": 1})
    assert (partial["opened_count"], partial["expected_opened_count"], is_done(partial)) == (1, 2, False)
    assert describe_outcome(partial) == "1 tunnel opened, 1 fewer than expected (2)"
    without_agent = compare_with_plan(plan, {"a": 2})
    assert (without_agent["opened_count"], without_agent["missing_agent_count"]) == (1, 1)
    complete = compare_with_plan(plan, {"a": 2, "b": 2})
    assert is_done(complete)
    assert describe_outcome(complete) == "2 tunnels opened, as expected"


def test_notes_name_sick_proxies_old_agents_and_sessions() -> None:
    """One note each."""
    fleet = _fleet(is_uncertain=True)
    old_agent = replace(fleet.agents[0], id="b", can_close=False)
    busy_agent = replace(
        fleet.agents[0], id="c", tunnels=(ObservedTunnel("p1", 1, 1.0), ObservedTunnel("p2", 1, 2.0))
    )
    notes = " ".join(
        plan_of(BASE_CONFIG, RFD, replace(fleet, agents=(*fleet.agents, old_agent, busy_agent)))["notes"]
    )
    for text in ("Not healthy now: proxy-2", "1 agents with excess tunnels", "ends with its last"):
        assert text in notes


def test_other_fields_move_no_tunnel() -> None:
    """They need no fleet snapshot; a changed keep-alive interval has a note."""
    after = replace(BASE_CONFIG, keep_alive_interval=10.0, idle_timeout_message="bye")
    assert not moves_tunnels(BASE_CONFIG, after)
    plan = plan_of(BASE_CONFIG, after, None)
    assert "detected after 30 s (now 15 min)" in plan["notes"][0]
    assert "idle_timeout_message" in plan["notes"][1]
    assert expected_duration_seconds_of(plan) == 0.0


@pytest.mark.parametrize(
    ("current_counts", "expected"),
    [
        ({"a": 1}, {"closed_count": 1, "missing_agent_count": 0, "difference": 0}),
        ({"a": 2}, {"closed_count": 0, "missing_agent_count": 0, "difference": -1}),
        ({"a": 0}, {"closed_count": 2, "missing_agent_count": 0, "difference": 1}),
        ({}, {"closed_count": 0, "missing_agent_count": 1, "difference": -1}),
    ],
)
def test_comparison_contains_the_difference(current_counts: dict[str, int], expected: dict[str, int]) -> None:
    """More or fewer than the forecast, or equal to it."""
    comparison = compare_with_plan(plan_of(BASE_CONFIG, RFD, _fleet()), current_counts)
    assert comparison == {
        **expected,
        "expected_closed_count": [1, 1],
        "opened_count": 0,
        "expected_opened_count": 0,
    }


def test_range_is_formatted_as_text() -> None:
    """One number if both ends are equal."""
    assert (format_range((3, 3)), format_range([1000, 2000])) == ("3", "1,000 to 2,000")
