"""What people do to rollouts and campaigns; campaigns: tests/fleet/changes/campaigns/test_run.py."""

from __future__ import annotations

import pytest

from fleet.audit import RequestActor
from fleet.changes import ChangeRefusedError, kinds
from fleet.changes.kinds import kind_of
from fleet.models.actions import RolloutStep
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster
from fleet.vocabulary.changes import Actor, ActorKind
from tests.fleet.changes.conftest import NOW

pytestmark = pytest.mark.django_db
WHO = RequestActor(Actor(ActorKind.PERSON, "alice"))


def _change(kind: str) -> Change:
    cluster = Cluster.objects.create(id="default", name="Default")
    return Change.objects.create(
        cluster=cluster, kind=kind, title="x", who="a", actor_kind="person", state="running"
    )


def test_rollout_is_paused_resumed_and_cancelled() -> None:
    """Who failed has another turn; who waits is skipped."""
    change = _change("policy")
    for position, state in enumerate(("ok", "failed", "waiting")):
        RolloutStep.objects.create(
            change=change, position=position, instance_id=str(position), name="x", state=state
        )
    assert kinds.run_action(change, "pause", WHO, NOW).state == "paused"
    assert kinds.run_action(change, "resume", WHO, NOW).state == "running"
    assert [row.state for row in change.rollout_steps.all()] == ["ok", "waiting", "waiting"]
    assert kinds.run_action(change, "abort", WHO, NOW).state == "cancelled"
    assert [row.state for row in change.rollout_steps.all()] == ["ok", "skipped", "skipped"]


def test_what_cannot_be_done_is_refused() -> None:
    """A write of the networking config finishes within 60 s; the attempt is in the log."""
    with pytest.raises(ChangeRefusedError):
        kinds.run_action(_change("networking-config"), "pause", WHO, NOW)
    assert AuditEntry.objects.get().outcome == "refused"


def test_calling_off_what_runs_aborts_it() -> None:
    """So that no step stays waiting under a change that is over."""
    change = _change("policy")
    RolloutStep.objects.create(change=change, position=0, instance_id="0", name="x", state="waiting")
    assert kind_of(change).cancel(change, WHO, NOW).state == "cancelled"
    assert [row.state for row in change.rollout_steps.all()] == ["skipped"]


def test_calling_off_what_has_not_begun() -> None:
    """Nothing was changed."""
    change = _change("reconnect")
    Change.objects.update(state="planned")
    change.refresh_from_db()
    assert kind_of(change).cancel(change, WHO, NOW).state == "cancelled"


def test_calling_off_a_write_that_is_under_way() -> None:
    """Nobody can say whether it happened."""
    change = _change("networking-config")
    with pytest.raises(ChangeRefusedError, match="finishes within 60 s"):
        kind_of(change).cancel(change, WHO, NOW)
    row = AuditEntry.objects.get()
    assert (row.action, row.outcome, row.change_id) == ("networking-config.cancelled", "refused", change.pk)


def test_resume_that_comes_too_late_gives_nobody_another_turn() -> None:
    """The rollout was cancelled meanwhile: what failed in it stays failed."""
    change = _change("policy")
    RolloutStep.objects.create(change=change, position=0, instance_id="0", name="x", state="failed")
    kinds.run_action(change, "pause", WHO, NOW)
    seen_before = Change.objects.get()
    kinds.run_action(change, "abort", WHO, NOW)
    with pytest.raises(ChangeRefusedError):
        kinds.run_action(seen_before, "resume", WHO, NOW)
    assert [row.state for row in change.rollout_steps.all()] == ["failed"]
