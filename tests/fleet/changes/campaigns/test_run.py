"""Steps of reconnect campaigns over a simulated fleet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User

from fleet import lease
from fleet.changes import ChangeRefusedError, WrongStateError, engine, kinds
from fleet.changes.campaigns import campaigns
from fleet.models.actions import CampaignAgent
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster
from fleet.monitoring.views import FleetTable
from fleet.protocol.durations import format_clock_time
from fleet.vocabulary.campaigns import CampaignAgentState
from fleet.vocabulary.changes import ChangeState
from tests.fakes.campaign_fleet import CampaignFleet
from tests.fleet.changes.conftest import NOW, CampaignScenario, actor_of

STARTED_AT = NOW.timestamp()


def test_every_agent_moves_once(cluster: Cluster, alice: User) -> None:
    """Canaries first; each agent gets one advisory and always keeps a tunnel."""
    campaign = CampaignScenario(cluster, alice, CampaignFleet.of(200), rate_per_minute=1200, canary_size=3)
    campaign.confirm()
    campaign.step()
    assert campaigns.counts_of(campaign.change).active_count == 3
    assert campaign.run_until_ended().state == ChangeState.VERIFIED
    counts = campaigns.counts_of(campaign.change)
    assert (counts.succeeded_count, counts.total_count) == (200, 200)
    assert set(campaign.fleet.advisory_counts.values()) == {1}
    assert campaign.fleet.fewest_tunnels == 1
    row = CampaignAgent.objects.filter(change=campaign.change).first()
    assert row is not None
    assert row.new_proxy
    assert row.new_proxy != row.from_instance
    assert campaign.change.outcome["succeeded_count"] == 200
    names = {load["name"] for load in campaign.change.plan["loads"]}
    assert set(campaign.change.outcome["actual_loads"]) == names


def test_rate_limit_and_concurrency_are_respected(cluster: Cluster, alice: User) -> None:
    """Advisories per second, and agents in progress per proxy."""
    fleet = CampaignFleet.of(60, stubborn_agents={f"agent-{n}" for n in range(60)})
    campaign = CampaignScenario(
        cluster, alice, fleet, rate_per_minute=600, canary_size=0, concurrency=4, timeout_seconds=3600
    )
    campaign.confirm()
    campaign.step(2)
    assert campaigns.counts_of(campaign.change).active_count == 10
    campaign.step(5)
    assert campaigns.counts_of(campaign.change).active_count == 12
    assert "in progress per proxy" in campaigns.progress_of(campaign.change, campaign.now)["waiting_for"]


def test_paused_campaign_sends_no_advisories_and_resumes(cluster: Cluster, alice: User) -> None:
    """Agents in progress still finish; there is no burst afterwards."""
    campaign = CampaignScenario(cluster, alice, CampaignFleet.of(100), rate_per_minute=600, canary_size=0)
    campaign.confirm()
    campaign.step(3)
    engine.pause(campaign.change, actor_of(alice), campaign.moment)
    advised_count = campaign.fleet.advisory_counts.total()
    campaign.step(30)
    assert campaign.fleet.advisory_counts.total() == advised_count
    counts = campaigns.counts_of(campaign.change)
    assert (counts.succeeded_count, counts.active_count) == (advised_count, 0)
    kinds.run_action(campaign.change, "resume", actor_of(alice), campaign.moment)
    campaign.step()
    assert campaign.fleet.advisory_counts.total() - advised_count <= 20
    assert campaign.run_until_ended().state == ChangeState.VERIFIED


def test_failure_threshold_ends_the_campaign(cluster: Cluster, alice: User) -> None:
    """The counts add up, and no further advisory is sent."""
    fleet = CampaignFleet.of(200, stubborn_agents={f"agent-{n}" for n in range(0, 200, 4)})
    campaign = CampaignScenario(
        cluster,
        alice,
        fleet,
        rate_per_minute=1200,
        canary_size=0,
        timeout_seconds=5,
        failure_threshold_percent=10,
    )
    campaign.confirm()
    assert campaign.run_until_ended().state == ChangeState.FAILED
    assert "agents failed" in campaign.change.detail
    counts = campaigns.counts_of(campaign.change)
    assert counts.unfinished_count == 0
    assert counts.succeeded_count + counts.failed_count + counts.skipped_count == 200
    advised_count = fleet.advisory_counts.total()
    campaign.step(5)
    assert fleet.advisory_counts.total() == advised_count < 200


def test_stranded_threshold_ends_the_campaign(cluster: Cluster, alice: User) -> None:
    """Whatever the cause."""
    campaign = CampaignScenario(
        cluster, alice, CampaignFleet.of(100), rate_per_minute=60, canary_size=0, stranded_threshold=5
    )
    campaign.confirm()
    campaign.step(3)
    campaign.fleet.stranded_agents = {f"agent-{n}" for n in range(90, 95)}
    assert campaign.run_until_ended(5).state == ChangeState.FAILED
    assert "stranded" in campaign.change.detail


def test_failed_canary_pauses_the_campaign(cluster: Cluster, alice: User) -> None:
    """Before other agents get an advisory."""
    fleet = CampaignFleet.of(50, stubborn_agents={"agent-0"})
    campaign = CampaignScenario(
        cluster, alice, fleet, canary_size=3, timeout_seconds=5, failure_threshold_percent=100
    )
    campaign.confirm()
    assert campaign.run_until_ended(30).state == ChangeState.PAUSED
    assert fleet.advisory_counts.total() == 3
    assert campaign.change.detail == "paused: one of the first agents failed"


def test_agent_that_would_lose_a_tunnel_is_skipped(cluster: Cluster, alice: User) -> None:
    """With its reason: no other proxy, no tunnel, too few tunnels, retired."""
    fleet = CampaignFleet(
        {"here": {0}, "lost": set(), "old": {0}, "both": {0, 1}},
        proxies=3,
        retired_agents={"old"},
        old_proxies={2},
    )
    campaign = CampaignScenario(cluster, alice, fleet, canary_size=0)
    campaign.confirm()
    campaign.run_until_ended()
    rows = {row.agent_id: row for row in campaign.change.campaign_agents.all()}
    assert rows["here"].state == "succeeded"
    assert "no tunnel" in rows["lost"].reason
    assert "retired" in rows["old"].reason
    assert "every healthy proxy that accepts connections" in rows["both"].reason
    assert fleet.advisory_counts["both"] == 0


def test_campaign_without_another_healthy_proxy_or_data_is_refused(cluster: Cluster, alice: User) -> None:
    """With one healthy proxy no agent can move."""
    for field in ("sick_proxies", "drained_proxies"):
        with pytest.raises(ChangeRefusedError, match="every healthy proxy that accepts connections"):
            CampaignScenario(cluster, alice, CampaignFleet({"a": {0}}, proxies=2, **{field: {1}}))
    stale_fleet = CampaignFleet.of(3)
    stale_fleet.stale = True
    with pytest.raises(ChangeRefusedError, match="no current data"):
        CampaignScenario(cluster, alice, stale_fleet)


def test_agent_that_keeps_its_tunnel_is_skipped(cluster: Cluster, alice: User) -> None:
    """The agent knows no other proxy: no failure, and the next canary is used."""
    fleet = CampaignFleet.of(30, agents_without_alternative={"agent-0", "agent-7"})
    campaign = CampaignScenario(
        cluster,
        alice,
        fleet,
        rate_per_minute=6000,
        canary_size=2,
        timeout_seconds=30,
        failure_threshold_percent=0,
    )
    campaign.confirm()
    assert campaign.run_until_ended().state == ChangeState.VERIFIED
    counts = campaigns.counts_of(campaign.change)
    assert (counts.succeeded_count, counts.failed_count, counts.skipped_count) == (28, 0, 2)
    assert {reason for _, reason, _ in campaigns.count_agents_by_reason(campaign.change)} == {
        "the agent kept its tunnel: it knows no other proxy that it can connect to"
    }
    assert campaign.change.detail == (
        "28 of 30 agents succeeded; 2 skipped: "
        "the agent kept its tunnel: it knows no other proxy that it can connect to"
    )
    assert campaign.now - STARTED_AT < 30
    assert set(fleet.advisory_counts.values()) == {1}


def test_scheduled_agent_is_skipped_if_the_other_proxies_become_sick(cluster: Cluster, alice: User) -> None:
    """It is checked again after its jitter."""
    fleet = CampaignFleet.of(6, proxies=2)
    campaign = CampaignScenario(cluster, alice, fleet, rate_per_minute=6000, canary_size=0, jitter_seconds=10)
    campaign.confirm()
    campaign.step(2)
    assert campaigns.counts_of(campaign.change).scheduled_count == 6
    fleet.sick_proxies = {1}
    assert campaign.run_until_ended().state == ChangeState.VERIFIED
    unmovable_agents = [
        row for row in campaign.change.campaign_agents.all() if int(row.agent_id[-1]) % 2 == 0
    ]
    assert {row.state for row in unmovable_agents} == {"skipped"}
    assert all("every healthy proxy that accepts connections" in row.reason for row in unmovable_agents)
    assert not any(fleet.advisory_counts[row.agent_id] for row in unmovable_agents)


def test_pause_returns_scheduled_agents_to_pending(cluster: Cluster, alice: User) -> None:
    """They are scheduled again after the pause."""
    campaign = CampaignScenario(
        cluster, alice, CampaignFleet.of(30), rate_per_minute=6000, canary_size=0, jitter_seconds=10
    )
    campaign.confirm()
    campaign.step(2)
    assert campaigns.counts_of(campaign.change).scheduled_count
    engine.pause(campaign.change, actor_of(alice), campaign.moment)
    campaign.step()
    counts = campaigns.counts_of(campaign.change)
    assert (counts.pending_count, counts.active_count, counts.total_count) == (30, 0, 30)
    assert not campaign.fleet.advisory_counts
    kinds.run_action(campaign.change, "resume", actor_of(alice), campaign.moment)
    assert campaign.run_until_ended().state == ChangeState.VERIFIED
    assert campaigns.counts_of(campaign.change).succeeded_count == 30


def test_time_window_is_respected(cluster: Cluster, alice: User) -> None:
    """Scheduled agents wait as well; the campaign continues the next day."""
    start_minute = int(STARTED_AT // 60) % 1440 + 1
    window = {"window_start": start_minute % 1440, "window_end": (start_minute + 1) % 1440}
    campaign = CampaignScenario(
        cluster, alice, CampaignFleet.of(150), rate_per_minute=60, canary_size=0, jitter_seconds=10, **window
    )
    campaign.confirm()
    opens_at = (STARTED_AT // 60 + 1) * 60
    while campaign.now < opens_at - 1:
        campaign.step()
    assert campaign.change.state == ChangeState.RUNNING
    assert "UTC" in campaign.change.progress["waiting_for"]
    assert not campaign.fleet.advisory_counts
    while campaign.now < opens_at + 59:
        campaign.step()
    advised_count = sum(campaign.fleet.advisory_counts.values())
    assert 30 <= advised_count <= 60
    campaign.step(120)
    counts = campaigns.counts_of(campaign.change)
    assert (sum(campaign.fleet.advisory_counts.values()), counts.succeeded_count, counts.pending_count) == (
        advised_count,
        advised_count,
        150 - advised_count,
    )
    campaign.now = opens_at + 86_400
    campaign.step(50)
    assert sum(campaign.fleet.advisory_counts.values()) > advised_count
    assert max(campaign.fleet.advisory_counts.values()) == 1


def test_resumed_campaign_ignores_the_failed_canary(cluster: Cluster, alice: User) -> None:
    """It does not pause for the same canary again."""
    fleet = CampaignFleet.of(40, stubborn_agents={"agent-0"})
    campaign = CampaignScenario(
        cluster,
        alice,
        fleet,
        canary_size=3,
        rate_per_minute=6000,
        timeout_seconds=5,
        failure_threshold_percent=50,
        soak_seconds=5,
    )
    campaign.confirm()
    assert campaign.run_until_ended(30).state == ChangeState.PAUSED
    kinds.run_action(campaign.change, "resume", actor_of(alice), campaign.moment)
    campaign.step()
    progress = campaigns.progress_of(campaign.change, campaign.now)
    assert progress["waiting_for"].startswith("1 of the first 3 agents failed; resumed by ")
    assert campaign.run_until_ended().state == ChangeState.VERIFIED
    counts = campaigns.counts_of(campaign.change)
    assert (counts.succeeded_count, counts.failed_count) == (39, 1)


def test_campaign_waits_for_its_first_agents_until_their_timeout(cluster: Cluster, alice: User) -> None:
    """Without an estimate, which would stand still; once they failed, it warns of the failure threshold."""
    fleet = CampaignFleet.of(40, stubborn_agents={f"agent-{n}" for n in range(40)})
    campaign = CampaignScenario(cluster, alice, fleet, canary_size=3, jitter_seconds=0, timeout_seconds=20)
    campaign.confirm()
    campaign.step(3)
    progress = campaigns.progress_of(campaign.change, campaign.now)
    last_request_at = max(row.requested_at or 0.0 for row in campaign.change.campaign_agents.all())
    assert progress["waiting_for"] == (
        f"waiting for the first 3 agents (timeout at {format_clock_time(last_request_at + 20)})"
    )
    assert (progress["eta_seconds"], progress["resume_warning"]) == (None, "")
    assert campaign.run_until_ended(60).state == ChangeState.PAUSED
    warning = campaigns.progress_of(campaign.change, campaign.now)["resume_warning"]
    assert "the campaign aborts as soon as 20 agents have a result" in warning
    kinds.run_action(campaign.change, "resume", actor_of(alice), campaign.moment)
    assert campaign.run_until_ended(200).state == ChangeState.FAILED
    assert campaigns.counts_of(campaign.change).attempted_count >= 20


def test_campaign_fails_if_its_few_agents_all_fail(cluster: Cluster, alice: User) -> None:
    """Also if other agents are skipped, so that there are never 20 results."""
    agents = {f"agent-{n}": {0} for n in range(3)} | {f"lost-{n}": set[int]() for n in range(30)}
    campaign = CampaignScenario(
        cluster,
        alice,
        CampaignFleet(agents, stubborn_agents=set(agents)),
        canary_size=0,
        rate_per_minute=6000,
        timeout_seconds=5,
    )
    campaign.confirm()
    assert campaign.run_until_ended().state == ChangeState.FAILED
    assert "3 of 3" in campaign.change.detail


def test_waiting_campaign_is_logged_once(cluster: Cluster, alice: User) -> None:
    """Although workers try every second."""
    first = CampaignScenario(cluster, alice, CampaignFleet.of(50), rate_per_minute=60, canary_size=0)
    second = CampaignScenario(cluster, alice, CampaignFleet.of(50), rate_per_minute=60, canary_size=0)
    first.confirm()
    first.step()
    second.confirm()
    second.step(10)
    assert AuditEntry.objects.filter(action="reconnect.start", change_id=second.change.pk).count() == 1


def test_interrupted_worker_does_not_let_agents_time_out(
    cluster: Cluster, alice: User, monkeypatch: Any
) -> None:
    """The step died between the rows and the call: timeouts start when the proxy gets the advisory."""
    campaign = CampaignScenario(
        cluster, alice, CampaignFleet.of(30), rate_per_minute=6000, canary_size=0, timeout_seconds=5
    )
    campaign.confirm()
    campaign.step()
    advise = campaign.fleet.advise

    def die(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign.fleet, "advise", die)
    with pytest.raises(KeyboardInterrupt):
        campaign.step()
    lease.revoke(campaign.change)
    engine.pause(campaign.change, actor_of(alice), campaign.moment)
    monkeypatch.setattr(campaign.fleet, "advise", advise)
    campaign.step(seconds=60)
    campaign.step(3)
    counts = campaigns.counts_of(campaign.change)
    assert (counts.failed_count, counts.active_count) == (0, 0)
    assert set(campaign.fleet.advisory_counts.values()) == {1}
    assert (counts.succeeded_count, campaign.change.state) == (30, ChangeState.VERIFIED)


def test_interrupted_step_is_repeated(cluster: Cluster, alice: User, monkeypatch: Any) -> None:
    """The worker died before or after its call: each agent gets exactly one advisory."""
    campaign = CampaignScenario(cluster, alice, CampaignFleet.of(30), rate_per_minute=6000, canary_size=0)
    campaign.confirm()
    campaign.step()
    advise = campaign.fleet.advise

    def die_after(*args: Any) -> Any:
        advise(*args)
        raise KeyboardInterrupt

    def die_before(*args: Any) -> Any:
        raise KeyboardInterrupt

    for die in (die_before, die_after):
        monkeypatch.setattr(campaign.fleet, "advise", die)
        with pytest.raises(KeyboardInterrupt):
            campaign.step()
        lease.revoke(campaign.change)
    monkeypatch.setattr(campaign.fleet, "advise", advise)
    assert campaign.run_until_ended().state == ChangeState.VERIFIED
    assert set(campaign.fleet.advisory_counts.values()) == {1}
    assert campaigns.counts_of(campaign.change).succeeded_count == 30


def test_step_paused_past_its_lease_writes_nothing(
    cluster: Cluster, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process takes over while the first one reads a stale table."""
    campaign = CampaignScenario(cluster, alice, CampaignFleet.of(30), rate_per_minute=6000, canary_size=0)
    campaign.confirm()
    campaign.step()
    read_table = campaign.fleet.table
    rows: list[object] = []

    def read_after_pause(now: float) -> FleetTable:
        monkeypatch.setattr(campaign.fleet, "table", read_table)
        lease.revoke(campaign.change)
        campaign.step(3)
        rows.extend([*campaign.change.campaign_agents.order_by("pk").values(), campaign.change.progress])
        return replace(read_table(now), stale=True)

    monkeypatch.setattr(campaign.fleet, "table", read_after_pause)
    campaign.step()
    assert [*campaign.change.campaign_agents.order_by("pk").values(), campaign.change.progress] == rows


def test_stopped_campaign_finishes_agents_in_progress(cluster: Cluster, alice: User) -> None:
    """No further advisory is sent."""
    campaign = CampaignScenario(cluster, alice, CampaignFleet.of(100), rate_per_minute=600, canary_size=0)
    campaign.confirm()
    campaign.step(2)
    kinds.run_action(campaign.change, "stop", actor_of(alice), campaign.moment)
    assert campaign.run_until_ended(10).state == ChangeState.CANCELLED
    counts = campaigns.counts_of(campaign.change)
    assert counts.succeeded_count == campaign.fleet.advisory_counts.total() == 10
    assert counts.skipped_count == 90
    with pytest.raises(ChangeRefusedError, match="only a running or paused campaign"):
        kinds.run_action(campaign.change, "stop", actor_of(alice), campaign.moment)
    rows = AuditEntry.objects.filter(action="reconnect.stop").order_by("pk")
    assert [(row.actor_name, row.outcome) for row in rows] == [("alice", "succeeded"), ("alice", "refused")]


def test_stop_from_a_stale_copy_changes_nothing(cluster: Cluster, alice: User) -> None:
    """The copy in memory is still running."""
    campaign = CampaignScenario(cluster, alice, CampaignFleet.of(30), rate_per_minute=600, canary_size=0)
    campaign.confirm()
    campaign.step(2)
    stale_change = Change.objects.get()
    engine.pause(campaign.change, actor_of(alice), campaign.moment)
    counts_before = campaigns.counts_of(campaign.change)
    with pytest.raises(WrongStateError):
        kinds.run_action(stale_change, "stop", actor_of(alice), campaign.moment)
    assert campaigns.counts_of(campaign.change) == counts_before
    assert "stopped_by" not in Change.objects.get().parameters


def test_abort_ends_the_campaign_at_once(cluster: Cluster, alice: User) -> None:
    """A step in progress loses its lease."""
    campaign = CampaignScenario(cluster, alice, CampaignFleet.of(100), rate_per_minute=600, canary_size=0)
    campaign.confirm()
    campaign.step(2)
    worker_lease = lease.take(cluster.pk, lease.CHANGES, "worker", campaign.moment, campaign.change)
    aborted_change = kinds.run_action(campaign.change, "abort", actor_of(alice), campaign.moment)
    assert aborted_change.state == ChangeState.CANCELLED
    assert campaigns.counts_of(aborted_change).unfinished_count == 0
    with pytest.raises(lease.LeaseLostError), lease.fenced_transaction(worker_lease):
        raise AssertionError("the worker has lost its lease")


def test_campaign_waits_for_current_data(cluster: Cluster, alice: User) -> None:
    """No advisory is sent while the data is old."""
    campaign = CampaignScenario(cluster, alice, CampaignFleet.of(50), rate_per_minute=600, canary_size=0)
    campaign.confirm()
    campaign.step(2)
    advised_count = campaign.fleet.advisory_counts.total()
    campaign.fleet.stale = True
    campaign.step(10)
    assert campaign.fleet.advisory_counts.total() == advised_count
    assert "waiting for current data" in campaigns.progress_of(campaign.change, campaign.now)["waiting_for"]
    campaign.fleet.stale = False
    assert campaign.run_until_ended().state == ChangeState.VERIFIED


def test_unreachable_proxy_fails_its_agents(cluster: Cluster, alice: User) -> None:
    """The advisory is repeated in each step; the agents fail after their timeout."""
    fleet = CampaignFleet.of(9, unreachable_proxies={0})
    campaign = CampaignScenario(
        cluster,
        alice,
        fleet,
        rate_per_minute=6000,
        canary_size=0,
        timeout_seconds=5,
        failure_threshold_percent=100,
    )
    campaign.confirm()
    campaign.run_until_ended()
    counts = campaigns.counts_of(campaign.change)
    assert (counts.succeeded_count, counts.failed_count) == (6, 3)
    failed_rows = campaign.change.campaign_agents.filter(state=CampaignAgentState.FAILED.value)
    assert all(row.ended_at - row.requested_at >= 5 for row in failed_rows)


def test_second_campaign_waits_for_the_first(cluster: Cluster, alice: User) -> None:
    """It shows which change is running."""
    first = CampaignScenario(cluster, alice, CampaignFleet.of(50), rate_per_minute=60, canary_size=0)
    second = CampaignScenario(cluster, alice, CampaignFleet.of(50), rate_per_minute=60, canary_size=0)
    for campaign in (first, second):
        campaign.confirm()
        campaign.step()
    assert second.change.state == ChangeState.CONFIRMED
    assert "Changes run one at a time" in second.change.detail
    kinds.run_action(first.change, "abort", actor_of(alice), first.moment)
    second.step()
    assert second.change.state == ChangeState.RUNNING


def test_agents_that_left_are_skipped_when_the_proxy_stops_responding(cluster: Cluster, alice: User) -> None:
    """The proxy freezes after the plan: no agent moves between the others, and none is asked through it."""
    fleet = CampaignFleet({f"agent-{n}": {0} for n in range(8)})
    campaign = CampaignScenario(cluster, alice, fleet, ("proxy-0",), rate_per_minute=6000)
    campaign.confirm()
    fleet.silent_proxies = {0}
    for number in range(7):
        fleet.agents[f"agent-{number}"].add(1)
    campaign.run_until_ended()
    assert fleet.advisory_counts.total() == 0
    assert campaigns.count_agents_by_reason(campaign.change) == [
        ("skipped", "the agent is already connected to another proxy", 7),
        ("skipped", "the agent has no tunnel to a reachable proxy, so Refloat cannot reach it", 1),
    ]
