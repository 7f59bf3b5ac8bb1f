from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fleet.changes.networking.closing_plan import (
    ClosingPlan,
    ClosingRule,
    ObservedAgent,
    ObservedProxy,
    ObservedTunnel,
    closing_rule_of,
    forecast_closings,
)
from fleet.protocol.networking.config import NetworkingConfig, Strategy
from fleet.protocol.recovery.dial_forecast import dial_seconds_of
from fleet.protocol.recovery.graceful_closing import ClosingPolicy, GracefulClosing, TunnelState
from fleet.protocol.recovery.tracker import TrackerSnapshot

BASE_CONFIG = NetworkingConfig(tunnel_strategy=str(Strategy.PROXY_PEERING), agent_connection_count=1)
RFD = replace(BASE_CONFIG, graceful_tunnel_closing=True)
UPSTREAM = replace(BASE_CONFIG, tunnel_disconnect_threshold=600.0)
MESH = NetworkingConfig(tunnel_strategy=str(Strategy.AGENT_MESH))
P1, P2, P3 = (ObservedProxy(f"p{n}", f"proxy-{n}") for n in (1, 2, 3))
EXPIRED_PROXY = replace(P3, is_tracked=False)


def _agent(name: str, *proxies: str, desired_count: int = 1, sessions: int | None = 0) -> ObservedAgent:
    tunnels = tuple(ObservedTunnel(proxy, sessions, 100.0 + n) for n, proxy in enumerate(proxies))
    return ObservedAgent(name, desired_count, tunnels, can_close=True)


def _plan(after: NetworkingConfig, agents: list[ObservedAgent], *proxies: ObservedProxy) -> ClosingPlan:
    tunnel_counts = {p.id: sum(t.proxy_id == p.id for a in agents for t in a.tunnels) for p in proxies}
    before = replace(after, graceful_tunnel_closing=False, tunnel_disconnect_threshold=0.0)
    return forecast_closings(before, after, agents, proxies, tunnel_counts)


def test_excess_tunnels_close_by_the_rfd_rule() -> None:
    """An agent with two tunnels and one desired closes the newer one after 30 to 60 min."""
    plan = _plan(RFD, [_agent("a", "p1", "p2"), _agent("b", "p2")], P1, P2)
    assert (plan.rule, plan.closing_count, plan.excess_count, plan.expired_count) == (
        ClosingRule.RFD,
        (1, 1),
        (1, 1),
        (0, 0),
    )
    assert (
        plan.agent_count,
        plan.single_tunnel_agent_count,
        plan.affected_agents,
        plan.closing_tunnel_counts,
    ) == (
        (1, 1),
        1,
        ("a",),
        {"a": 2},
    )
    assert [(s.nth, s.tunnel_count, s.earliest_seconds, s.latest_seconds) for s in plan.steps] == [
        (1, 1, 1800.0, 3600.0)
    ]
    assert [(p.name, p.tunnels_before, p.tunnels_after) for p in plan.proxies] == [
        ("proxy-1", 1, (1, 1)),
        ("proxy-2", 2, (1, 1)),
    ]


def test_agents_left_with_a_single_tunnel_are_counted() -> None:
    """Not those that keep two, and not those that close none."""
    agents = [
        _agent("a", "p1", "p2"),
        _agent("b", "p1", "p2", "p3"),
        _agent("c", "p1", "p2", "p3", desired_count=2),
        _agent("d", "p1"),
    ]
    plan = _plan(RFD, agents, P1, P2, P3)
    assert plan.closing_tunnel_counts == {"a": 2, "b": 3, "c": 3}
    assert plan.single_tunnel_agent_count == 2


def test_two_excess_tunnels_close_at_once_by_the_rfd_or_in_steps_upstream() -> None:
    """By the RFD rule each excess tunnel has its own delay; upstream delays each further closing again."""
    agents = [_agent("a", "p1", "p2", "p3"), _agent("b", "p1", "p2")]
    rfd, upstream = _plan(RFD, agents, P1, P2, P3), _plan(UPSTREAM, agents, P1, P2, P3)
    assert [(s.nth, s.tunnel_count, s.earliest_seconds, s.latest_seconds) for s in rfd.steps] == [
        (1, 2, 1800.0, 3600.0),
        (2, 1, 1800.0, 3600.0),
    ]
    assert [(s.nth, s.tunnel_count, s.earliest_seconds) for s in upstream.steps] == [
        (1, 2, 600.0),
        (2, 1, 1200.0),
    ]
    assert upstream.closing_count == rfd.closing_count == (3, 3)


def test_expired_proxies_close_under_the_rfd_rule_only() -> None:
    """Upstream never closes a tunnel to an expired proxy."""
    agents = [_agent("a", "p1", "p3")]
    assert _plan(RFD, agents, P1, EXPIRED_PROXY).expired_count == (1, 1)
    assert _plan(UPSTREAM, agents, P1, EXPIRED_PROXY).closing_count == (0, 0)


def test_agent_mesh_has_no_excess() -> None:
    """Only tunnels to expired proxies close by the RFD rule, none upstream."""
    agents = [_agent("a", "p1", "p2", "p3", desired_count=0)]
    rfd = replace(MESH, graceful_tunnel_closing=True)
    assert _plan(rfd, agents, P1, P2, P3).closing_count == (0, 0)
    plan = _plan(rfd, agents, P1, P2, EXPIRED_PROXY)
    assert (plan.closing_count, plan.excess_count, plan.expired_count) == ((1, 1), (0, 0), (1, 1))
    assert _plan(
        replace(MESH, tunnel_disconnect_threshold=60.0), agents, P1, P2, EXPIRED_PROXY
    ).closing_count == (
        0,
        0,
    )


def test_user_connections_are_counted_or_a_range() -> None:
    """A number if the agent reported its sessions, otherwise a range."""
    plan_with_sessions = _plan(RFD, [_agent("a", "p1", "p2", sessions=3)], P1, P2)
    assert plan_with_sessions.in_use_count == (1, 1)
    plan = _plan(RFD, [_agent("a", "p1", "p2", sessions=None)], P1, P2)
    assert plan.in_use_count == (0, 1)
    assert [proxy.tunnels_after for proxy in plan.proxies] == [(0, 1), (0, 1)]


def test_tunnel_with_the_fewest_sessions_closes_first() -> None:
    """The tunnel with sessions stays, although it is newer."""
    agent = ObservedAgent(
        "a", 1, (ObservedTunnel("p1", 0, 1.0), ObservedTunnel("p2", 2, 9.0)), can_close=True
    )
    plan = _plan(RFD, [agent], P1, P2)
    assert (plan.in_use_count, [p.tunnels_after for p in plan.proxies]) == ((0, 0), [(0, 0), (1, 1)])


def test_sick_proxy_makes_the_forecast_a_range() -> None:
    """It is uncertain whether its tunnel is excess or expired."""
    agents = [_agent("a", "p1", "p2", desired_count=2)]
    two = replace(RFD, agent_connection_count=2)
    assert _plan(two, agents, P1, P2).closing_count == (0, 0)
    three = [_agent("a", "p1", "p2", "p3", desired_count=2)]
    plan = _plan(two, three, P1, replace(P2, is_uncertain=True), P3)
    assert (plan.closing_count, plan.excess_count, plan.expired_count) == ((1, 1), (0, 1), (0, 1))


def test_old_agents_do_not_close_tunnels() -> None:
    """They are counted separately; agents of unknown version make the forecast a range."""
    agents = [
        replace(_agent("a", "p1", "p2"), can_close=False),
        replace(_agent("b", "p1", "p2"), can_close=None),
        _agent("c", "p1", "p2"),
    ]
    plan = _plan(RFD, agents, P1, P2)
    assert (plan.unsupported_agent_count, plan.unknown_version_agent_count, plan.closing_count) == (
        1,
        1,
        (1, 2),
    )
    assert _plan(RFD, agents[1:], P1, P2).closing_count == (2, 2)


def test_lower_connection_count_closes_tunnels_of_agents_without_a_flag() -> None:
    """From two to one: an agent that follows the config closes a tunnel."""
    before, after = replace(RFD, agent_connection_count=2), RFD
    agents = [_agent("a", "p1", "p2", desired_count=2), _agent("b", "p1", "p2", "p3", desired_count=3)]
    plan = forecast_closings(before, after, agents, [P1, P2, P3], {})
    assert (plan.closing_count, plan.affected_agents) == ((1, 1), ("a",))


def test_higher_connection_count_opens_tunnels() -> None:
    """Up to the number of proxies."""
    agents = [_agent("a", "p1"), _agent("b", "p1", "p2")]
    plan = forecast_closings(
        BASE_CONFIG, replace(BASE_CONFIG, agent_connection_count=3), agents, [P1, P2], {}
    )
    assert (plan.opening_count, plan.closing_count, plan.affected_agents) == (1, (0, 0), ("a",))


def test_opened_tunnels_count_in_the_forecast_of_proxies() -> None:
    """With one possible proxy the forecast is exact; among several the load balancer decides."""
    two = replace(BASE_CONFIG, agent_connection_count=2)
    agents = [_agent("a", "p1"), _agent("b", "p1"), _agent("c", "p2", "p1")]
    tunnel_counts = {"p1": 3, "p2": 1}
    plan = forecast_closings(BASE_CONFIG, two, agents, [P1, P2], tunnel_counts)
    assert [(p.name, p.tunnels_before, p.tunnels_after, p.opening_count) for p in plan.proxies] == [
        ("proxy-1", 3, (3, 3), (0, 0)),
        ("proxy-2", 1, (3, 3), (2, 2)),
    ]
    assert (plan.tunnels_before, plan.tunnels_after, plan.dialing_agents) == (
        4,
        (6, 6),
        {"a": (1, 1), "b": (1, 1)},
    )
    three = forecast_closings(BASE_CONFIG, two, agents, [P1, P2, P3], tunnel_counts)
    assert [(p.name, p.tunnels_after) for p in three.proxies][1:] == [
        ("proxy-2", (1, 3)),
        ("proxy-3", (0, 2)),
    ]
    assert three.tunnels_after == (6, 6)


def test_new_tunnels_of_many_agents_are_a_narrow_range() -> None:
    """200 agents open one tunnel each, to one of two other proxies: about 100 at each, never all at one."""
    agents = [_agent(f"a{n}", "p1") for n in range(200)]
    two = replace(BASE_CONFIG, agent_connection_count=2)
    plan = forecast_closings(BASE_CONFIG, two, agents, [P1, P2, P3], {"p1": 200})
    assert [(p.tunnels_before, p.tunnels_after) for p in plan.proxies] == [
        (200, (200, 200)),
        (0, (81, 119)),
        (0, (81, 119)),
    ]
    assert plan.tunnels_after == (400, 400)


def test_agents_with_different_choices_add_up() -> None:
    """Some open a tunnel to a certain proxy, the others to one of two."""
    agents = [_agent(f"a{n}", "p1") for n in range(50)] + [_agent(f"b{n}", "p1", "p2") for n in range(50)]
    three = replace(BASE_CONFIG, agent_connection_count=3)
    plan = forecast_closings(
        replace(BASE_CONFIG, agent_connection_count=1), three, agents, [P1, P2, P3], {"p1": 100, "p2": 50}
    )
    assert [p.tunnels_after for p in plan.proxies] == [(100, 100), (100, 100), (100, 100)]


def test_rule_of_a_config() -> None:
    """A disconnect threshold takes precedence."""
    configs = (BASE_CONFIG, RFD, UPSTREAM, replace(RFD, tunnel_disconnect_threshold=1.0))
    assert [closing_rule_of(config) for config in configs] == [
        ClosingRule.NONE, ClosingRule.RFD, ClosingRule.UPSTREAM, ClosingRule.UPSTREAM,
    ]  # fmt: skip
    assert all(rule.label for rule in ClosingRule)


_PROXIES = [f"p{n}" for n in range(5)]


@given(
    held_proxies=st.lists(st.sampled_from(_PROXIES), min_size=1, unique=True),
    tracked_proxies=st.sets(st.sampled_from(_PROXIES)),
    old_proxies=st.sets(st.sampled_from(_PROXIES)),
    desired_count=st.integers(0, 4),
    upstream=st.booleans(),
)
def test_forecast_equals_the_behaviour_of_an_agent(
    held_proxies: list[str],
    tracked_proxies: set[str],
    old_proxies: set[str],
    desired_count: int,
    upstream: bool,
) -> None:
    """For any tunnels; the last tunnel never closes."""
    base = MESH if desired_count == 0 else replace(BASE_CONFIG, agent_connection_count=desired_count)
    policy = {"tunnel_disconnect_threshold": 10.0} if upstream else {"graceful_tunnel_closing": True}
    after = replace(base, **policy)  # type: ignore[arg-type] # names of fields
    agent = _agent("a", *held_proxies, desired_count=desired_count)
    proxies = [
        ObservedProxy(p, p, is_tracked=p in tracked_proxies, is_newest_generation=p not in old_proxies)
        for p in _PROXIES
    ]
    plan = forecast_closings(base, after, [agent], proxies, dict.fromkeys(held_proxies, 1))

    snapshot = TrackerSnapshot(
        desired_count,
        (),
        tuple(sorted(tracked_proxies)),
        tuple(sorted(tracked_proxies - old_proxies)),
        0.0,
        None,
    )
    closing = GracefulClosing(ClosingPolicy.of(after))
    live_tunnels = {
        t.proxy_id: TunnelState(t.proxy_id, t.opened_at, session_count=0, rtt=0.1) for t in agent.tunnels
    }
    closed_proxies, now = [], 0.0
    for _ in range(40):
        now += 3601.0
        decision = closing.decide(list(live_tunnels.values()), snapshot, now, 0.5)
        if decision is not None:
            closed_proxies.append(decision.proxy)
            del live_tunnels[decision.proxy]
    assert plan.closing_count == (len(closed_proxies), len(closed_proxies))
    assert live_tunnels
    if not upstream:
        after_each = {p.id: p.tunnels_after for p in plan.proxies if p.id in held_proxies}
        assert after_each == {p: (int(p in live_tunnels), int(p in live_tunnels)) for p in held_proxies}


def test_agents_open_no_tunnels_to_a_draining_proxy() -> None:
    """Only a third proxy is left; without one, no tunnel is missing."""
    agents = [_agent("a", "p1", desired_count=1)]
    after = replace(BASE_CONFIG, agent_connection_count=2)
    draining_proxy = replace(P2, is_draining=True)

    def plan_with(*proxies: ObservedProxy) -> ClosingPlan:
        return forecast_closings(BASE_CONFIG, after, agents, proxies, {"p1": 1})

    plan = plan_with(P1, draining_proxy, P3)
    assert plan.opening_count == 1
    assert {proxy.name: proxy.opening_count for proxy in plan.proxies} == {
        "proxy-1": (0, 0),
        "proxy-2": (0, 0),
        "proxy-3": (1, 1),
    }
    assert plan_with(P1, draining_proxy).opening_count == 0


def test_closings_end_when_the_last_agent_has_acted() -> None:
    """Agents learn of the config a moment after the change."""
    plan = forecast_closings(BASE_CONFIG, RFD, [_agent("a", "p1", "p2")], (P1, P2), {"p1": 1, "p2": 1}, 4.0)
    assert [(step.earliest_seconds, step.latest_seconds) for step in plan.steps] == [(1800.0, 3604.0)]
    assert plan.reaction_seconds == 4.0


def test_openings_end_when_the_slowest_agent_has_found_its_proxies() -> None:
    """After the reaction, agents with the most missing tunnels need the most dials; without dials there is no time."""
    agents = [_agent(f"a{number}", "p1") for number in range(60)]
    plan = forecast_closings(
        BASE_CONFIG, replace(BASE_CONFIG, agent_connection_count=3), agents, (P1, P2, P3), {"p1": 60}, 4.0
    )
    assert plan.opening_seconds == 4.0 + dial_seconds_of(1, 2, 3, 60)
    assert forecast_closings(BASE_CONFIG, RFD, agents, (P1, P2), {"p1": 60}, 4.0).opening_seconds == 0.0
