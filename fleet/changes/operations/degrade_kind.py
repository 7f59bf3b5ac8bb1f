"""Degradations, as a kind of change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from typing_extensions import override

from fleet.audit import RequestActor
from fleet.changes import ChangeRefusedError, engine
from fleet.changes.base_kind import Kind, RecordSnapshot
from fleet.changes.operations import degradations
from fleet.models.changes import Change
from fleet.vocabulary.changes import ChangeState


class DegradeKind(Kind):
    """One request to one instance."""

    start_task = "fleet.tasks.run_change"

    @override
    def progress_of(self, change: Change, now: float) -> Mapping[str, Any]:
        return request_progress_of(change)

    @override
    def require_current_plan(self, change: Change) -> None:
        """Raise nothing: the request does not depend on an earlier state."""

    @override
    def can_undo(self, change: Change) -> bool:
        return super().can_undo(change) and bool(engine.document_of(change)["is_degraded"])

    @override
    def plan_undo(self, change: Change, actor: RequestActor, now: datetime, record: RecordSnapshot) -> Change:
        if not engine.document_of(change)["is_degraded"]:
            raise ChangeRefusedError(
                "this change cannot be undone: it cleared a degraded mark. Mark the instance as degraded again instead"
            )
        return degradations.plan_clearing(change, actor, now)


def request_progress_of(change: Change, total_count: int = 1) -> dict[str, Any]:
    """Return the progress of a change that one request carries out."""
    finished_count = total_count if change.state in (ChangeState.VERIFIED, ChangeState.UNDONE) else 0
    return {
        "total_count": total_count,
        "finished_count": finished_count,
        "failed_count": total_count if change.state == ChangeState.FAILED else 0,
        "percent": 100 if finished_count else 0,
    }
