"""What a kind of change decides by itself: one protocol, one object a kind in `kinds.py`. docs/changes.md, "Kinds".

Nothing here dials, so that pages may call it. How workers carry a change out is the other half: `base_runner.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from fleet.audit import By
from fleet.changes import Refused, engine
from fleet.models.changes import Change
from fleet.monitoring.state.policy_book import PolicyBook
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.changes import OCCUPYING, ChangeState

#: Moves a change that is in progress, and returns it. Raises Refused.
Action = Callable[[Change, By, datetime], Change]

#: What operators may do to a change in progress, and the state that it moves to.
ACTIONS: Mapping[str, ChangeState] = {
    "pause": ChangeState.PAUSED,
    "resume": ChangeState.RUNNING,
    "stop": ChangeState.CANCELLED,
    "abort": ChangeState.CANCELLED,
}
_NOT_UNDONE = "only a change of config or policies that is over can be taken back"


@dataclass(frozen=True, slots=True)
class Record:
    """The record of the fleet at one moment, as plans read it. Its methods raise StateError."""

    reader: Reader
    book: PolicyBook
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
    actions: Mapping[str, Action] = {}

    @abstractmethod
    def progress(self, change: Change, now: float) -> Mapping[str, Any]:
        """Return `total`, `done`, `failed` and `percent`, and what else the API tells of the progress."""

    @abstractmethod
    def must_stand(self, change: Change) -> None:
        """Raise Stale when what the plan was made on has changed since."""

    def cancel(self, change: Change, by: By, now: datetime) -> Change:
        """Cancel a change that has not begun; abort one that is in progress. Raises Refused."""
        if change.state in OCCUPYING:
            return self.actions["abort"](change, by, now)
        return engine.move(change, ChangeState.CANCELLED, now, by)

    def offers_undo(self, change: Change) -> bool:
        """Return whether the page offers to undo a change."""
        return ChangeState.UNDONE in engine.followers(change) and bool(change.before != change.after)

    def undo(self, change: Change, by: By, now: datetime, record: Record) -> Change:
        """Plan another change that takes this one back. Raises Refused, Stale and StateError."""
        with engine.plan_attempt(change.kind, change.cluster_id, by, now):
            if ChangeState.UNDONE not in engine.followers(change):
                raise Refused(_NOT_UNDONE)
            return self.plan_undo(change, by, now, record)

    def plan_undo(self, change: Change, by: By, now: datetime, record: Record) -> Change:
        """Plan to undo a change that was carried out; see `undo`."""
        raise Refused(_NOT_UNDONE)
