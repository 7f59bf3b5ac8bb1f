"""Progress of retirements; tests/fleet/changes/operations/test_retire_run.py undoes one."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from fleet.changes.kinds import kind_of
from fleet.changes.operations import retirements
from fleet.changes.operations.retire_kind import RetireKind
from fleet.changes.operations.retirements import RetireTarget
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.models.inventory import Agent
from tests.fleet.changes.conftest import NOW, actor_of


def test_progress_counts_agents(cluster: Cluster, alice: User) -> None:
    """All at once."""
    targets = [RetireTarget(f"agent-{n}", f"agent-{n}", n) for n in range(3)]
    change = retirements.request_retirement(
        "default", targets, actor_of(alice), "scrapped", lambda: NOW, is_retired=True
    )
    assert change is not None
    assert kind_of(change).progress_of(change, 0.0)["finished_count"] == 0
    change.state = "verified"
    assert kind_of(change).progress_of(change, 0.0)["finished_count"] == 3


@pytest.mark.django_db
def test_retirement_is_superseded_when_all_its_agents_were_reinstated() -> None:
    """Then its undo would change nothing."""
    cluster = Cluster.objects.create(id="default", name="Default")
    for position in range(2):
        Agent.objects.create(
            cluster=cluster, agent_id=f"id-{position}", name="x", position=position, is_retired=position == 0
        )
    parameters = {"agents": {"id-0": ["x", 0], "id-1": ["x", 1]}}
    retirement = Change(cluster=cluster, kind="retire", after={"is_retired": True}, parameters=parameters)
    reinstatement = Change(cluster=cluster, kind="retire", after={"is_retired": False}, parameters=parameters)
    assert not RetireKind().is_superseded(retirement)
    assert not RetireKind().is_superseded(reinstatement)
    Agent.objects.update(is_retired=False)
    assert RetireKind().is_superseded(retirement)
    Agent.objects.update(is_retired=True)
    assert RetireKind().is_superseded(reinstatement)
    assert (retirement.kind_label, reinstatement.kind_label) == ("retirement", "reinstatement")
