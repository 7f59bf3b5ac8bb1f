"""How long restarts of instances took in earlier rollouts of a cluster, for the forecast of the next rollout."""

from __future__ import annotations

import statistics

from fleet.models.actions import RolloutStep
from fleet.vocabulary.rollouts import DEFAULT_RESTART_SECONDS, RolloutSettings, RolloutStepState

#: Number of restarts that count: the newest ones.
_MAX_RESTARTS = 20


def typical_restart_seconds(cluster: str) -> float:
    """Return the median time of a restart, without drain time and soak time; a default where there was none yet."""
    steps = (
        RolloutStep.objects.filter(
            change__cluster=cluster,
            state=RolloutStepState.SUCCEEDED.value,
            began_at__isnull=False,
            ended_at__isnull=False,
        )
        .select_related("change")
        .order_by("-ended_at")[:_MAX_RESTARTS]
    )
    restart_seconds = []
    for step in steps:
        settings = RolloutSettings(**step.change.parameters)
        step_seconds = (step.ended_at or 0.0) - (step.began_at or 0.0)
        restart_seconds.append(max(step_seconds - settings.drain_seconds - settings.soak_seconds, 0.0))
    return statistics.median(restart_seconds) if restart_seconds else DEFAULT_RESTART_SECONDS
