"""Plans of campaigns; their steps are tested in `test_run.py`."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from django.contrib.auth.models import User

from fleet.changes import ChangeRefusedError, engine
from fleet.changes.campaigns import campaigns
from fleet.changes.campaigns.forecast import TargetAgents
from fleet.changes.campaigns.kind import ReconnectKind
from fleet.models.actions import CampaignAgent
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster
from fleet.vocabulary.campaigns import CampaignSettings, move_seconds_of
from fleet.vocabulary.changes import ChangeState
from tests.fakes.campaign_fleet import CampaignFleet
from tests.fleet.changes.conftest import NOW, actor_of


def _plan(cluster: Cluster, user: User, fleet: CampaignFleet, delay: timedelta = timedelta()) -> Change:
    targets = TargetAgents(np.arange(len(fleet.agents)), "all of them")
    table = fleet.table(NOW.timestamp())
    return campaigns.plan_campaign(
        cluster.pk,
        table,
        targets,
        CampaignSettings(),
        actor_of(user),
        NOW + delay,
        lambda order: order.reverse(),
    )


def test_plan_stores_its_target_agents(cluster: Cluster, alice: User) -> None:
    """In random order; agents that cannot move are counted with the reason."""
    fleet = CampaignFleet({"a": {0}, "b": {1}, "c": set()}, proxies=2)
    change = _plan(cluster, alice, fleet)
    assert (change.plan["reconnect_count"], change.affected_count) == (2, 3)
    assert change.plan["agents_by_instance"] == {"proxy-0": 1, "proxy-1": 1}
    assert list(change.plan["skipped_by_reason"].values()) == [1]
    assert [row.agent_id for row in change.campaign_agents.all()] == ["c", "b", "a"]
    assert AuditEntry.objects.filter(action="reconnect.plan", outcome="succeeded").count() == 1


def test_estimates_contain_the_soak_time(cluster: Cluster, alice: User) -> None:
    """The whole of it in the plan; what is left of it while the campaign runs."""
    change = _plan(cluster, alice, CampaignFleet.of(30))
    now, soak_seconds = NOW.timestamp(), CampaignSettings().soak_seconds
    assert change.plan["duration_seconds"] > soak_seconds
    change.state = ChangeState.RUNNING.value
    estimate = campaigns.progress_of(change, now)["eta_seconds"]
    change.progress = {"canaries_finished_at": now - 4}
    change.campaign_agents.filter(position__lt=5).update(state="succeeded")
    remaining_estimate = campaigns.progress_of(change, now)["eta_seconds"]
    settings = CampaignSettings()
    canary_seconds = 5 * 60 / settings.rate_per_minute + move_seconds_of(settings)
    assert estimate - remaining_estimate == pytest.approx(canary_seconds + 4)


def test_plan_without_agents_is_refused(cluster: Cluster, alice: User) -> None:
    """The error repeats the selection."""
    with pytest.raises(ChangeRefusedError, match="there are no agents all of them") as refusal:
        _plan(cluster, alice, CampaignFleet({}))
    assert "target_agents" in refusal.value.problems


def test_expired_plans_lose_their_agents(cluster: Cluster, alice: User) -> None:
    """After an hour."""
    first = _plan(cluster, alice, CampaignFleet.of(3))
    _plan(cluster, alice, CampaignFleet.of(3), timedelta(hours=2))
    assert not first.campaign_agents.exists()
    assert CampaignAgent.objects.count() == 3
    with pytest.raises(ChangeRefusedError, match="older than 60 min"):
        engine.confirm(first, actor_of(alice), reason="late", typed_name="", now=NOW + timedelta(hours=2))


def test_cancelled_campaign_skips_all_agents(cluster: Cluster, alice: User) -> None:
    """A cancelled plan that was not confirmed loses its agents."""
    change = _plan(cluster, alice, CampaignFleet.of(3))
    engine.confirm(change, actor_of(alice), reason="to try", typed_name="", now=NOW)
    ReconnectKind().cancel(change, actor_of(alice), NOW)
    assert change.state == ChangeState.CANCELLED
    assert (campaigns.counts_of(change).skipped_count, change.outcome["skipped_count"]) == (3, 3)
    cancelled_plan = ReconnectKind().cancel(_plan(cluster, alice, CampaignFleet.of(3)), actor_of(alice), NOW)
    assert not cancelled_plan.campaign_agents.exists()


def test_question_contains_the_agent_counts(cluster: Cluster, alice: User) -> None:
    """The agents to reconnect and the agents to skip."""
    change = _plan(cluster, alice, CampaignFleet({"a": {0}, "b": {1}, "c": set()}, proxies=2))
    assert change.plan["question"] == "Reconnect 2 agents to another proxy (1 more will be skipped)?"


def test_question_title_and_button_name_the_only_instance_to_leave(cluster: Cluster, alice: User) -> None:
    """Whatever filter selected the agents; several instances are in the plan."""
    change = _plan(cluster, alice, CampaignFleet({"a": {1}, "b": {1}}, proxies=2))
    assert change.plan["question"] == "Move 2 agents off proxy-1 to another proxy?"
    assert change.plan["action"] == "Move 2 agents off proxy-1"
    assert change.title == "Reconnect 2 agents all of them, off proxy-1"
    spread_change = _plan(cluster, alice, CampaignFleet({"a": {0}, "b": {1}}, proxies=2))
    assert spread_change.plan["action"] == "Reconnect 2 agents"
    assert spread_change.title == "Reconnect 2 agents all of them"
