"""Retirements are verified with the fleet data, and carried out where they were planned."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.contrib.auth.models import User

from fleet.changes import engine
from fleet.changes.kinds import kind_of
from fleet.changes.operations import retirements
from fleet.changes.operations.retire_run import RetireRunner
from fleet.changes.operations.retirements import RetireTarget
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster
from fleet.models.inventory import Agent
from fleet.vocabulary.changes import ChangeState
from tests.fakes.campaign_fleet import CampaignFleet
from tests.fakes.step_contexts import InMemoryReader, create_step_context, record_snapshot_of
from tests.fleet.changes.conftest import NOW, actor_of


@dataclass
class _Scenario:
    user: User
    fleet: CampaignFleet = field(default_factory=lambda: CampaignFleet.of(5))

    def request(self, *agents: str, is_retired: bool = True) -> Change:
        targets = [RetireTarget(agent, agent, position) for position, agent in enumerate(agents)]
        change = retirements.request_retirement(
            "default", targets, actor_of(self.user), "scrapped", lambda: NOW, is_retired=is_retired
        )
        assert change is not None
        return change

    def step(self, change: Change) -> Change:
        context = create_step_context(NOW.timestamp, reader=InMemoryReader(self.fleet.table))
        RetireRunner().step(change, context)
        change.refresh_from_db()
        return change


def test_change_ends_when_the_fleet_data_shows_it(cluster: Cluster, alice: User) -> None:
    """A worker updates the fleet data meanwhile."""
    scenario = _Scenario(alice)
    change = scenario.step(scenario.request("agent-0", "agent-3"))
    assert change.state == ChangeState.VERIFYING
    scenario.fleet.retired_agents = {"agent-0", "agent-3"}
    change = scenario.step(change)
    assert (change.state, change.detail) == (ChangeState.VERIFIED, "2 agents retired")


def test_undo_reinstates_the_agents_of_the_change(cluster: Cluster, alice: User) -> None:
    """Only these; each has its audit entry again."""
    scenario = _Scenario(alice)
    scenario.request("agent-1")
    change = scenario.request("agent-0", "agent-1", "agent-3")
    scenario.fleet.retired_agents = {"agent-0", "agent-1", "agent-3"}
    change = scenario.step(change)
    assert kind_of(change).can_undo(change)
    undo = kind_of(change).undo(change, actor_of(alice), NOW, record_snapshot_of(None, NOW.timestamp()))
    assert undo.title == "Reinstate 2 agents"
    undo = engine.confirm(undo, actor_of(alice), reason="came back", typed_name="", now=NOW)
    assert scenario.step(undo).state == ChangeState.VERIFYING
    assert list(Agent.objects.filter(is_retired=True).values_list("agent_id", flat=True)) == ["agent-1"]
    entries = AuditEntry.objects.filter(action="agent.reinstate").order_by("subject")
    assert [(entry.subject, entry.actor_name, entry.reason) for entry in entries] == [
        ("agent-0", "alice", "came back"),
        ("agent-3", "alice", "came back"),
    ]
    change.refresh_from_db()
    assert change.state == ChangeState.UNDONE


def test_later_request_ends_an_earlier_change(cluster: Cluster, alice: User) -> None:
    """The fleet data will never show the earlier one."""
    scenario = _Scenario(alice)
    change = scenario.request("agent-0", "agent-1")
    scenario.request("agent-1", is_retired=False)
    change = scenario.step(change)
    assert (change.state, change.detail) == (
        ChangeState.FAILED,
        "a later request replaced this one for 1 agent",
    )
