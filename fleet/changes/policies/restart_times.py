"""How long restarts of instances took in earlier rollouts of a cluster, for the forecast of the next rollout."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Sequence

from fleet.models.actions import RolloutStep
from fleet.monitoring.views import InstanceView
from fleet.vocabulary.rollouts import DEFAULT_RESTART_SECONDS, RolloutSettings, RolloutStepState

#: Number of restarts that count: the newest ones.
_MAX_RESTARTS = 20


def typical_restart_seconds(cluster: str, instances: Collection[str]) -> float:
    """Return the median time of a restart, without drain time and soak time.

    `instances`: ids of instances that take about as long (those of one role). When none of them was restarted yet,
    all instances of the cluster count; when there was no restart at all, a default holds.
    """
    restarts = (
        RolloutStep.objects.filter(
            change__cluster=cluster,
            state=RolloutStepState.SUCCEEDED.value,
            began_at__isnull=False,
            ended_at__isnull=False,
        )
        .select_related("change")
        .order_by("-ended_at")
    )
    steps = restarts.filter(instance_id__in=instances)[:_MAX_RESTARTS] or restarts[:_MAX_RESTARTS]
    return statistics.median(map(_restart_seconds_of, steps)) if steps else DEFAULT_RESTART_SECONDS


def expected_restart_seconds(
    cluster: str, views: Sequence[InstanceView], restarted_ids: Collection[str]
) -> float:
    """Return the mean time of the restarts of these instances, each as long as is typical of its role."""
    restart_counts = Counter(view.facts.kind for view in views if view.facts.id in restarted_ids)
    if not restart_counts:
        return DEFAULT_RESTART_SECONDS
    total_seconds = sum(
        count * typical_restart_seconds(cluster, [view.facts.id for view in views if view.facts.kind == kind])
        for kind, count in restart_counts.items()
    )
    return total_seconds / restart_counts.total()


def _restart_seconds_of(step: RolloutStep) -> float:
    settings = RolloutSettings(**step.change.parameters)
    step_seconds = (step.ended_at or 0.0) - (step.began_at or 0.0)
    return max(step_seconds - settings.drain_seconds - settings.soak_seconds, 0.0)
