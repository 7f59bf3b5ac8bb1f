from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User

from fleet.changes import ChangeRefusedError, ClusterBusyError, WrongStateError, engine
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster
from fleet.vocabulary.changes import ChangeKind, ChangeState
from tests.fleet.changes.conftest import NOW, by, draft

LATER = NOW + timedelta(minutes=5)


def _log() -> list[tuple[str, str]]:
    return [(entry.action, entry.outcome) for entry in AuditEntry.objects.order_by("pk")]


def _confirmed(cluster: Cluster, who: User) -> Change:
    change = engine.create_change(cluster.pk, draft(), by(who), NOW)
    return engine.confirm(change, by(who), reason="rollout", typed_name="", now=NOW)


def test_change_runs_its_whole_life(cluster: Cluster, alice: User) -> None:
    """Plan, confirm, start, verify, undo: the row says each, and the log has one row for each."""
    change = _confirmed(cluster, alice)
    assert engine.is_ready(change)
    engine.start(change, LATER)
    assert engine.find_running_change(cluster.pk) == change
    engine.transition(change, ChangeState.VERIFYING, LATER, log_before={"v": "a"}, log_after={"v": "b"})
    engine.transition(change, ChangeState.VERIFIED, LATER, outcome={"closed": 3})
    engine.transition(change, ChangeState.UNDONE, LATER, detail="by change 2")

    change.refresh_from_db()
    assert (change.state, change.started_at, change.ended_at) == ("undone", LATER, LATER)
    assert change.outcome == {"closed": 3}
    assert _log() == [
        (f"networking-config.{step}", "done")
        for step in ("plan", "confirm", "start", "verifying", "verified", "undone")
    ]
    written = AuditEntry.objects.get(action="networking-config.verifying")
    assert (written.before, written.after, written.who, written.actor_kind, written.request_id) == (
        {"v": "a"}, {"v": "b"}, "Refloat", "system", "req-1",
    )  # fmt: skip


def test_confirm_without_reason_or_name_is_refused_by_field(cluster: Cluster, alice: User) -> None:
    """Above a hundred agents the cluster's name must be typed; each field says what it lacks, and it is logged."""
    change = engine.create_change(cluster.pk, draft(agents=101), by(alice), NOW)
    with pytest.raises(ChangeRefusedError) as refused:
        engine.confirm(change, by(alice), reason=" ", typed_name="defualt", now=NOW)
    assert set(refused.value.problems) == {"reason", "typed"}
    assert Change.objects.get().state == ChangeState.PLANNED
    assert _log()[-1] == ("networking-config.confirm", "refused")
    engine.confirm(change, by(alice), reason="why not", typed_name="default", now=NOW)


def test_production_cluster_asks_for_its_name(cluster: Cluster, alice: User) -> None:
    """However few agents it touches."""
    Cluster.objects.update(production=True)
    change = engine.create_change(cluster.pk, draft(agents=0), by(alice), NOW)
    assert engine.requirements_of(change).expected_name == "default"


def test_second_approver_must_be_another_person(cluster: Cluster, alice: User, bob: User) -> None:
    """Nothing starts before somebody else agreed; one's own word does not count, and once is enough."""
    Cluster.objects.update(second_approver=True)
    change = _confirmed(cluster, alice)
    with pytest.raises(ChangeRefusedError, match="no second person has approved"):
        engine.start(change, LATER)
    with pytest.raises(ChangeRefusedError, match="neither the author"):
        engine.approve(change, by(alice), now=NOW)
    engine.approve(change, by(bob), now=NOW)
    with pytest.raises(WrongStateError, match="already confirmed and approved"):
        engine.approve(change, by(bob), now=NOW)
    assert engine.start(change, LATER).state == ChangeState.RUNNING


def test_one_change_at_a_time(cluster: Cluster, alice: User) -> None:
    """The second is told who has the cluster, also while the first is paused, and may start when it ended."""
    first, second = _confirmed(cluster, alice), _confirmed(cluster, alice)
    engine.start(first, NOW)
    with pytest.raises(ClusterBusyError, match=f"change {first.pk} by alice is running in default"):
        engine.start(second, NOW)
    engine.transition(first, ChangeState.PAUSED, NOW)
    with pytest.raises(ClusterBusyError):
        engine.start(second, NOW)
    engine.transition(first, ChangeState.CANCELLED, NOW)
    engine.start(second, NOW)
    assert engine.describe_running_change(cluster.pk)


def test_of_two_who_move_it_one_wins(cluster: Cluster, alice: User) -> None:
    """A stale copy in memory changes nothing."""
    change = _confirmed(cluster, alice)
    copy = Change.objects.get()
    engine.start(change, NOW)
    with pytest.raises(WrongStateError, match="conflict"):
        engine.start(copy, NOW)
    with pytest.raises(WrongStateError, match="cannot become planned"):
        engine.transition(copy, ChangeState.PLANNED, NOW)


def test_idempotency_key_gives_the_same_change(cluster: Cluster, alice: User) -> None:
    """Asked twice, it is made once; with other contents it is refused."""
    first = engine.create_change(cluster.pk, draft(), by(alice, "k"), NOW)
    assert engine.create_change(cluster.pk, draft(), by(alice, "k"), LATER) == first
    with pytest.raises(ChangeRefusedError, match="a different change"):
        engine.create_change(cluster.pk, draft(wanted="c"), by(alice, "k"), LATER)
    assert Change.objects.count() == 1


def test_note_writes_without_the_log(cluster: Cluster, alice: User) -> None:
    """Progress is no story."""
    change = engine.start(_confirmed(cluster, alice), NOW)
    written = len(_log())
    assert engine.update_change(change, progress={"done": 1}).progress == {"done": 1}
    assert len(_log()) == written


def test_who_confirmed_is_no_second_person(cluster: Cluster, alice: User, bob: User) -> None:
    """Whoever planned it; and a cluster that asks for two only since the plan asks for two."""
    change = engine.create_change(cluster.pk, draft(), by(alice), NOW)
    Cluster.objects.update(second_approver=True)
    change = Change.objects.get(pk=change.pk)
    engine.confirm(change, by(bob), reason="needed", typed_name="", now=NOW)
    assert not engine.is_ready(change)
    for user in (alice, bob):
        with pytest.raises(ChangeRefusedError, match="nor the person who confirmed"):
            engine.approve(change, by(user), now=NOW)
    engine.approve(change, by(User.objects.create_user("carol")), now=NOW)
    assert engine.is_ready(change)


def test_confirm_an_old_plan_is_refused(cluster: Cluster, alice: User) -> None:
    """What it foresaw may not hold any more."""
    change = engine.create_change(cluster.pk, draft(), by(alice), NOW)
    with pytest.raises(ChangeRefusedError, match="Preview the change again"):
        engine.confirm(change, by(alice), reason="late", typed_name="", now=NOW + timedelta(minutes=16))


def test_what_is_written_along_is_written_with_it_or_not_at_all(cluster: Cluster, alice: User) -> None:
    """A worker that dies in between leaves no rows open under a change that is over."""
    change = engine.create_change(cluster.pk, draft(), by(alice), NOW)

    def die(_: Change) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        engine.transition(change, ChangeState.CANCELLED, NOW, in_transaction=die)
    change.refresh_from_db()
    assert change.state == ChangeState.PLANNED


def test_approval_by_who_confirmed_meanwhile_is_refused(cluster: Cluster, alice: User, bob: User) -> None:
    """Bob's second request read the change before his confirmation was written: the database decides, not that copy."""
    Cluster.objects.update(second_approver=True)
    change = engine.create_change(cluster.pk, draft(), by(alice), NOW)
    read_before = Change.objects.get()
    engine.confirm(change, by(bob), reason="needed", typed_name="", now=NOW)
    with pytest.raises(ChangeRefusedError, match="nor the person who confirmed"):
        engine.approve(read_before, by(bob), now=NOW)
    assert not engine.is_ready(Change.objects.get())
    engine.approve(Change.objects.get(), by(User.objects.create_user("carol")), now=NOW)
    assert engine.is_ready(Change.objects.get())


def test_cluster_that_asks_for_two_people_since_the_change_was_read(
    cluster: Cluster, alice: User, bob: User
) -> None:
    """The rule of the moment counts: the confirmation reads it as it writes, and so does the approval."""
    engine.create_change(cluster.pk, draft(), by(alice), NOW)
    change = Change.objects.select_related("cluster").get()
    another_copy = Change.objects.get()
    Cluster.objects.update(second_approver=True)
    engine.confirm(change, by(alice), reason="needed", typed_name="", now=NOW)
    assert change.needs_second
    assert not engine.is_ready(change)
    assert engine.approve(another_copy, by(bob), now=NOW).approved_by == "bob"


def test_move_of_a_change_that_came_back_to_its_state(cluster: Cluster, alice: User) -> None:
    """Paused and resumed since: in the same state, but not at the step that was seen."""
    change = engine.start(_confirmed(cluster, alice), NOW)
    seen_before = Change.objects.get()
    engine.transition(change, ChangeState.PAUSED, NOW)
    engine.transition(change, ChangeState.RUNNING, NOW)
    with pytest.raises(WrongStateError, match="conflict"):
        engine.transition(seen_before, ChangeState.CANCELLED, NOW)
    assert Change.objects.get().state == ChangeState.RUNNING


def test_refused_plan_is_one_row(cluster: Cluster, alice: User) -> None:
    """Also where the kind plans inside an attempt of the caller, which reads what was sent."""
    with (
        pytest.raises(ChangeRefusedError),
        engine.record_refused_plan(ChangeKind.POLICY, cluster.pk, by(alice), NOW),
        engine.record_refused_plan(ChangeKind.POLICY, cluster.pk, by(alice), NOW, {"wanted": 1}),
    ):
        raise ChangeRefusedError("no")
    assert _log() == [("policy.plan", "refused")]
