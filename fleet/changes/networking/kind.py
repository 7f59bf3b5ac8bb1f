"""Changes of the networking config, as a kind."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from typing_extensions import override

from fleet.audit import By
from fleet.changes import Refused, engine
from fleet.changes.base_kind import Kind, Record
from fleet.changes.networking import plan as networking_plan
from fleet.changes.networking import revisions
from fleet.changes.networking.revisions import Conflict, config_of
from fleet.models.changes import Change
from fleet.protocol.networking import config as rules
from fleet.vocabulary.changes import OCCUPYING, ChangeState


class NetworkingKind(Kind):
    """One write of the config, which is over in seconds; what agents make of it is verified afterwards."""

    task = "fleet.tasks.run_networking_change"

    @override
    def progress(self, change: Change, now: float) -> Mapping[str, Any]:
        """Count the tunnels that were to close or to be dialled."""
        foreseen = change.plan.get("closing", {}).get("closes", [0, 0])[1] + networking_plan.to_dial(
            change.plan
        )
        done = change.outcome.get("closed", 0) + change.outcome.get("dialled", 0)
        percent = min(100 * done // foreseen, 100) if foreseen else 0
        if change.state == ChangeState.VERIFIED:
            percent = 100
        return {"total": foreseen, "done": done, "failed": 0, "percent": percent}

    @override
    def must_stand(self, change: Change) -> None:
        """Raise Conflict when another revision was read by now than the one that was planned on."""
        reading = revisions.reading_of(change.cluster_id)
        current = reading.current if reading is not None else None
        # Without one, the worker that writes it looks again.
        if current is not None and current.revision != revisions.base_of(change):
            raise Conflict(current)

    @override
    def cancel(self, change: Change, by: By, now: datetime) -> Change:
        if change.state in OCCUPYING:
            # Of a write that is under way nobody can say whether it happened.
            with engine.attempt_on(change, ChangeState.CANCELLED, by, now):
                raise Refused("it is being written: it ends by itself within a minute")
        return super().cancel(change, by, now)

    @override
    def offers_undo(self, change: Change) -> bool:
        return super().offers_undo(change) and change.started_at is not None

    @override
    def plan_undo(self, change: Change, by: By, now: datetime, record: Record) -> Change:
        """Plan what is stored now without the change's own part. Raises Refused when that was changed again since."""
        current = revisions.must_be_read(change.cluster_id)
        before, after = config_of(change.before), config_of(change.after)
        config, clashing = rules.rebase(after, before, config_of(current.document))
        if clashing:
            keys = ", ".join(field.key for field in clashing)
            raise Refused(f"{keys} was changed again since: look at what is stored now, and change that")
        return revisions.plan(change.cluster_id, current.revision, config, by, now, record, undoes=change.pk)
