"""What operators do to a rollout; tests/fleet/changes/test_kinds.py does it by the registry."""

from __future__ import annotations

from django.contrib.auth.models import User

from fleet.changes import kinds
from fleet.models.clusters import Cluster
from fleet.vocabulary.rollouts import RolloutStepState
from tests.fleet.changes.conftest import NOW, by
from tests.fleet.changes.policies.test_run import Rollout, auths_of_a_fleet


def test_rest_is_skipped_when_cancelled(cluster: Cluster, alice: User) -> None:
    """Who waits is skipped; who is under way is left to itself."""
    one = Rollout(cluster, alice, *auths_of_a_fleet(3))
    one.step(2)
    under_way = one.rows[0].state
    kinds.run_action(one.change, "abort", by(alice), NOW)
    assert [row.state for row in one.rows] == [under_way, RolloutStepState.SKIPPED, RolloutStepState.SKIPPED]


def test_who_failed_has_another_turn(cluster: Cluster, alice: User) -> None:
    """And only who failed."""
    one = Rollout(cluster, alice, *auths_of_a_fleet(3))
    one.step()
    states = [RolloutStepState.OK, RolloutStepState.FAILED, RolloutStepState.SKIPPED]
    for row, state in zip(one.rows, states, strict=True):
        row.state = state.value
        row.save()
    kinds.run_action(one.change, "pause", by(alice), NOW)
    kinds.run_action(one.change, "resume", by(alice), NOW)
    assert [row.state for row in one.rows] == [
        RolloutStepState.OK,
        RolloutStepState.WAITING,
        RolloutStepState.SKIPPED,
    ]
