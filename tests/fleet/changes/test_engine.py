from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User

from fleet.changes import ChangeRefusedError, ClusterBusyError, WrongStateError, engine
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster
from fleet.vocabulary.changes import ChangeKind, ChangeState
from tests.fleet.changes.conftest import NOW, actor_of, make_draft

LATER = NOW + timedelta(minutes=5)


def _audit_actions() -> list[tuple[str, str]]:
    return [(entry.action, entry.outcome) for entry in AuditEntry.objects.order_by("pk")]


def _confirmed(cluster: Cluster, user: User) -> Change:
    change = engine.create_change(cluster.pk, make_draft(), actor_of(user), NOW)
    return engine.confirm(change, actor_of(user), reason="rollout", typed_name="", now=NOW)


def test_change_is_logged_in_every_state(cluster: Cluster, alice: User) -> None:
    """Plan, confirm, start, verify and undo."""
    change = _confirmed(cluster, alice)
    assert engine.can_start(change)
    engine.start(change, LATER)
    assert engine.find_running_change(cluster.pk) == change
    engine.transition(change, ChangeState.VERIFYING, LATER, log_before={"v": "a"}, log_after={"v": "b"})
    engine.transition(change, ChangeState.VERIFIED, LATER, outcome={"closed": 3})
    engine.transition(change, ChangeState.UNDONE, LATER, detail="by change 2")

    change.refresh_from_db()
    assert (change.state, change.started_at, change.ended_at) == ("undone", LATER, LATER)
    assert change.outcome == {"closed": 3}
    assert _audit_actions() == [
        (f"networking-config.{step}", "succeeded")
        for step in ("plan", "confirm", "start", "verifying", "verified", "undone")
    ]
    entry = AuditEntry.objects.get(action="networking-config.verifying")
    assert (entry.before, entry.after, entry.actor_name, entry.actor_kind, entry.request_id) == (
        {"v": "a"}, {"v": "b"}, "Refloat", "system", "req-1",
    )  # fmt: skip


def test_confirm_without_reason_or_name_is_refused_by_field(cluster: Cluster, alice: User) -> None:
    """Above 100 agents the cluster's name must be typed; the refusal is logged."""
    change = engine.create_change(cluster.pk, make_draft(agents=101), actor_of(alice), NOW)
    with pytest.raises(ChangeRefusedError) as refusal:
        engine.confirm(change, actor_of(alice), reason=" ", typed_name="defualt", now=NOW)
    assert set(refusal.value.problems) == {"reason", "confirmation"}
    assert Change.objects.get().state == ChangeState.PLANNED
    assert _audit_actions()[-1] == ("networking-config.confirm", "refused")
    engine.confirm(change, actor_of(alice), reason="why not", typed_name="default", now=NOW)


def test_production_cluster_requires_its_typed_name(cluster: Cluster, alice: User) -> None:
    """However few agents are affected."""
    Cluster.objects.update(production=True)
    change = engine.create_change(cluster.pk, make_draft(agents=0), actor_of(alice), NOW)
    assert engine.requirements_of(change).expected_name == "default"


def test_second_approver_must_be_another_person(cluster: Cluster, alice: User, bob: User) -> None:
    """The author cannot approve, and one approval is enough."""
    Cluster.objects.update(review_required=True)
    change = _confirmed(cluster, alice)
    with pytest.raises(ChangeRefusedError, match="no second person has approved"):
        engine.start(change, LATER)
    with pytest.raises(ChangeRefusedError, match="neither the author"):
        engine.approve(change, actor_of(alice), now=NOW)
    engine.approve(change, actor_of(bob), now=NOW)
    with pytest.raises(WrongStateError, match="already confirmed and approved"):
        engine.approve(change, actor_of(bob), now=NOW)
    assert engine.start(change, LATER).state == ChangeState.RUNNING


def test_one_change_at_a_time(cluster: Cluster, alice: User) -> None:
    """Also while the first change is paused."""
    first, second = _confirmed(cluster, alice), _confirmed(cluster, alice)
    engine.start(first, NOW)
    with pytest.raises(ClusterBusyError, match=f"change {first.pk} by alice is running in cluster default"):
        engine.start(second, NOW)
    engine.transition(first, ChangeState.PAUSED, NOW)
    with pytest.raises(ClusterBusyError):
        engine.start(second, NOW)
    engine.transition(first, ChangeState.CANCELLED, NOW)
    engine.start(second, NOW)
    assert engine.describe_running_change(cluster.pk)


def test_transition_of_a_stale_copy_is_refused(cluster: Cluster, alice: User) -> None:
    """A stale copy in memory changes nothing."""
    change = _confirmed(cluster, alice)
    stale_change = Change.objects.get()
    engine.start(change, NOW)
    with pytest.raises(WrongStateError, match="conflict"):
        engine.start(stale_change, NOW)
    with pytest.raises(WrongStateError, match="cannot become planned"):
        engine.transition(stale_change, ChangeState.PLANNED, NOW)


def test_idempotency_key_gives_the_same_change(cluster: Cluster, alice: User) -> None:
    """A different change with the same key is refused."""
    first = engine.create_change(cluster.pk, make_draft(), actor_of(alice, "k"), NOW)
    assert engine.create_change(cluster.pk, make_draft(), actor_of(alice, "k"), LATER) == first
    with pytest.raises(ChangeRefusedError, match="a different change"):
        engine.create_change(cluster.pk, make_draft(desired_value="c"), actor_of(alice, "k"), LATER)
    assert Change.objects.count() == 1


def test_update_of_progress_is_not_logged(cluster: Cluster, alice: User) -> None:
    change = engine.start(_confirmed(cluster, alice), NOW)
    entry_count = len(_audit_actions())
    assert engine.update_change(change, progress={"done": 1}).progress == {"done": 1}
    assert len(_audit_actions()) == entry_count


def test_person_who_confirmed_cannot_approve(cluster: Cluster, alice: User, bob: User) -> None:
    """Also if the cluster requires a review only since the plan was created."""
    change = engine.create_change(cluster.pk, make_draft(), actor_of(alice), NOW)
    Cluster.objects.update(review_required=True)
    change = Change.objects.get(pk=change.pk)
    engine.confirm(change, actor_of(bob), reason="needed", typed_name="", now=NOW)
    assert not engine.can_start(change)
    for user in (alice, bob):
        with pytest.raises(ChangeRefusedError, match="nor the person who confirmed"):
            engine.approve(change, actor_of(user), now=NOW)
    engine.approve(change, actor_of(User.objects.create_user("carol")), now=NOW)
    assert engine.can_start(change)


def test_confirm_an_old_plan_is_refused(cluster: Cluster, alice: User) -> None:
    """Its forecast may be out of date."""
    change = engine.create_change(cluster.pk, make_draft(), actor_of(alice), NOW)
    with pytest.raises(ChangeRefusedError, match="Preview the change again"):
        engine.confirm(change, actor_of(alice), reason="late", typed_name="", now=NOW + timedelta(minutes=16))


def test_transition_and_its_rows_are_one_transaction(cluster: Cluster, alice: User) -> None:
    """A crash in between leaves neither."""
    change = engine.create_change(cluster.pk, make_draft(), actor_of(alice), NOW)

    def die(_: Change) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        engine.transition(change, ChangeState.CANCELLED, NOW, write_related_rows=die)
    change.refresh_from_db()
    assert change.state == ChangeState.PLANNED


def test_approval_by_the_person_who_confirmed_meanwhile_is_refused(
    cluster: Cluster, alice: User, bob: User
) -> None:
    """The database decides, not a stale copy."""
    Cluster.objects.update(review_required=True)
    change = engine.create_change(cluster.pk, make_draft(), actor_of(alice), NOW)
    stale_change = Change.objects.get()
    engine.confirm(change, actor_of(bob), reason="needed", typed_name="", now=NOW)
    with pytest.raises(ChangeRefusedError, match="nor the person who confirmed"):
        engine.approve(stale_change, actor_of(bob), now=NOW)
    assert not engine.can_start(Change.objects.get())
    engine.approve(Change.objects.get(), actor_of(User.objects.create_user("carol")), now=NOW)
    assert engine.can_start(Change.objects.get())


def test_review_requirement_is_read_at_confirmation(cluster: Cluster, alice: User, bob: User) -> None:
    """The confirmation and the approval read the current setting of the cluster."""
    engine.create_change(cluster.pk, make_draft(), actor_of(alice), NOW)
    change = Change.objects.select_related("cluster").get()
    approved_change = Change.objects.get()
    Cluster.objects.update(review_required=True)
    engine.confirm(change, actor_of(alice), reason="needed", typed_name="", now=NOW)
    assert change.review_required
    assert not engine.can_start(change)
    assert engine.approve(approved_change, actor_of(bob), now=NOW).approved_by == "bob"


def test_transition_of_a_stale_copy_in_the_same_state_is_refused(cluster: Cluster, alice: User) -> None:
    """The change was paused and resumed since the copy was read."""
    change = engine.start(_confirmed(cluster, alice), NOW)
    stale_change = Change.objects.get()
    engine.transition(change, ChangeState.PAUSED, NOW)
    engine.transition(change, ChangeState.RUNNING, NOW)
    with pytest.raises(WrongStateError, match="conflict"):
        engine.transition(stale_change, ChangeState.CANCELLED, NOW)
    assert Change.objects.get().state == ChangeState.RUNNING


def test_refused_plan_is_one_row(cluster: Cluster, alice: User) -> None:
    """Also if the attempts are nested."""
    with (
        pytest.raises(ChangeRefusedError),
        engine.record_refused_plan(ChangeKind.POLICY, cluster.pk, actor_of(alice), NOW),
        engine.record_refused_plan(ChangeKind.POLICY, cluster.pk, actor_of(alice), NOW, {"wanted": 1}),
    ):
        raise ChangeRefusedError("no")
    assert _audit_actions() == [("policy.plan", "refused")]


def test_change_that_runs_does_not_wait_for_itself(cluster: Cluster, alice: User) -> None:
    """A page may have read it before it started."""
    change = engine.create_change(cluster.pk, make_draft(), actor_of(alice), NOW)
    engine.confirm(change, actor_of(alice), reason="to try", typed_name="", now=NOW)
    engine.start(change, NOW)
    assert f"change {change.pk} by alice is running" in engine.describe_running_change(cluster.pk)
    assert engine.describe_running_change(cluster.pk, change) == ""
