"""What campaigns move; campaigns of auth connections step by step, against agents that do as they are told."""

from __future__ import annotations

import numpy as np
import pytest
from django.contrib.auth.models import User

from fleet.changes import ChangeRefusedError
from fleet.changes.campaigns import campaigns
from fleet.changes.campaigns.campaigns import CampaignTargets
from fleet.changes.campaigns.moves import (
    AuthMoveStrategy,
    CampaignSnapshot,
    TunnelMoveStrategy,
    create_move_strategy,
)
from fleet.models.actions import CampaignAgent
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.vocabulary.campaigns import AuthSnapshot, CampaignAgentState, CampaignSettings, ConnectionKind
from fleet.vocabulary.changes import ChangeState
from tests.fakes.movers import Movers
from tests.fleet.changes.conftest import NOW, Campaign, by


def _campaign(cluster: Cluster, user: User, movers: Movers, **pace: int) -> Campaign:
    return Campaign(cluster, user, movers, ("auth-0",), ConnectionKind.AUTH, **{"rate": 6000, **pace})


def _rows(campaign: Campaign) -> dict[str, CampaignAgent]:
    return {row.agent_id: row for row in campaign.change.campaign_agents.all()}


def test_sight() -> None:
    """Tunnels, wants, auths and the stranded of a table."""
    movers = Movers({"a": {0, 2}, "b": {1}}, desired=2, stranded={"b"}, sick={1}, auths=3, auth_of={"a": 1})
    movers.sick_auths, movers.drained_auths = {1}, {2}
    sight = CampaignSnapshot(movers.table(1.0), {"a"})
    seen = sight.find_agent("a")
    assert seen is not None
    assert (seen.proxies, seen.desired_count, seen.auth) == (frozenset({"proxy-0", "proxy-2"}), 2, "auth-1")
    assert sight.find_agent("b") is None
    assert sight.stranded_count == 1
    assert [proxy.usable for proxy in sight.proxies.values()] == [True, False, True]
    assert sight.auths == {
        "auth-0": AuthSnapshot("auth-0", True, 0),
        "auth-1": AuthSnapshot("auth-1", False, 1),
        "auth-2": AuthSnapshot("auth-2", False, 0),
    }
    assert [sight.name_of(instance) for instance in ("proxy-0", "auth-1", "lost")] == [
        "proxy-0",
        "auth-1",
        "lost",
    ]


def test_what_is_moved_follows_the_parameters() -> None:
    """A change that was planned before there was a choice moves tunnels."""
    assert isinstance(create_move_strategy("auth", ()), AuthMoveStrategy)
    assert isinstance(create_move_strategy("tunnel", ()), TunnelMoveStrategy)
    assert isinstance(campaigns.move_strategy_of(Change(parameters={"leave": []})), TunnelMoveStrategy)


def test_everybody_leaves_the_auth_and_keeps_their_tunnels(cluster: Cluster, alice: User) -> None:
    """Canaries first, then at its rate; each is asked once, through a proxy to which it has a tunnel."""
    movers = Movers.on_auths(120)
    held = {agent: set(proxies) for agent, proxies in movers.agents.items()}
    campaign = _campaign(cluster, alice, movers, canaries=3)
    plan = campaign.change.plan
    assert (plan["asked"], plan["leaving"], plan["destinations"]) == (120, {"auth-0": 120}, {"auth-1": 0})
    assert plan["question"] == "Reconnect 120 agents to another auth?"
    campaign.confirm()
    campaign.step()
    assert campaigns.counts_of(campaign.change).in_progress_count == 3
    assert campaign.until_over().state == ChangeState.VERIFIED
    assert campaigns.counts_of(campaign.change).ok == 120
    assert set(movers.auth_of.values()) == {1}
    assert movers.agents == held
    assert set(movers.asked.values()) == {1}
    assert all(proxy in held[agent] for agent, proxy in movers.messengers.items())
    assert movers.worked == set(movers.agents)
    row = _rows(campaign)["agent-1"]
    assert (row.leaves, row.via, row.new_auth, row.new_proxy) == ("auth-0", "proxy-1", "auth-1", "")


def test_agents_under_way_at_one_auth_are_limited(cluster: Cluster, alice: User) -> None:
    """However many proxies ask them."""
    movers = Movers.on_auths(60, stubborn={f"agent-{n}" for n in range(60)})
    campaign = _campaign(cluster, alice, movers, canaries=0, per_proxy=4, patience=3600)
    campaign.confirm()
    campaign.step(5)
    assert campaigns.counts_of(campaign.change).in_progress_count == 4
    assert "in progress per auth" in campaigns.describe_progress(campaign.change, campaign.now)["waits_for"]


def test_agent_that_no_other_auth_takes_has_failed(cluster: Cluster, alice: User) -> None:
    """It tried and stays, with its reason; as a canary it pauses the campaign before anybody else is asked."""
    movers = Movers.on_auths(30, nowhere={"agent-0"})
    campaign = _campaign(cluster, alice, movers, canaries=2, patience=30)
    campaign.confirm()
    assert campaign.until_over().state == ChangeState.PAUSED
    row = _rows(campaign)["agent-0"]
    assert row.state == CampaignAgentState.FAILED
    assert row.reason == "the agent kept its auth connection: no other auth accepted a heartbeat: it drains"
    assert campaign.now - NOW.timestamp() < 30
    assert movers.asked.total() == 2


def test_agent_that_does_not_answer_fails_after_its_patience(cluster: Cluster, alice: User) -> None:
    """An agent of an older version does not know the advice."""
    campaign = _campaign(cluster, alice, Movers.on_auths(3, stubborn={"agent-0"}), canaries=0, patience=5)
    campaign.confirm()
    assert campaign.until_over().state == ChangeState.FAILED
    assert (
        "timed out: the agent sent no heartbeat through an auth other than auth-0 within 5 s"
        in _rows(campaign)["agent-0"].reason
    )


def test_who_cannot_be_asked_or_left_already_is_skipped(cluster: Cluster, alice: User) -> None:
    """With that reason."""
    movers = Movers(
        {"here": {0}, "bare": set(), "silent": {0}, "there": {0}, "old": {0}},
        auths=2,
        auth_of={"here": 0, "bare": 0, "there": 1, "old": 0},
        retired={"old"},
    )
    campaign = _campaign(cluster, alice, movers, canaries=0)
    campaign.confirm()
    assert campaign.until_over().state == ChangeState.VERIFIED
    rows = _rows(campaign)
    assert rows["here"].state == "ok"
    assert "no tunnel" in rows["bare"].reason
    assert "not sent a heartbeat" in rows["silent"].reason
    assert rows["there"].reason == "the agent is already connected to auth-1"
    assert "retired" in rows["old"].reason
    assert set(movers.asked) == {"here"}


@pytest.mark.parametrize("left_over", ["sick", "drained", "none"])
def test_without_another_auth_it_is_refused(cluster: Cluster, alice: User, left_over: str) -> None:
    """Before anybody is asked: the only other auth is sick, or takes no new connections, or there is none."""
    movers = Movers.on_auths(3, auths=1 if left_over == "none" else 2)
    movers.sick_auths |= {1} if left_over == "sick" else set()
    movers.drained_auths |= {1} if left_over == "drained" else set()
    with pytest.raises(ChangeRefusedError, match="no other healthy auth"):
        _campaign(cluster, alice, movers)


def test_proxy_that_does_not_answer_is_replaced_by_another(cluster: Cluster, alice: User) -> None:
    """An agent with two tunnels is asked through the other one; nobody fails for the first."""
    movers = Movers({f"agent-{n}": {0, 1} for n in range(12)}, desired=2, auths=2)
    movers.auth_of = dict.fromkeys(movers.agents, 0)
    movers.unreachable = {0}
    campaign = _campaign(cluster, alice, movers, canaries=0, patience=20)
    campaign.confirm()
    assert campaign.until_over().state == ChangeState.VERIFIED
    assert campaigns.counts_of(campaign.change).ok == 12
    assert set(movers.messengers.values()) == {1}


def test_filter_moves_each_agent_off_its_own_auth(cluster: Cluster, alice: User) -> None:
    """Where no auth is named."""
    movers = Movers.of(4, auths=2, auth_of={"agent-0": 0, "agent-1": 1, "agent-2": 0, "agent-3": 1})
    chosen = CampaignTargets(np.arange(4), "all", connection=ConnectionKind.AUTH)
    change = campaigns.plan_campaign(
        cluster.pk,
        movers.table(NOW.timestamp()),
        chosen,
        CampaignSettings(),
        by(alice),
        NOW,
        lambda order: None,
    )
    assert change.plan["leaving"] == {"auth-0": 2, "auth-1": 2}
    assert change.plan["destinations"] == {"auth-0": 2, "auth-1": 2}
    assert change.title == "Move the auth connections of 4 agents: all"
