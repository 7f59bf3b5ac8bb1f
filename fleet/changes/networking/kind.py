"""Changes of the networking config, as a kind of change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from typing_extensions import override

from fleet.audit import RequestActor
from fleet.changes import ChangeRefusedError, engine
from fleet.changes.base_kind import Kind, RecordSnapshot
from fleet.changes.networking import plan as networking_plan
from fleet.changes.networking import revisions
from fleet.changes.networking.revisions import NetworkingConflictError, config_of
from fleet.models.changes import Change
from fleet.protocol.networking import config as rules
from fleet.vocabulary.changes import EXCLUSIVE_STATES, ChangeState


class NetworkingKind(Kind):
    """A write of the networking config, which takes seconds; the effect on tunnels is verified afterwards."""

    start_task = "fleet.tasks.run_change"

    @override
    def progress_of(self, change: Change, now: float) -> Mapping[str, Any]:
        """Return the progress, counted in tunnels that close or open."""
        expected_count = change.plan.get("closing", {}).get("closing_count", [0, 0])[
            1
        ] + networking_plan.opening_count_of(change.plan)
        finished_count = change.outcome.get("closed_count", 0) + change.outcome.get("opened_count", 0)
        percent = min(100 * finished_count // expected_count, 100) if expected_count else 0
        if change.state == ChangeState.VERIFIED:
            percent = 100
        return {
            "total_count": expected_count,
            "finished_count": finished_count,
            "failed_count": 0,
            "percent": percent,
        }

    superseded_reason = "the config was changed again, or is as it was before"

    @override
    def require_current_plan(self, change: Change) -> None:
        """Raise NetworkingConflictError when the present revision is not the one that the plan is based on."""
        last_reading = revisions.last_reading_of(change.cluster_id)
        current = last_reading.current if last_reading is not None else None
        # Without a present revision, the worker checks again before it writes.
        if current is not None and current.revision != revisions.base_revision_of(change):
            raise NetworkingConflictError(current)

    @override
    def cancel(self, change: Change, actor: RequestActor, now: datetime) -> Change:
        if change.state in EXCLUSIVE_STATES:
            # Nobody can say whether a write in progress has been applied.
            with engine.record_attempt_on(change, ChangeState.CANCELLED, actor, now):
                raise ChangeRefusedError(
                    "this change is being applied and cannot be cancelled. It finishes within 60 s"
                )
        return super().cancel(change, actor, now)

    @override
    def is_superseded(self, change: Change) -> bool:
        last_reading = revisions.last_reading_of(change.cluster_id)
        if last_reading is None or last_reading.current is None:
            return False
        current = config_of(last_reading.current.document)
        config, conflicting_fields = rules.rebase(config_of(change.after), config_of(change.before), current)
        return bool(conflicting_fields) or not rules.differences(config, current)

    @override
    def plan_undo(self, change: Change, actor: RequestActor, now: datetime, record: RecordSnapshot) -> Change:
        """Plan the present config without this change.

        Raises ChangeRefusedError when its fields were changed again since.
        """
        current = revisions.require_current_revision(change.cluster_id)
        before, after = config_of(change.before), config_of(change.after)
        config, conflicting_fields = rules.rebase(after, before, config_of(current.document))
        if conflicting_fields:
            keys = ", ".join(field.key for field in conflicting_fields)
            raise ChangeRefusedError(
                f"out of date: {keys} was changed again since. Edit the present config instead"
            )
        return revisions.plan_change(
            change.cluster_id, current.revision, config, actor, now, record, undone_change_id=change.pk
        )
