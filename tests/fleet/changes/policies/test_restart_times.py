"""The median time of earlier restarts of the cluster."""

from __future__ import annotations

import pytest

from fleet.changes.policies.restart_times import typical_restart_seconds
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.vocabulary.changes import ChangeKind, ChangeState
from fleet.vocabulary.rollouts import DEFAULT_RESTART_SECONDS, RolloutStepState
from tests.fleet.changes.conftest import NOW

pytestmark = pytest.mark.django_db


_AUTHS = ("auth-0-id", "auth-1-id", "auth-2-id")


def _add_rollout(cluster: Cluster, *step_seconds: float, role: str = "auth", **step_fields: str) -> None:
    """Store a rollout with a drain time of 2 s and a soak time of 5 s, whose steps took these times."""
    change = Change.objects.create(
        cluster=cluster,
        kind=ChangeKind.POLICY.value,
        state=ChangeState.VERIFIED.value,
        title="auth announce TTL",
        actor_name="alice",
        actor_kind="person",
        created_at=NOW,
        parameters={"concurrency": 1, "drain_seconds": 2, "soak_seconds": 5, "timeout_seconds": 90},
    )
    for position, seconds in enumerate(step_seconds):
        change.rollout_steps.create(
            position=position,
            instance_id=f"{role}-{position}-id",
            name=f"{role}-{position}",
            began_at=100.0,
            ended_at=100.0 + seconds,
            **{"state": RolloutStepState.SUCCEEDED.value, **step_fields},
        )


def test_a_cluster_without_restarts_has_the_default(cluster: Cluster) -> None:
    """Failed and skipped instances, and other clusters, say nothing."""
    _add_rollout(cluster, 90.0, state=RolloutStepState.FAILED.value)
    other_cluster = Cluster.objects.create(id="other", name="Other")
    _add_rollout(other_cluster, 47.0)
    assert typical_restart_seconds(cluster.pk, _AUTHS) == DEFAULT_RESTART_SECONDS
    assert typical_restart_seconds("other", _AUTHS) == 40.0


def test_the_median_leaves_out_drain_and_soak_times(cluster: Cluster) -> None:
    """One slow restart does not change the forecast."""
    _add_rollout(cluster, 17.0, 19.0, 80.0)
    assert typical_restart_seconds(cluster.pk, _AUTHS) == 12.0


def test_instances_of_one_role_take_about_as_long(cluster: Cluster) -> None:
    """Auths restart faster than proxies, which wait for agents."""
    _add_rollout(cluster, 10.0, 11.0, 12.0)
    assert typical_restart_seconds(cluster.pk, ["proxy-0-id"]) == 4.0, "no proxy yet: all restarts count"
    _add_rollout(cluster, 20.0, 22.0, role="proxy")
    assert typical_restart_seconds(cluster.pk, ["proxy-0-id", "proxy-1-id"]) == 14.0
    assert typical_restart_seconds(cluster.pk, _AUTHS) == 4.0
