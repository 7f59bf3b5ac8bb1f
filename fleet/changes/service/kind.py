"""Service changes, as a kind of change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from typing_extensions import override

from fleet.audit import RequestActor
from fleet.changes import ChangeRefusedError, engine
from fleet.changes.base_kind import Kind, RecordSnapshot
from fleet.changes.campaigns.kind import ReconnectKind
from fleet.changes.service import plan as service_plan
from fleet.models.changes import Change
from fleet.models.drains import Drain
from fleet.vocabulary.changes import ChangeState


class ServiceKind(ReconnectKind):
    """An instance is drained, its agents move, or it comes back into service. Its campaign can be paused and ended."""

    start_task = "fleet.tasks.run_change"
    undo_refusal = ""
    superseded_reason = "a later request drained the instance or brought it back"

    @override
    def progress_of(self, change: Change, now: float) -> Mapping[str, Any]:
        """Return the progress, counted in agents that move; of a drain without a campaign, in instances."""
        if service_plan.has_campaign(change):
            return super().progress_of(change, now)
        finished_count = int(change.state == ChangeState.VERIFIED)
        return {
            "total_count": 1,
            "finished_count": finished_count,
            "failed_count": int(change.state == ChangeState.FAILED),
            "percent": 100 * finished_count,
        }

    @override
    def can_undo(self, change: Change) -> bool:
        return Kind.can_undo(self, change)

    @override
    def is_superseded(self, change: Change) -> bool:
        document = engine.document_of(change)
        row = Drain.objects.filter(cluster=change.cluster_id, instance=document["instance"]).first()
        return row is not None and row.is_drained is not document["is_drained"]

    @override
    def plan_undo(self, change: Change, actor: RequestActor, now: datetime, record: RecordSnapshot) -> Change:
        """Plan to bring the instance back, or to drain it again.

        Raises ChangeRefusedError when that was requested since.
        """
        document = engine.document_of(change)
        view = service_plan.require_view(
            record.table(change.cluster_id), document["instance"], document["name"]
        )
        if service_plan.is_drain_requested(change.cluster_id, view) is not document["is_drained"]:
            state_text = "brought back into service" if document["is_drained"] else "drained"
            raise ChangeRefusedError(f"out of date: {document['name']} was {state_text} again since")
        return service_plan.plan_drain(
            change.cluster_id,
            view,
            actor,
            now,
            is_drained=not document["is_drained"],
            undone_change_id=change.pk,
        )
