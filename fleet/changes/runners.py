"""The runner of every kind of change, for workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from django.db.models import QuerySet

from fleet.changes.base_runner import Runner
from fleet.changes.campaigns.run import CampaignRunner
from fleet.changes.networking.run import NetworkingRunner
from fleet.changes.operations.degrade_run import DegradeRunner
from fleet.changes.operations.retire_run import RetireRunner
from fleet.changes.policies.run import RolloutRunner
from fleet.changes.service.run import ServiceRunner
from fleet.models.changes import Change
from fleet.vocabulary.changes import ChangeKind

RUNNERS: Mapping[ChangeKind, Runner] = {
    ChangeKind.NETWORKING_CONFIG: NetworkingRunner(),
    ChangeKind.POLICY: RolloutRunner(),
    ChangeKind.RECONNECT: CampaignRunner(),
    ChangeKind.SERVICE: ServiceRunner(),
    ChangeKind.DEGRADE: DegradeRunner(),
    ChangeKind.RETIRE: RetireRunner(),
}


def find_due(step_task: str, changes: QuerySet[Change]) -> Iterator[Change]:
    """Yield the changes that need a step by the Celery task `step_task` now, kind by kind."""
    for kind, runner in RUNNERS.items():
        if runner.step_task == step_task:
            yield from runner.find_due(changes.filter(kind=kind.value))
