"""Changes of the networking config, as a kind."""

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
    """One write of the config, which is over in seconds; what agents make of it is verified afterwards."""

    task = "fleet.tasks.run_networking_change"

    @override
    def progress_of(self, change: Change, now: float) -> Mapping[str, Any]:
        """Count the tunnels that were to close or to be dialled."""
        expected_count = change.plan.get("closing", {}).get("closes", [0, 0])[1] + networking_plan.dial_count_of(
            change.plan
        )
        done_count = change.outcome.get("closed", 0) + change.outcome.get("dialled", 0)
        percent = min(100 * done_count // expected_count, 100) if expected_count else 0
        if change.state == ChangeState.VERIFIED:
            percent = 100
        return {"total": expected_count, "done": done_count, "failed": 0, "percent": percent}

    @override
    def require_current_plan(self, change: Change) -> None:
        """Raise Conflict when another revision was read by now than the one that was planned on."""
        read_state = revisions.read_state_of(change.cluster_id)
        current = read_state.current if read_state is not None else None
        # Without one, the worker that writes it looks again.
        if current is not None and current.revision != revisions.base_revision_of(change):
            raise NetworkingConflictError(current)

    @override
    def cancel(self, change: Change, actor: RequestActor, now: datetime) -> Change:
        if change.state in EXCLUSIVE_STATES:
            # Of a write that is under way nobody can say whether it happened.
            with engine.record_attempt_on(change, ChangeState.CANCELLED, actor, now):
                raise ChangeRefusedError("it is being written: it ends by itself within a minute")
        return super().cancel(change, actor, now)

    @override
    def can_undo(self, change: Change) -> bool:
        return super().can_undo(change) and change.started_at is not None

    @override
    def plan_undo(self, change: Change, actor: RequestActor, now: datetime, record: RecordSnapshot) -> Change:
        """Plan what is stored now without the change's own part. Raises Refused when that was changed again since."""
        current = revisions.require_current_revision(change.cluster_id)
        before, after = config_of(change.before), config_of(change.after)
        config, conflicts = rules.rebase(after, before, config_of(current.document))
        if conflicts:
            keys = ", ".join(field.key for field in conflicts)
            raise ChangeRefusedError(f"{keys} was changed again since: look at what is stored now, and change that")
        return revisions.plan_change(change.cluster_id, current.revision, config, actor, now, record, undone_change_id=change.pk)
