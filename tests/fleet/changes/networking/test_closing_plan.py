from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as some

from fleet.changes.networking.closing_plan import (
    ClosingPlan,
    ClosingRule,
    ObservedAgent,
    ObservedProxy,
    ObservedTunnel,
    forecast_closings,
    rule_of,
)
from fleet.protocol.networking.config import NetworkingConfig, Strategy
from fleet.protocol.recovery.graceful_closing import ClosingPolicy, GracefulClosing, LiveTunnel
from fleet.protocol.recovery.tracker import TrackerSnapshot

ONE = NetworkingConfig(tunnel_strategy=str(Strategy.PROXY_PEERING), agent_connection_count=1)
RFD = replace(ONE, graceful_tunnel_closing=True)
UPSTREAM = replace(ONE, tunnel_disconnect_threshold=600.0)
MESH = NetworkingConfig(tunnel_strategy=str(Strategy.AGENT_MESH))
P1, P2, P3 = (ObservedProxy(f"p{n}", f"proxy-{n}") for n in (1, 2, 3))
GONE = replace(P3, is_tracked=False)


def _agent(name: str, *proxies: str, desired: int = 1, sessions: int | None = 0) -> ObservedAgent:
    tunnels = tuple(ObservedTunnel(proxy, sessions, 100.0 + n) for n, proxy in enumerate(proxies))
    return ObservedAgent(name, desired, tunnels, can_close=True)


def _plan(after: NetworkingConfig, agents: list[ObservedAgent], *proxies: ObservedProxy) -> ClosingPlan:
    held = {p.id: sum(t.proxy_id == p.id for a in agents for t in a.tunnels) for p in proxies}
    before = replace(after, graceful_tunnel_closing=False, tunnel_disconnect_threshold=0.0)
    return forecast_closings(before, after, agents, proxies, held)


def test_excess_under_the_rfd_rule() -> None:
    """Who has two and wants one closes the newer; nothing before 30 minutes, all within 60."""
    plan = _plan(RFD, [_agent("a", "p1", "p2"), _agent("b", "p2")], P1, P2)
    assert (plan.rule, plan.closes, plan.excess, plan.expired) == (ClosingRule.RFD, (1, 1), (1, 1), (0, 0))
    assert (plan.agents, plan.left_with_one, plan.affected_agents, plan.closing_tunnel_counts) == (
        (1, 1),
        1,
        ("a",),
        {"a": 2},
    )
    assert [(s.nth, s.tunnels, s.earliest, s.latest) for s in plan.steps] == [(1, 1, 1800.0, 3600.0)]
    assert [(p.name, p.before, p.after) for p in plan.proxies] == [
        ("proxy-1", 1, (1, 1)),
        ("proxy-2", 2, (1, 1)),
    ]


def test_excess_of_two_closes_within_one_wait_or_by_stairs() -> None:
    """Each surplus tunnel has its own wait by the RFD's rule; under upstream's each further closing waits anew."""
    agents = [_agent("a", "p1", "p2", "p3"), _agent("b", "p1", "p2")]
    rfd, upstream = _plan(RFD, agents, P1, P2, P3), _plan(UPSTREAM, agents, P1, P2, P3)
    assert [(s.nth, s.tunnels, s.earliest, s.latest) for s in rfd.steps] == [
        (1, 2, 1800.0, 3600.0),
        (2, 1, 1800.0, 3600.0),
    ]
    assert [(s.nth, s.tunnels, s.earliest) for s in upstream.steps] == [(1, 2, 600.0), (2, 1, 1200.0)]
    assert upstream.closes == rfd.closes == (3, 3)


def test_expired_proxies_close_under_the_rfd_rule_only() -> None:
    """Upstream never closes a tunnel to a proxy nobody tracks."""
    agents = [_agent("a", "p1", "p3")]
    assert _plan(RFD, agents, P1, GONE).expired == (1, 1)
    assert _plan(UPSTREAM, agents, P1, GONE).closes == (0, 0)


def test_agent_mesh_has_no_excess() -> None:
    """Only tunnels to expired proxies close under the RFD's rule, none under upstream's."""
    agents = [_agent("a", "p1", "p2", "p3", desired=0)]
    rfd = replace(MESH, graceful_tunnel_closing=True)
    assert _plan(rfd, agents, P1, P2, P3).closes == (0, 0)
    plan = _plan(rfd, agents, P1, P2, GONE)
    assert (plan.closes, plan.excess, plan.expired) == ((1, 1), (0, 0), (1, 1))
    assert _plan(replace(MESH, tunnel_disconnect_threshold=60.0), agents, P1, P2, GONE).closes == (0, 0)


def test_user_connections_are_counted_or_a_range() -> None:
    """Users where the agent said so; where it was not asked, anything from none to all, also per proxy."""
    told = _plan(RFD, [_agent("a", "p1", "p2", sessions=3)], P1, P2)
    assert told.carrying == (1, 1)
    plan = _plan(RFD, [_agent("a", "p1", "p2", sessions=None)], P1, P2)
    assert plan.carrying == (0, 1)
    assert [proxy.after for proxy in plan.proxies] == [(0, 1), (0, 1)]


def test_fewest_users_go_first() -> None:
    """The tunnel that serves stays, though it is newer."""
    agent = ObservedAgent(
        "a", 1, (ObservedTunnel("p1", 0, 1.0), ObservedTunnel("p2", 2, 9.0)), can_close=True
    )
    plan = _plan(RFD, [agent], P1, P2)
    assert (plan.carrying, [p.after for p in plan.proxies]) == ((0, 0), [(0, 0), (1, 1)])


def test_sick_proxy_makes_a_range() -> None:
    """With it, one is too many; without it, the one on it is closed only because others stand: the ends differ."""
    agents = [_agent("a", "p1", "p2", desired=2)]
    two = replace(RFD, agent_connection_count=2)
    assert _plan(two, agents, P1, P2).closes == (0, 0)
    three = [_agent("a", "p1", "p2", "p3", desired=2)]
    plan = _plan(two, three, P1, replace(P2, is_uncertain=True), P3)
    assert (plan.closes, plan.excess, plan.expired) == ((1, 1), (0, 1), (0, 1))


def test_agents_too_old_do_not_close() -> None:
    """They are counted apart; beside them, those whose version nobody knows make a range."""
    agents = [
        replace(_agent("a", "p1", "p2"), can_close=False),
        replace(_agent("b", "p1", "p2"), can_close=None),
        _agent("c", "p1", "p2"),
    ]
    plan = _plan(RFD, agents, P1, P2)
    assert (plan.too_old, plan.version_unknown, plan.closes) == (1, 1, (1, 2))
    assert _plan(RFD, agents[1:], P1, P2).closes == (2, 2)


def test_fewer_tunnels_wanted_makes_excess_but_own_flags_stay() -> None:
    """The count falls from two to one: who follows the config closes one, who has a flag of its own does not."""
    before, after = replace(RFD, agent_connection_count=2), RFD
    agents = [_agent("a", "p1", "p2", desired=2), _agent("b", "p1", "p2", "p3", desired=3)]
    plan = forecast_closings(before, after, agents, [P1, P2, P3], {})
    assert (plan.closes, plan.affected_agents) == ((1, 1), ("a",))


def test_more_tunnels_wanted_are_dialled() -> None:
    """Nothing closes; who has one dials another, as far as there are proxies."""
    agents = [_agent("a", "p1"), _agent("b", "p1", "p2")]
    plan = forecast_closings(ONE, replace(ONE, agent_connection_count=3), agents, [P1, P2], {})
    assert (plan.opens, plan.closes, plan.affected_agents) == (1, (0, 0), ("a",))


def test_tunnels_that_are_dialled_count_in_the_outlook_of_proxies() -> None:
    """Where an agent can dial only one proxy it is that one; among several the load balancer decides."""
    two = replace(ONE, agent_connection_count=2)
    agents = [_agent("a", "p1"), _agent("b", "p1"), _agent("c", "p2", "p1")]
    held = {"p1": 3, "p2": 1}
    plan = forecast_closings(ONE, two, agents, [P1, P2], held)
    assert [(p.name, p.before, p.after, p.dials) for p in plan.proxies] == [
        ("proxy-1", 3, (3, 3), (0, 0)),
        ("proxy-2", 1, (3, 3), (2, 2)),
    ]
    assert (plan.tunnels, plan.tunnels_after, plan.dialing_agents) == (4, (6, 6), {"a": (1, 1), "b": (1, 1)})
    three = forecast_closings(ONE, two, agents, [P1, P2, P3], held)
    assert [(p.name, p.after) for p in three.proxies][1:] == [("proxy-2", (1, 3)), ("proxy-3", (0, 2))]
    assert three.tunnels_after == (6, 6)


def test_rule_of_a_config() -> None:
    """By name; a threshold wins."""
    assert [rule_of(one) for one in (ONE, RFD, UPSTREAM, replace(RFD, tunnel_disconnect_threshold=1.0))] == [
        ClosingRule.NONE, ClosingRule.RFD, ClosingRule.UPSTREAM, ClosingRule.UPSTREAM,
    ]  # fmt: skip
    assert all(rule.label for rule in ClosingRule)


_PROXIES = [f"p{n}" for n in range(5)]


@given(
    held=some.lists(some.sampled_from(_PROXIES), min_size=1, unique=True),
    tracked=some.sets(some.sampled_from(_PROXIES)),
    old=some.sets(some.sampled_from(_PROXIES)),
    wanted=some.integers(0, 4),
    upstream=some.booleans(),
)
def test_plan_equals_what_an_agent_does(
    held: list[str], tracked: set[str], old: set[str], wanted: int, upstream: bool
) -> None:
    """Law: the number foreseen is the number the agent's own machine closes, and never the last tunnel."""
    base = MESH if wanted == 0 else replace(ONE, agent_connection_count=wanted)
    policy = {"tunnel_disconnect_threshold": 10.0} if upstream else {"graceful_tunnel_closing": True}
    after = replace(base, **policy)  # type: ignore[arg-type] # names of fields
    agent = _agent("a", *held, desired=wanted)
    proxies = [ObservedProxy(p, p, is_tracked=p in tracked, is_newest=p not in old) for p in _PROXIES]
    plan = forecast_closings(base, after, [agent], proxies, dict.fromkeys(held, 1))

    snapshot = TrackerSnapshot(wanted, (), tuple(sorted(tracked)), tuple(sorted(tracked - old)), 0.0, None)
    machine = GracefulClosing(ClosingPolicy.of(after))
    live = {t.proxy_id: LiveTunnel(t.proxy_id, t.opened_at, sessions=0, rtt=0.1) for t in agent.tunnels}
    closed, now = [], 0.0
    for _ in range(40):
        now += 3601.0
        decided = machine.decide(list(live.values()), snapshot, now, 0.5)
        if decided is not None:
            closed.append(decided.proxy)
            del live[decided.proxy]
    assert plan.closes == (len(closed), len(closed))
    assert live
    if not upstream:
        after_each = {p.id: p.after for p in plan.proxies if p.id in held}
        assert after_each == {p: (int(p in live), int(p in live)) for p in held}
