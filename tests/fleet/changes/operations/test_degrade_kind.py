"""Undo and progress of degradations; tests/fleet/changes/operations/test_degrade_run.py carries one out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.contrib.auth.models import User

from fleet.changes import ChangeRefusedError
from fleet.changes.kinds import kind_of
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.vocabulary.changes import ChangeState
from tests.fakes.step_contexts import record_snapshot_of
from tests.fleet.changes.conftest import NOW, actor_of
from tests.fleet.changes.operations.test_degradations import REQUEST, make_change


def test_cleared_mark_cannot_be_undone(cluster: Cluster, alice: User) -> None:
    """For how long the instance was to be degraded is not known any more."""
    change = make_change(alice, replace(REQUEST, is_degraded=False, was_degraded=True))
    Change.objects.update(state=ChangeState.VERIFIED.value, started_at=NOW)
    change.refresh_from_db()
    assert not kind_of(change).can_undo(change)
    with pytest.raises(ChangeRefusedError, match="it cleared a degraded mark"):
        kind_of(change).undo(change, actor_of(alice), NOW, record_snapshot_of(None, NOW.timestamp()))


@pytest.mark.parametrize(
    ("state", "finished_count", "failed_count"), [("confirmed", 0, 0), ("verified", 1, 0), ("failed", 0, 1)]
)
def test_progress(cluster: Cluster, alice: User, state: str, finished_count: int, failed_count: int) -> None:
    """Of one instance."""
    change = make_change(alice)
    change.state = state
    progress = kind_of(change).progress_of(change, 0.0)
    assert (progress["total_count"], progress["finished_count"], progress["failed_count"]) == (
        1,
        finished_count,
        failed_count,
    )
