"""The connections that campaigns move, and steps of campaigns that move auth connections."""

from __future__ import annotations

from collections import Counter
from uuid import NAMESPACE_DNS, uuid5

import numpy as np
import pytest
from django.contrib.auth.models import User
from typing_extensions import override

from fleet.changes import ChangeRefusedError
from fleet.changes.campaigns import campaigns
from fleet.changes.campaigns.forecast import TargetAgents
from fleet.changes.campaigns.move_strategies import (
    AuthMoveStrategy,
    CampaignSnapshot,
    MoveStrategy,
    TunnelMoveStrategy,
    create_move_strategy,
)
from fleet.models.actions import CampaignAgent
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.vocabulary.campaigns import (
    AgentOutcome,
    AgentSnapshot,
    AuthSnapshot,
    CampaignAgentState,
    CampaignSettings,
    ConnectionKind,
    ProxySnapshot,
)
from fleet.vocabulary.changes import ChangeState
from tests.fakes.campaign_fleet import CampaignFleet
from tests.fleet.changes.conftest import NOW, CampaignScenario, actor_of

_AUTHS = {"a": AuthSnapshot("auth-1", False, 9), "b": AuthSnapshot("auth-2", True)}
_PROXIES = {
    "p": ProxySnapshot("proxy-1", True),
    "q": ProxySnapshot("proxy-2", True),
    "old": ProxySnapshot("proxy-3", False),
    "dead": ProxySnapshot("proxy-4", False, is_reachable=False),
}


class FakeSnapshot(CampaignSnapshot):
    """The auths and proxies above, and one agent."""

    def __init__(self, agent: AgentSnapshot | None = None) -> None:
        self.proxies, self.auths, self._agent = _PROXIES, _AUTHS, agent

    @override
    def find_agent(self, agent_id: str) -> AgentSnapshot | None:
        return self._agent


def _agent(*proxies: str, desired_count: int = 1, auth: str = "a", is_retired: bool = False) -> AgentSnapshot:
    return AgentSnapshot(frozenset(proxies), desired_count, is_retired, auth)


def _decide_outcome(
    strategy: MoveStrategy,
    agent: AgentSnapshot | None,
    age: float,
    *,
    from_instance: str,
    initial_proxies: str = "",
) -> AgentOutcome | None:
    row = CampaignAgent(
        agent_id="x", from_instance=from_instance, initial_proxies=list(initial_proxies), requested_at=100.0
    )
    return strategy.decide_outcome(row, FakeSnapshot(agent), CampaignSettings(), 100.0 + age)


def _campaign(cluster: Cluster, user: User, fleet: CampaignFleet, **settings: int) -> CampaignScenario:
    return CampaignScenario(
        cluster, user, fleet, ("auth-0",), ConnectionKind.AUTH, **{"rate_per_minute": 6000, **settings}
    )


def _rows(campaign: CampaignScenario) -> dict[str, CampaignAgent]:
    return {row.agent_id: row for row in campaign.change.campaign_agents.all()}


def test_snapshot_of_a_table() -> None:
    """Tunnels, desired counts, auths and stranded agents."""
    fleet = CampaignFleet(
        {"a": {0, 2}, "b": {1}},
        desired_count=2,
        stranded_agents={"b"},
        sick_proxies={1},
        auths=3,
        auth_of={"a": 1},
    )
    fleet.sick_auths, fleet.drained_auths = {1}, {2}
    snapshot = CampaignSnapshot(fleet.table(1.0), {"a"})
    agent = snapshot.find_agent("a")
    assert agent is not None
    assert (agent.proxies, agent.desired_count, agent.auth) == (
        frozenset({"proxy-0", "proxy-2"}),
        2,
        "auth-1",
    )
    assert snapshot.find_agent("b") is None
    assert snapshot.stranded_count == 1
    assert [proxy.is_usable for proxy in snapshot.proxies.values()] == [True, False, True]
    assert snapshot.auths == {
        "auth-0": AuthSnapshot("auth-0", True, 0),
        "auth-1": AuthSnapshot("auth-1", False, 1),
        "auth-2": AuthSnapshot("auth-2", False, 0),
    }
    assert [snapshot.name_of(instance) for instance in ("proxy-0", "auth-1", "lost")] == [
        "proxy-0",
        "auth-1",
        "lost",
    ]


def test_move_strategy_follows_the_parameters() -> None:
    """A change without the parameter moves tunnels."""
    assert isinstance(create_move_strategy("auth", ()), AuthMoveStrategy)
    assert isinstance(create_move_strategy("tunnel", ()), TunnelMoveStrategy)
    assert isinstance(campaigns.move_strategy_of(Change(parameters={"leave": []})), TunnelMoveStrategy)


def test_agents_leave_the_auth_and_keep_their_tunnels(cluster: Cluster, alice: User) -> None:
    """Canaries first; each agent gets one advisory through a proxy to which it has a tunnel."""
    fleet = CampaignFleet.on_auths(120)
    original_tunnels = {agent: set(proxies) for agent, proxies in fleet.agents.items()}
    campaign = _campaign(cluster, alice, fleet, canary_size=3)
    plan = campaign.change.plan
    assert (plan["reconnect_count"], plan["agents_by_instance"], plan["destinations"]) == (
        120,
        {"auth-0": 120},
        {"auth-1": 0},
    )
    assert plan["question"] == "Move 120 agents off auth-0 to another auth?"
    campaign.confirm()
    campaign.step()
    assert campaigns.counts_of(campaign.change).active_count == 3
    assert campaign.run_until_ended().state == ChangeState.VERIFIED
    assert campaigns.counts_of(campaign.change).succeeded_count == 120
    assert set(fleet.auth_of.values()) == {1}
    assert fleet.agents == original_tunnels
    assert set(fleet.advisory_counts.values()) == {1}
    assert all(proxy in original_tunnels[agent] for agent, proxy in fleet.relay_proxies.items())
    assert fleet.marked_agents == set(fleet.agents)
    row = _rows(campaign)["agent-1"]
    assert (row.from_instance, row.via_proxy, row.new_auth, row.new_proxy) == (
        "auth-0",
        "proxy-1",
        "auth-1",
        "",
    )


def test_agents_in_progress_per_auth_are_limited(cluster: Cluster, alice: User) -> None:
    """The limit holds across proxies."""
    fleet = CampaignFleet.on_auths(60, stubborn_agents={f"agent-{n}" for n in range(60)})
    campaign = _campaign(cluster, alice, fleet, canary_size=0, concurrency=4, timeout_seconds=3600)
    campaign.confirm()
    campaign.step(5)
    assert campaigns.counts_of(campaign.change).active_count == 4
    assert "in progress per auth" in campaigns.progress_of(campaign.change, campaign.now)["waiting_for"]


def test_agent_that_no_other_auth_accepts_fails(cluster: Cluster, alice: User) -> None:
    """As a canary it pauses the campaign before other agents get an advisory."""
    fleet = CampaignFleet.on_auths(30, agents_without_alternative={"agent-0"})
    campaign = _campaign(cluster, alice, fleet, canary_size=2, timeout_seconds=30)
    campaign.confirm()
    assert campaign.run_until_ended().state == ChangeState.PAUSED
    row = _rows(campaign)["agent-0"]
    assert row.state == CampaignAgentState.FAILED
    assert row.reason == "the agent kept its auth connection: no other auth accepted a heartbeat: it drains"
    assert campaign.now - NOW.timestamp() < 30
    assert fleet.advisory_counts.total() == 2


def test_agent_that_does_not_respond_fails_after_its_timeout(cluster: Cluster, alice: User) -> None:
    """An older agent does not support the advisory."""
    campaign = _campaign(
        cluster,
        alice,
        CampaignFleet.on_auths(3, stubborn_agents={"agent-0"}),
        canary_size=0,
        timeout_seconds=5,
    )
    campaign.confirm()
    assert campaign.run_until_ended().state == ChangeState.FAILED
    assert (
        "timed out: the agent sent no heartbeat through an auth other than auth-0 within 5 s"
        in _rows(campaign)["agent-0"].reason
    )


def test_agent_that_cannot_move_or_has_moved_is_skipped(cluster: Cluster, alice: User) -> None:
    """Each has a reason."""
    fleet = CampaignFleet(
        {"here": {0}, "bare": set(), "silent": {0}, "there": {0}, "old": {0}},
        auths=2,
        auth_of={"here": 0, "bare": 0, "there": 1, "old": 0},
        retired_agents={"old"},
    )
    campaign = _campaign(cluster, alice, fleet, canary_size=0)
    campaign.confirm()
    assert campaign.run_until_ended().state == ChangeState.VERIFIED
    rows = _rows(campaign)
    assert rows["here"].state == "succeeded"
    assert "no tunnel" in rows["bare"].reason
    assert "not sent a heartbeat" in rows["silent"].reason
    assert rows["there"].reason == "the agent is already connected to auth-1"
    assert "retired" in rows["old"].reason
    assert set(fleet.advisory_counts) == {"here"}


@pytest.mark.parametrize("other_auth", ["sick", "drained", "none"])
def test_campaign_without_another_healthy_auth_is_refused(
    cluster: Cluster, alice: User, other_auth: str
) -> None:
    """The only other auth is sick or drained, or there is none."""
    fleet = CampaignFleet.on_auths(3, auths=1 if other_auth == "none" else 2)
    fleet.sick_auths |= {1} if other_auth == "sick" else set()
    fleet.drained_auths |= {1} if other_auth == "drained" else set()
    with pytest.raises(ChangeRefusedError, match="no other healthy auth"):
        _campaign(cluster, alice, fleet)


def test_unreachable_relay_proxy_is_replaced(cluster: Cluster, alice: User) -> None:
    """An agent with two tunnels gets the advisory through the other one."""
    fleet = CampaignFleet({f"agent-{n}": {0, 1} for n in range(12)}, desired_count=2, auths=2)
    fleet.auth_of = dict.fromkeys(fleet.agents, 0)
    fleet.unreachable_proxies = {0}
    campaign = _campaign(cluster, alice, fleet, canary_size=0, timeout_seconds=20)
    campaign.confirm()
    assert campaign.run_until_ended().state == ChangeState.VERIFIED
    assert campaigns.counts_of(campaign.change).succeeded_count == 12
    assert set(fleet.relay_proxies.values()) == {1}


def test_filter_moves_each_agent_off_its_own_auth(cluster: Cluster, alice: User) -> None:
    """The campaign names no auth to leave."""
    fleet = CampaignFleet.of(4, auths=2, auth_of={"agent-0": 0, "agent-1": 1, "agent-2": 0, "agent-3": 1})
    targets = TargetAgents(np.arange(4), "all", connection=ConnectionKind.AUTH)
    change = campaigns.plan_campaign(
        cluster.pk,
        fleet.table(NOW.timestamp()),
        targets,
        CampaignSettings(),
        actor_of(alice),
        NOW,
        lambda order: None,
    )
    assert change.plan["agents_by_instance"] == {"auth-0": 2, "auth-1": 2}
    assert change.plan["destinations"] == {"auth-0": 2, "auth-1": 2}
    assert change.title == "Move the auth connections of 4 agents all"


@pytest.mark.parametrize(
    ("agent", "expected_reason"),
    [
        (_agent("p", "old", "dead"), ""),
        (_agent("old"), ""),
        (_agent("p", "q"), "every healthy proxy that accepts connections"),
        (_agent(), "no tunnel"),
        (_agent("p", desired_count=2), "1 of its 2"),
        (_agent("p", "dead", desired_count=2), "1 of its 2"),
        (_agent("dead"), "no tunnel to a reachable proxy"),
        (_agent("p", is_retired=True), "retired"),
        (None, "no longer in the fleet"),
    ],
)
def test_agent_that_would_lose_a_tunnel_is_skipped(agent: AgentSnapshot | None, expected_reason: str) -> None:
    """With the reason."""
    reason = TunnelMoveStrategy(()).find_skip_reason(agent, FakeSnapshot())
    assert expected_reason in reason
    assert bool(reason) == bool(expected_reason)


def test_proxy_to_leave_is_the_given_or_a_sick_one() -> None:
    """Otherwise one of its proxies, evenly distributed."""

    def choose(proxies_to_leave: str, *proxies: str, agent_id: str = "x") -> str:
        strategy = TunnelMoveStrategy(proxies_to_leave)
        return strategy.choose_instance_to_leave(_agent(*proxies), FakeSnapshot(), agent_id)

    assert {choose("q", "p", "q", agent_id=f"agent-{n}") for n in range(20)} == {"q"}
    assert {choose("", "p", "old", agent_id=f"agent-{n}") for n in range(20)} == {"old"}
    # Only a proxy that responds can ask the agent.
    assert {
        choose("", "p", absent, agent_id=f"agent-{n}") for n in range(20) for absent in ("lost", "dead")
    } == {"p"}
    agent_ids = (str(uuid5(NAMESPACE_DNS, f"agent-{n}")) for n in range(600))
    snapshot, strategy = FakeSnapshot(), TunnelMoveStrategy(())
    snapshot.proxies = {proxy_id: ProxySnapshot(proxy_id, True) for proxy_id in "rst"}
    counts = Counter(
        strategy.choose_instance_to_leave(_agent("r", "s", "t"), snapshot, agent_id) for agent_id in agent_ids
    )
    assert all(160 < counts[proxy_id] < 240 for proxy_id in "rst"), counts


@pytest.mark.parametrize(
    ("held_proxies", "agent", "age", "state"),
    [
        ("p", _agent("q"), 1, CampaignAgentState.SUCCEEDED),
        ("p", _agent("p", "q"), 1, CampaignAgentState.SUCCEEDED),
        ("p", _agent("p"), 1, None),
        ("p", _agent("p"), 60, CampaignAgentState.FAILED),
        ("p", _agent(), 1, None),
        ("p", _agent(), 60, CampaignAgentState.FAILED),
        ("p", None, 60, CampaignAgentState.FAILED),
        ("pq", _agent("q", desired_count=1), 1, CampaignAgentState.SUCCEEDED),
        ("pq", _agent("q", desired_count=2), 1, None),
    ],
)
def test_outcome_depends_on_tunnels_and_timeout(
    held_proxies: str, agent: AgentSnapshot | None, age: float, state: CampaignAgentState | None
) -> None:
    """Moved, not yet, or too late."""
    outcome = _decide_outcome(
        TunnelMoveStrategy(()), agent, age, from_instance="p", initial_proxies=held_proxies
    )
    assert (outcome.state if outcome else None) is state


@pytest.mark.parametrize(
    ("agent", "auths_to_leave", "expected_reason"),
    [
        (_agent("p"), ("a",), ""),
        (_agent("p"), (), ""),
        (_agent("p", desired_count=3), (), ""),
        (_agent("old"), ("a",), ""),
        (_agent("dead"), ("a",), "no tunnel to a reachable proxy"),
        (_agent(), ("a",), "no tunnel to a reachable proxy"),
        (_agent("unheard of"), ("a",), "no tunnel to a reachable proxy"),
        (_agent("p", auth="b"), ("a",), "already connected to auth-2"),
        (_agent("p", auth="b"), (), "no other healthy auth"),
        (_agent("p", auth=""), (), "not sent a heartbeat"),
        (_agent("p", is_retired=True), ("a",), "retired"),
        (None, ("a",), "no longer in the fleet"),
    ],
)
def test_agent_that_cannot_move_its_auth_connection_is_skipped(
    agent: AgentSnapshot | None, auths_to_leave: tuple[str, ...], expected_reason: str
) -> None:
    """Agents without a reachable proxy or another auth, and agents that have moved; missing tunnels do not count."""
    reason = AuthMoveStrategy(auths_to_leave).find_skip_reason(agent, FakeSnapshot())
    assert expected_reason in reason
    assert bool(reason) == bool(expected_reason)


def test_relay_proxy_is_healthy_and_not_avoided_if_possible() -> None:
    """A healthy proxy, otherwise a reachable one; an avoided proxy only if there is no other."""

    def choose(*proxies: str, agent_id: str = "x", avoided_proxies: tuple[str, ...] = ()) -> str:
        strategy = AuthMoveStrategy(())
        return strategy.choose_relay_proxy(_agent(*proxies), FakeSnapshot(), agent_id, avoided_proxies)

    assert choose("old", "p", "dead") == "p"
    assert choose("old", "dead") == "old"
    assert choose("p", "old", avoided_proxies=("p",)) == "old"
    assert choose("p", avoided_proxies=("p",)) == "p"
    counts = Counter(choose("p", "q", agent_id=f"agent-{n}") for n in range(200))
    assert min(counts["p"], counts["q"]) > 60


@pytest.mark.parametrize(
    ("agent", "age", "expected"),
    [
        (_agent("p", auth="b"), 1, AgentOutcome(CampaignAgentState.SUCCEEDED, new_auth="b")),
        (_agent(auth="b"), 1, AgentOutcome(CampaignAgentState.SUCCEEDED, new_auth="b")),
        (_agent("p"), 1, None),
        (_agent("p", auth=""), 59, None),
        (
            _agent("p"),
            60,
            AgentOutcome(
                CampaignAgentState.FAILED,
                "timed out: the agent sent no heartbeat through an auth other than auth-1 within 60 s",
            ),
        ),
        (None, 1, None),
        (None, 60, AgentOutcome(CampaignAgentState.FAILED, "the agent is no longer in the fleet")),
    ],
)
def test_outcome_depends_on_the_auth_and_the_timeout(
    agent: AgentSnapshot | None, age: float, expected: AgentOutcome | None
) -> None:
    """An agent has moved when it heartbeats through another auth."""
    assert _decide_outcome(AuthMoveStrategy(()), agent, age, from_instance="a") == expected
