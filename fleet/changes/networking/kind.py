"""Changes of the networking config, as a kind."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from typing_extensions import override

from fleet.changes import Refused, engine
from fleet.changes.engine import By
from fleet.changes.kind import Kind, Record
from fleet.changes.networking import revisions
from fleet.changes.networking.plan import Fleet
from fleet.changes.networking.sight import fleet_of
from fleet.models.changes import Change
from fleet.vocabulary.changes import OCCUPYING, ChangeState


def seen_now(cluster: str, record: Record) -> Fleet:
    """Return the fleet as a plan needs it. Raises Blind and StateError."""
    return fleet_of(record.table(cluster), record.reader.answers(cluster), record.now)


class NetworkingKind(Kind):
    """One write of the config, which is over in seconds; what agents make of it is verified afterwards."""

    task = "fleet.tasks.run_networking_change"

    @override
    def progress(self, change: Change, now: float) -> Mapping[str, Any]:
        return revisions.progress_of(change)

    @override
    def must_stand(self, change: Change) -> None:
        revisions.must_stand(change)

    @override
    def cancel(self, change: Change, by: By, now: datetime) -> Change:
        if change.state in OCCUPYING:
            # Of a write that is under way nobody can say whether it happened.
            raise Refused("it is being written: it ends by itself within a minute")
        return super().cancel(change, by, now)

    @override
    def offers_undo(self, change: Change) -> bool:
        return super().offers_undo(change) and change.started_at is not None

    @override
    def undo(self, change: Change, by: By, now: datetime, record: Record) -> Change:
        cluster = change.cluster_id
        with engine.plan_attempt(change.kind, cluster, by, now):
            if ChangeState.UNDONE not in engine.followers(change):
                raise Refused("only a change that was carried out can be taken back")
            config = revisions.taken_back(change)
        base = revisions.must_be_read(cluster).revision
        return revisions.plan(
            cluster, base, config, by, now, lambda: seen_now(cluster, record), undoes=change.pk
        )
