"""Actions of people on changes; those on campaigns are in tests/fleet/changes/campaigns/test_run.py."""

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
ACTOR = RequestActor(Actor(ActorKind.PERSON, "alice"))


def _change(kind: str) -> Change:
    cluster = Cluster.objects.create(id="default", name="Default")
    return Change.objects.create(
        cluster=cluster, kind=kind, title="x", actor_name="a", actor_kind="person", state="running"
    )


def test_rollout_is_paused_resumed_and_cancelled() -> None:
    """Resume retries failed steps; abort skips pending ones."""
    change = _change("policy")
    for position, state in enumerate(("succeeded", "failed", "pending")):
        RolloutStep.objects.create(
            change=change, position=position, instance_id=str(position), name="x", state=state
        )
    assert kinds.run_action(change, "pause", ACTOR, NOW).state == "paused"
    assert kinds.run_action(change, "resume", ACTOR, NOW).state == "running"
    assert [row.state for row in change.rollout_steps.all()] == ["succeeded", "pending", "pending"]
    assert kinds.run_action(change, "abort", ACTOR, NOW).state == "cancelled"
    assert [row.state for row in change.rollout_steps.all()] == ["succeeded", "skipped", "skipped"]


def test_unsupported_action_is_refused() -> None:
    """The attempt is logged."""
    with pytest.raises(ChangeRefusedError):
        kinds.run_action(_change("networking-config"), "pause", ACTOR, NOW)
    assert AuditEntry.objects.get().outcome == "refused"


def test_cancel_of_a_running_rollout_aborts_it() -> None:
    """No step of an ended change stays pending."""
    change = _change("policy")
    RolloutStep.objects.create(change=change, position=0, instance_id="0", name="x", state="pending")
    assert kind_of(change).cancel(change, ACTOR, NOW).state == "cancelled"
    assert [row.state for row in change.rollout_steps.all()] == ["skipped"]


def test_cancel_of_a_planned_change() -> None:
    change = _change("reconnect")
    Change.objects.update(state="planned")
    change.refresh_from_db()
    assert kind_of(change).cancel(change, ACTOR, NOW).state == "cancelled"


def test_cancel_of_a_running_config_write_is_refused() -> None:
    """Its outcome is not known yet."""
    change = _change("networking-config")
    with pytest.raises(ChangeRefusedError, match="finishes within 60 s"):
        kind_of(change).cancel(change, ACTOR, NOW)
    row = AuditEntry.objects.get()
    assert (row.action, row.outcome, row.change_id) == ("networking-config.cancelled", "refused", change.pk)


def test_resume_of_a_cancelled_rollout_retries_nothing() -> None:
    """Failed steps stay failed."""
    change = _change("policy")
    RolloutStep.objects.create(change=change, position=0, instance_id="0", name="x", state="failed")
    kinds.run_action(change, "pause", ACTOR, NOW)
    stale_change = Change.objects.get()
    kinds.run_action(change, "abort", ACTOR, NOW)
    with pytest.raises(ChangeRefusedError):
        kinds.run_action(stale_change, "resume", ACTOR, NOW)
    assert [row.state for row in change.rollout_steps.all()] == ["failed"]
