"""Operator actions on a rollout; tests/fleet/changes/test_kinds.py tests them through the registry."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from fleet.changes import ChangeRefusedError, kinds
from fleet.changes.policies.kind import plan_completion
from fleet.models.actions import DesiredPolicy
from fleet.models.clusters import Cluster
from fleet.vocabulary.rollouts import RolloutStepState
from tests.fleet.changes.conftest import NOW, actor_of
from tests.fleet.changes.policies.test_run import Rollout, make_auths


def test_pending_steps_are_skipped_when_aborted(cluster: Cluster, alice: User) -> None:
    """A step in progress keeps its state."""
    rollout = Rollout(cluster, alice, *make_auths(3))
    rollout.step(2)
    state_in_progress = rollout.rows[0].state
    kinds.run_action(rollout.change, "abort", actor_of(alice), NOW)
    assert [row.state for row in rollout.rows] == [
        state_in_progress,
        RolloutStepState.SKIPPED,
        RolloutStepState.SKIPPED,
    ]


def test_aborted_rollout_counts_skipped_instances_as_not_restarted(cluster: Cluster, alice: User) -> None:
    """Neither the bar nor a sentence says that they are finished."""
    rollout = Rollout(cluster, alice, *make_auths(3))
    rollout.step(4)
    change = kinds.run_action(rollout.change, "abort", actor_of(alice), NOW)
    assert change.detail == (
        "aborted by alice: restarted 0 of 3 instances, 2 skipped; auth-1 is being verified"
    )
    progress = kinds.kind_of(change).progress_of(change, 0.0)
    assert (progress["total_count"], progress["finished_count"], progress["skipped_count"]) == (3, 0, 2)
    assert (progress["percent"], progress["in_progress_count"]) == (0, 1)
    assert change.state_label == "aborted"


def test_completion_restarts_the_instances_that_the_abort_left_out(cluster: Cluster, alice: User) -> None:
    rollout = Rollout(cluster, alice, *make_auths(3))
    rollout.step(4)
    kinds.run_action(rollout.change, "abort", actor_of(alice), NOW)
    for _ in range(5):
        rollout.step()
    plan = plan_completion(rollout.change, actor_of(alice), NOW, rollout.nodes.record(rollout.now))
    assert plan.title == "Roll out the present desired values"
    assert [row.name for row in plan.rollout_steps.all()] == ["auth-2", "auth-3"]
    assert plan.before == plan.after == rollout.change.after


def test_resume_retries_failed_steps_only(cluster: Cluster, alice: User) -> None:
    rollout = Rollout(cluster, alice, *make_auths(3))
    rollout.step()
    states = [RolloutStepState.SUCCEEDED, RolloutStepState.FAILED, RolloutStepState.SKIPPED]
    for row, state in zip(rollout.rows, states, strict=True):
        row.state = state.value
        row.save()
    kinds.run_action(rollout.change, "pause", actor_of(alice), NOW)
    kinds.run_action(rollout.change, "resume", actor_of(alice), NOW)
    assert [row.state for row in rollout.rows] == [
        RolloutStepState.SUCCEEDED,
        RolloutStepState.PENDING,
        RolloutStepState.SKIPPED,
    ]


def test_a_rollout_is_superseded_when_its_values_were_changed_again(cluster: Cluster, alice: User) -> None:
    """Then there is nothing to undo."""
    rollout = Rollout(cluster, alice, *make_auths(2))
    rollout.step()
    assert not kinds.kind_of(rollout.change).is_superseded(rollout.change)
    DesiredPolicy.objects.filter(cluster=cluster).update(value="45s")
    assert kinds.kind_of(rollout.change).is_superseded(rollout.change)


def test_undo_plans_the_values_from_before_unless_they_changed_again(cluster: Cluster, alice: User) -> None:
    """In full: what the change set is removed, and restarts with it."""
    rollout = Rollout(cluster, alice, *make_auths(2))
    for _ in range(30):
        rollout.step()
    change, kind = rollout.change, kinds.kind_of(rollout.change)
    plan = kind.plan_undo(change, actor_of(alice), NOW, rollout.nodes.record(rollout.now))
    assert change.after
    assert (plan.before, plan.after) == (change.after, change.before)
    assert plan.rollout_steps.count() == 2
    DesiredPolicy.objects.filter(cluster=cluster).update(value="45s")
    with pytest.raises(ChangeRefusedError, match="was changed again since"):
        kind.plan_undo(change, actor_of(alice), NOW, rollout.nodes.record(rollout.now))
