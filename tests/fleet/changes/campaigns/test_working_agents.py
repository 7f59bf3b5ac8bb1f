"""Agents are marked as reconnecting only while a campaign has them in progress."""

from __future__ import annotations

import logging

import pytest
from django.contrib.auth.models import User

from fleet import lease
from fleet.changes import engine, kinds
from fleet.changes.campaigns import campaigns, working_agents
from fleet.changes.campaigns.run import CampaignRunner
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.monitoring.evidence import Timing
from fleet.monitoring.pollers.conclude import conclude
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.outbox import unpack_round_changes
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.verdicts import State
from tests.fakes.campaign_fleet import CampaignFleet
from tests.fakes.evidence import PolledCluster
from tests.fleet.changes.conftest import NOW, CampaignScenario, actor_of

TIMEOUT_SECONDS = 30


@pytest.fixture
def writer(valkey_url: str, prefix: str) -> Writer:
    """A writer with a prefix of its own."""
    return Writer(connect(valkey_url), prefix)


@pytest.fixture
def reader(valkey_url: str, prefix: str) -> Reader:
    """A reader of what `writer` writes."""
    return Reader(connect(valkey_url), prefix)


def start_campaign(
    cluster: Cluster, alice: User, fleet: CampaignFleet, steps: int = 2, **settings: int
) -> CampaignScenario:
    """Start a campaign and run `steps` steps."""
    campaign = CampaignScenario(
        cluster,
        alice,
        fleet,
        **{
            "rate_per_minute": 6000,
            "canary_size": 0,
            "timeout_seconds": TIMEOUT_SECONDS,
            "failure_threshold_percent": 100,
            **settings,
        },
    )
    campaign.confirm()
    campaign.step(steps)
    return campaign


def step_ended_campaigns(campaign: CampaignScenario) -> None:
    """Step the ended campaigns as `step_actions` does."""
    for change in working_agents.find_ended_with_marks(Change.objects.all()):
        CampaignRunner().step(change, campaign.context)
    campaign.change.refresh_from_db()


def make_stubborn_fleet(count: int = 3) -> CampaignFleet:
    """Return a fleet whose agents ignore advisories."""
    return CampaignFleet.of(count, stubborn_agents={f"agent-{n}" for n in range(count)})


def test_agents_in_progress_are_marked_until_their_timeout(cluster: Cluster, alice: User) -> None:
    """Pending agents are not marked."""
    campaign = start_campaign(cluster, alice, make_stubborn_fleet(30), concurrency=4)
    requested_at_by_agent = dict(
        campaign.change.campaign_agents.filter(state="in-progress").values_list("agent_id", "requested_at")
    )
    assert len(requested_at_by_agent) == 12
    assert campaign.fleet.reconnecting_until == {
        agent: at + TIMEOUT_SECONDS for agent, at in requested_at_by_agent.items()
    }


def test_every_outcome_removes_the_mark(cluster: Cluster, alice: User) -> None:
    """Succeeded, failed or skipped: in the next step."""
    fleet = CampaignFleet.of(
        4, stubborn_agents={"agent-1", "agent-3"}, agents_without_alternative={"agent-2"}
    )
    campaign = start_campaign(cluster, alice, fleet)
    assert set(fleet.reconnecting_until) == {"agent-0", "agent-1", "agent-2", "agent-3"}
    campaign.step()
    assert set(fleet.reconnecting_until) == {"agent-1", "agent-2", "agent-3"}
    campaign.step(3)
    assert set(fleet.reconnecting_until) == {"agent-1", "agent-3"}
    fleet.agents["agent-3"] = {1}
    campaign.step()
    assert set(fleet.reconnecting_until) == {"agent-1"}
    campaign.step(TIMEOUT_SECONDS)
    step_ended_campaigns(campaign)
    assert fleet.reconnecting_until == {}
    assert not working_agents.find_ended_with_marks(Change.objects.all()).exists()
    counts = campaigns.counts_of(campaign.change)
    assert (counts.succeeded_count, counts.failed_count, counts.skipped_count) == (2, 1, 1)


def test_agent_is_marked_before_it_gets_an_advisory(cluster: Cluster, alice: User) -> None:
    """A poll that sees the agent move finds the mark."""
    fleet = CampaignFleet.of(40)
    advise, unmarked = fleet.advise, list[str]()

    def advise_and_check(proxy: str, advisory: str, reason: str, agents: list[str], auth: str) -> object:
        unmarked.extend(set(agents) - fleet.reconnecting_until.keys())
        return advise(proxy, advisory, reason, agents, auth)

    fleet.advise = advise_and_check  # type: ignore[assignment,method-assign] # the same, looked at
    campaign = start_campaign(cluster, alice, fleet)
    assert campaign.run_until_ended().state == ChangeState.VERIFIED
    assert not unmarked
    assert len(fleet.marked_agents) == 40


def test_abort_removes_all_marks(cluster: Cluster, alice: User) -> None:
    """If the record is unavailable, the next step removes them."""
    campaign = start_campaign(cluster, alice, make_stubborn_fleet())
    kinds.run_action(campaign.change, "abort", actor_of(alice), campaign.moment)
    assert len(campaign.fleet.reconnecting_until) == 3
    campaign.fleet.is_record_unavailable = True
    step_ended_campaigns(campaign)
    assert working_agents.find_ended_with_marks(Change.objects.all()).exists()
    campaign.fleet.is_record_unavailable = False
    step_ended_campaigns(campaign)
    assert campaign.fleet.reconnecting_until == {}
    assert not working_agents.find_ended_with_marks(Change.objects.all()).exists()


def test_marks_are_removed_after_another_lease_ends(cluster: Cluster, alice: User) -> None:
    """Another worker holds the lease of the cluster."""
    campaign = start_campaign(cluster, alice, make_stubborn_fleet())
    kinds.run_action(campaign.change, "abort", actor_of(alice), campaign.moment)
    lease_of_another = lease.take(cluster.pk, lease.CHANGES, "another", campaign.moment)
    step_ended_campaigns(campaign)
    assert len(campaign.fleet.reconnecting_until) == 3
    lease.release(lease_of_another)
    step_ended_campaigns(campaign)
    assert campaign.fleet.reconnecting_until == {}


def test_stop_and_pause_keep_the_marks_of_agents_in_progress(cluster: Cluster, alice: User) -> None:
    """Until their outcome is known."""
    campaign = start_campaign(cluster, alice, make_stubborn_fleet(30), concurrency=4)
    engine.pause(campaign.change, actor_of(alice), campaign.moment)
    campaign.step()
    assert len(campaign.fleet.reconnecting_until) == 12
    kinds.run_action(campaign.change, "stop", actor_of(alice), campaign.moment)
    campaign.step()
    assert len(campaign.fleet.reconnecting_until) == 12
    campaign.step(TIMEOUT_SECONDS)
    step_ended_campaigns(campaign)
    assert campaign.change.state == ChangeState.CANCELLED
    assert campaign.fleet.reconnecting_until == {}


def test_next_campaign_keeps_its_own_marks(cluster: Cluster, alice: User) -> None:
    """The marks of an aborted campaign are removed."""
    first = start_campaign(cluster, alice, make_stubborn_fleet())
    second = CampaignScenario(cluster, alice, first.fleet, canary_size=0, rate_per_minute=6000)
    second.confirm()
    kinds.run_action(first.change, "abort", actor_of(alice), first.moment)
    second.now = first.now
    second.step(2)
    expected_marks = dict(first.fleet.reconnecting_until)
    assert expected_marks == {f"agent-{n}": second.now + 60 for n in range(3)}
    step_ended_campaigns(first)
    assert first.fleet.reconnecting_until == expected_marks


def test_unavailable_record_does_not_stop_a_campaign(
    cluster: Cluster, alice: User, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is logged once; agents in progress are marked when the record is back."""
    fleet = CampaignFleet.of(60, is_record_unavailable=True)
    fleet.stubborn_agents = {"agent-59"}
    with caplog.at_level(logging.WARNING, "fleet.changes.campaigns.working_agents"):
        campaign = start_campaign(cluster, alice, fleet, steps=8)
    assert [record.message.count("could not mark agents as reconnecting") for record in caplog.records] == [1]
    assert campaigns.counts_of(campaign.change).succeeded_count == 59
    fleet.is_record_unavailable = False
    campaign.step()
    assert set(fleet.reconnecting_until) == {"agent-59"}


def test_reconnecting_agents_do_not_count_as_stranded(cluster: Cluster, alice: User) -> None:
    """An agent that is stranded while it is in progress does."""
    campaign = start_campaign(
        cluster, alice, CampaignFleet.of(60), failure_threshold_percent=0, stranded_threshold=1
    )
    table = campaign.fleet.table(campaign.now)
    assert (table.verdicts["state"] == State.WORKING).sum() == len(campaign.fleet.reconnecting_until) > 0
    assert campaign.run_until_ended().state == ChangeState.VERIFIED
    stranding_campaign = start_campaign(cluster, alice, make_stubborn_fleet(), stranded_threshold=1)
    stranding_campaign.fleet.stranded_agents = {"agent-1"}
    assert "agent-1" in stranding_campaign.fleet.reconnecting_until
    assert stranding_campaign.step().state == ChangeState.FAILED
    assert "1 more agents are stranded" in stranding_campaign.change.detail


def test_states_change_to_reconnecting_and_then_healthy(
    cluster: Cluster, alice: User, writer: Writer, reader: Reader
) -> None:
    """In a real record: the summary and the history contain both changes."""
    fleet = CampaignFleet(
        {"agent-0-id": {0}, "agent-1-id": {1}, "agent-2-id": {0}}, proxies=2, stubborn_agents={"agent-2-id"}
    )
    polled_cluster = PolledCluster(writer)
    polled_cluster.create_record()

    def poll_and_read_states(now: float) -> list[State]:
        tunnels = [[n for n in range(3) if proxy in fleet.agents[f"agent-{n}-id"]] for proxy in range(2)]
        polled_cluster.record_poll(tunnels, now=now, agents=3)
        timing = Timing(round_interval=1.0)
        assert conclude(writer, cluster.pk, int(now), now=now, timing=timing, clock=float) is not None
        return [State(state) for state in writer.load(cluster.pk).verdicts["state"]]

    started_at = NOW.timestamp()
    assert poll_and_read_states(started_at) == [State.HEALTHY] * 3
    campaign = CampaignScenario(
        cluster, alice, fleet, canary_size=0, rate_per_minute=6000, timeout_seconds=TIMEOUT_SECONDS
    )
    campaign.confirm()
    campaign.marks_store = writer
    campaign.step(2)
    assert poll_and_read_states(campaign.now + 0.5) == [State.WORKING] * 3
    assert reader.summary(cluster.pk, campaign.now + 0.6).counts[State.WORKING] == 3
    assert writer.load(cluster.pk).memory["working_until"].tolist() == [campaign.now + TIMEOUT_SECONDS] * 3
    campaign.step()
    assert poll_and_read_states(campaign.now + 0.5) == [State.HEALTHY, State.HEALTHY, State.WORKING]
    kinds.run_action(campaign.change, "abort", actor_of(alice), campaign.moment)
    for change in working_agents.find_ended_with_marks(Change.objects.all()):
        CampaignRunner().step(change, campaign.context)
    assert poll_and_read_states(campaign.now + 1.5) == [State.HEALTHY] * 3
    transitions = [
        (agent, State(old), State(new))
        for blob in writer.read_outbox(cluster.pk, 10)
        for agent, old, new in unpack_round_changes(blob).agent_changes[["agent", "old", "new"]].tolist()
    ]
    for agent in range(3):
        assert [new for number, _, new in transitions if number == agent] == [
            State.HEALTHY,
            State.WORKING,
            State.HEALTHY,
        ]
