"""Retirements of agents, as a kind of change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from typing_extensions import override

from fleet.audit import RequestActor
from fleet.changes.base_kind import Kind, RecordSnapshot
from fleet.changes.operations import retirements
from fleet.changes.operations.degrade_kind import request_progress_of
from fleet.models.changes import Change


class RetireKind(Kind):
    """Agents are retired or reinstated, all at once."""

    start_task = "fleet.tasks.run_change"

    @override
    def progress_of(self, change: Change, now: float) -> Mapping[str, Any]:
        return request_progress_of(change, change.affected_count)

    @override
    def require_current_plan(self, change: Change) -> None:
        """Raise nothing: agents that are already in the desired state do not change."""

    @override
    def plan_undo(self, change: Change, actor: RequestActor, now: datetime, record: RecordSnapshot) -> Change:
        return retirements.plan_reversal(change, actor, now)
