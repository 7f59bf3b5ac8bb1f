"""Retirements of agents, as a kind of change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from typing_extensions import override

from fleet.audit import RequestActor
from fleet.changes import engine
from fleet.changes.base_kind import Kind, RecordSnapshot
from fleet.changes.operations import retirements
from fleet.changes.operations.degrade_kind import request_progress_of
from fleet.models.changes import Change
from fleet.models.inventory import Agent


class RetireKind(Kind):
    """Agents are retired or reinstated, all at once."""

    start_task = "fleet.tasks.run_change"
    superseded_reason = "later requests reversed it for all its agents"

    @override
    def progress_of(self, change: Change, now: float) -> Mapping[str, Any]:
        return request_progress_of(change, change.affected_count)

    @override
    def require_current_plan(self, change: Change) -> None:
        """Raise nothing: agents that are already in the desired state do not change."""

    @override
    def is_superseded(self, change: Change) -> bool:
        """Return whether later requests have reversed the change for all its agents."""
        is_retired = bool(engine.document_of(change).get("is_retired"))
        retired_agents = Agent.objects.filter(cluster=change.cluster_id, is_retired=True)
        retired_ids = set(retired_agents.values_list("agent_id", flat=True))
        agent_ids = set(change.parameters.get("agents", {}))
        remaining_ids = agent_ids & retired_ids if is_retired else agent_ids - retired_ids
        return bool(agent_ids) and not remaining_ids

    @override
    def plan_undo(self, change: Change, actor: RequestActor, now: datetime, record: RecordSnapshot) -> Change:
        return retirements.plan_reversal(change, actor, now)
