from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError
from django.utils import timezone

from dashboards.shared import fleet_activity
from dashboards.shared.fleet_activity import read_activity, read_activity_at
from fleet.alerts.headlines.activity import NO_ACTIVITY, RECENT_SECONDS
from fleet.models.actions import CampaignAgent, RolloutStep
from fleet.models.changes import Change
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.vocabulary.changes import ChangeKind, ChangeState
from fleet.vocabulary.rollouts import RolloutStepState

pytestmark = pytest.mark.django_db
MOMENT = timezone.now()
NOW = MOMENT.timestamp()


def _create_change(kind: ChangeKind, state: ChangeState = ChangeState.RUNNING, **fields: Any) -> Change:
    ensure_default_cluster()
    base: dict[str, Any] = {
        "title": "a change",
        "actor_name": "API token demo (6d06f9a9) of user ana",
        "started_at": MOMENT - timedelta(seconds=30),
    }
    return Change.objects.create(cluster_id="default", kind=kind.value, state=state.value, **(base | fields))


def _create_campaign(*states: str, **fields: Any) -> Change:
    plan = {"connection": "tunnel", "agents_by_instance": {"proxy-1": len(states)}}
    change = _create_change(ChangeKind.RECONNECT, plan=plan, **fields)
    for position, state in enumerate(states):
        CampaignAgent.objects.create(
            change=change, position=position, agent_id=f"id-{position}", name=f"agent-{position}", state=state
        )
    return change


def test_campaign_has_its_user_progress_and_the_instances_that_agents_leave() -> None:
    """Skipped agents do not count: nothing happens with them."""
    user = User.objects.create_user("ana")
    states = ("succeeded", "succeeded", "failed", "pending", "skipped")
    _create_campaign(*states, user=user, progress={"waiting_for": "the first agent must succeed"})
    (campaign,) = read_activity("default", NOW).changes
    assert (campaign.total_count, campaign.finished_count, campaign.failed_count) == (4, 3, 1)
    assert (campaign.actor_name, campaign.instances_to_leave) == ("ana", ("proxy-1",))
    assert (campaign.is_running, campaign.detail) == (
        True,
        "the first agent must succeed",
    )


def test_agents_are_counted_once_in_each_step(django_assert_max_num_queries: Any) -> None:
    change = _create_campaign("succeeded", "pending", progress={"stepped_at": 1.0})
    assert read_activity("default", NOW).changes[0].finished_count == 1
    change.campaign_agents.update(state="succeeded")
    with django_assert_max_num_queries(2):
        assert read_activity("default", NOW).changes[0].finished_count == 1
    Change.objects.update(progress={"stepped_at": 2.0})
    assert read_activity("default", NOW).changes[0].finished_count == 2


def test_rollout_has_the_instances_in_progress() -> None:
    change = _create_change(
        ChangeKind.POLICY,
        before={"auth": {"A": "1"}},
        after={"auth": {"A": "1"}, "proxy": {"B": "1"}},
        parameters={"soak_seconds": 7},
    )
    states = (RolloutStepState.SUCCEEDED, RolloutStepState.RESTARTING, RolloutStepState.PENDING)
    for position, state in enumerate(states):
        name = f"proxy-{position + 1}"
        RolloutStep.objects.create(
            change=change, position=position, instance_id=name, name=name, state=state.value
        )
    (rollout,) = read_activity("default", NOW).changes
    assert (rollout.total_count, rollout.finished_count, rollout.instances_noun) == (3, 1, "proxies")
    assert rollout.steps == (("proxy-2", RolloutStepState.RESTARTING),)
    assert rollout.checks_end_at is None
    RolloutStep.objects.filter(name="proxy-2").update(state=RolloutStepState.VERIFYING.value, since=NOW)
    (rollout,) = read_activity("default", NOW).changes
    assert rollout.checks_end_at == NOW + 7


def test_ended_changes_are_recent_for_10_minutes() -> None:
    """Plans never started, so they are not part of it."""
    _create_change(ChangeKind.NETWORKING_CONFIG, ChangeState.PLANNED, started_at=None)
    ended_at = MOMENT - timedelta(seconds=RECENT_SECONDS - 1)
    _create_change(ChangeKind.NETWORKING_CONFIG, ChangeState.VERIFIED, ended_at=ended_at)
    assert [change.ended_at for change in read_activity("default", NOW).changes] == [ended_at.timestamp()]
    assert read_activity("default", NOW + 2) == NO_ACTIVITY


def test_resolved_incidents_are_recent_for_10_minutes() -> None:
    """Those that affected agents; in the past tense, since the recovery that their end confirmed."""
    ensure_default_cluster()
    for number, (peak_count, summary) in enumerate(
        [(15, "15 agents were stranded because proxy-2 was not responding."), (0, "proxy-1 was unhealthy.")]
    ):
        Incident.objects.create(
            cluster_id="default",
            key=f"proxy/{number}",
            cause_kind="proxy",
            cause_id=str(number),
            cause_name=f"proxy-{2 - number}",
            generation=1,
            state="resolved",
            severity=1,
            opened_at=NOW - 420,
            recovering_since=NOW - 360,
            resolved_at=NOW - 60,
            peak_count=peak_count,
            summary=summary,
        )
    (recovery,) = read_activity("default", NOW).recoveries
    assert recovery.summary == "15 agents were stranded because proxy-2 was not responding"
    assert recovery.recovered_at == NOW - 360
    assert read_activity("default", NOW + RECENT_SECONDS).recoveries == ()


def test_past_moment_has_the_changes_of_its_time_without_progress() -> None:
    _create_campaign("succeeded", state=ChangeState.VERIFIED, ended_at=MOMENT - timedelta(seconds=10))
    (campaign,) = read_activity_at("default", NOW - 20).changes
    assert (campaign.is_running, campaign.total_count, campaign.detail) == (True, 0, "")
    assert read_activity_at("default", NOW - 5) == NO_ACTIVITY


def test_headline_does_without_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise DatabaseError("the database is down")

    monkeypatch.setattr(fleet_activity, "_read_changes", fail)
    assert read_activity("default", NOW) == NO_ACTIVITY
