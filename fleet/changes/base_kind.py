"""The protocol of a kind of change; `kinds.py` has one object for each kind.

docs/reference/changes.md, "Kinds of changes".

Nothing here connects to instances, so pages may call it. How workers carry a change out is in `base_runner.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from fleet.audit import RequestActor
from fleet.changes import ChangeRefusedError, engine
from fleet.models.changes import Change
from fleet.monitoring.state.policy_report_store import PolicyReportStore
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.changes import EXCLUSIVE_STATES, ChangeState

#: Moves a change in progress to another state and returns the change. Raises ChangeRefusedError.
ChangeAction = Callable[[Change, RequestActor, datetime], Change]

#: Actions of operators on a change in progress, and the state that the change moves to.
ACTIONS: Mapping[str, ChangeState] = {
    "pause": ChangeState.PAUSED,
    "resume": ChangeState.RUNNING,
    "stop": ChangeState.CANCELLED,
    "abort": ChangeState.CANCELLED,
}
_NOT_UNDOABLE = (
    "this change cannot be undone: reconnect campaigns never can, and other changes only after they ended"
)


@dataclass(frozen=True, slots=True)
class RecordSnapshot:
    """The data of the fleet at one moment, from which plans are made. Its methods raise StateError."""

    reader: Reader
    policy_report_store: PolicyReportStore
    #: Seconds since the epoch.
    now: float

    def table(self, cluster: str) -> FleetTable:
        """Return the agents, instances and tunnels of a cluster."""
        return self.reader.table(cluster, self.now)


class Kind(Protocol):
    """One kind of change."""

    #: The Celery task that starts a confirmed change at once; empty: the periodic task starts it.
    start_task: str = ""
    #: The ACTIONS that this kind supports.
    actions: Mapping[str, ChangeAction] = {}
    #: Why no change of this kind can be undone; empty: it can.
    undo_refusal: str = ""
    #: What something later did to a change that is superseded.
    superseded_reason: str = "a later change set other values"

    @abstractmethod
    def progress_of(self, change: Change, now: float) -> Mapping[str, Any]:
        """Return `total_count`, `finished_count`, `failed_count`, `percent`, and other fields for the API."""

    @abstractmethod
    def require_current_plan(self, change: Change) -> None:
        """Raise StaleRevisionError when the config or the desired policies changed after the plan was made."""

    def cancel(self, change: Change, actor: RequestActor, now: datetime) -> Change:
        """Cancel a change that has not started, or abort one in progress. Raises ChangeRefusedError."""
        if change.state in EXCLUSIVE_STATES:
            return self.actions["abort"](change, actor, now)
        return engine.transition(change, ChangeState.CANCELLED, now, actor)

    def can_undo(self, change: Change) -> bool:
        """Return whether the page of a change shows the button to undo it."""
        return (
            ChangeState.UNDONE in engine.next_states_of(change)
            and change.started_at is not None
            and bool(change.before != change.after)
            and not self.is_superseded(change)
        )

    def is_superseded(self, change: Change) -> bool:
        """Return whether something later has set the same again, so that there is nothing to undo."""
        return False

    def undo(self, change: Change, actor: RequestActor, now: datetime, record: RecordSnapshot) -> Change:
        """Plan a new change that undoes this one, and return it.

        Raises ChangeRefusedError, StaleRevisionError and StateError.
        """
        with engine.record_refused_plan(change.kind, change.cluster_id, actor, now):
            if ChangeState.UNDONE not in engine.next_states_of(change):
                raise ChangeRefusedError(_NOT_UNDOABLE)
            if change.started_at is None:
                raise ChangeRefusedError("this change never started, so there is nothing to undo")
            return self.plan_undo(change, actor, now, record)

    def plan_undo(self, change: Change, actor: RequestActor, now: datetime, record: RecordSnapshot) -> Change:
        """Plan the change that undoes a change which was carried out; see `undo`."""
        raise ChangeRefusedError(_NOT_UNDOABLE)
