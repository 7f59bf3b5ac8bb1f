"""Progress of retirements; tests/fleet/changes/operations/test_retire_run.py undoes one."""

from __future__ import annotations

from django.contrib.auth.models import User

from fleet.changes.kinds import kind_of
from fleet.changes.operations import retirements
from fleet.changes.operations.retirements import RetireTarget
from fleet.models.clusters import Cluster
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
