"""What a kind of change decides by itself: one protocol, one object a kind in `kinds.py`. docs/changes.md, "Kinds".

Nothing here dials, so that pages may call it. How workers carry a change out is the other half: `base_runner.py`.
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
from fleet.monitoring.state.policy_book import PolicyReportStore
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.changes import EXCLUSIVE_STATES, ChangeState

#: Moves a change that is in progress, and returns it. Raises Refused.
ChangeAction = Callable[[Change, RequestActor, datetime], Change]

#: What operators may do to a change in progress, and the state that it moves to.
ACTIONS: Mapping[str, ChangeState] = {
    "pause": ChangeState.PAUSED,
    "resume": ChangeState.RUNNING,
    "stop": ChangeState.CANCELLED,
    "abort": ChangeState.CANCELLED,
}
_NOT_UNDOABLE = "only a change of config or policies that is over can be taken back"


@dataclass(frozen=True, slots=True)
class RecordSnapshot:
    """The record of the fleet at one moment, as plans read it. Its methods raise StateError."""

    reader: Reader
    policy_report_store: PolicyReportStore
    #: Seconds since the epoch.
    now: float

    def table(self, cluster: str) -> FleetTable:
        """Return the agents, instances and tunnels of a cluster."""
        return self.reader.table(cluster, self.now)


class Kind(Protocol):
    """One kind of change."""

    #: The Celery task that carries out a confirmed change at once; empty where the next step of all changes does.
    task: str = ""
    #: The ACTIONS that a change of this kind takes.
    actions: Mapping[str, ChangeAction] = {}

    @abstractmethod
    def progress_of(self, change: Change, now: float) -> Mapping[str, Any]:
        """Return `total`, `done`, `failed` and `percent`, and what else the API tells of the progress."""

    @abstractmethod
    def require_current_plan(self, change: Change) -> None:
        """Raise Stale when what the plan was made on has changed since."""

    def cancel(self, change: Change, actor: RequestActor, now: datetime) -> Change:
        """Cancel a change that has not begun; abort one that is in progress. Raises Refused."""
        if change.state in EXCLUSIVE_STATES:
            return self.actions["abort"](change, actor, now)
        return engine.transition(change, ChangeState.CANCELLED, now, actor)

    def can_undo(self, change: Change) -> bool:
        """Return whether the page offers to undo a change."""
        return ChangeState.UNDONE in engine.next_states_of(change) and bool(change.before != change.after)

    def undo(self, change: Change, actor: RequestActor, now: datetime, record: RecordSnapshot) -> Change:
        """Plan another change that takes this one back. Raises Refused, Stale and StateError."""
        with engine.record_refused_plan(change.kind, change.cluster_id, actor, now):
            if ChangeState.UNDONE not in engine.next_states_of(change):
                raise ChangeRefusedError(_NOT_UNDOABLE)
            return self.plan_undo(change, actor, now, record)

    def plan_undo(self, change: Change, actor: RequestActor, now: datetime, record: RecordSnapshot) -> Change:
        """Plan to undo a change that was carried out; see `undo`."""
        raise ChangeRefusedError(_NOT_UNDOABLE)
