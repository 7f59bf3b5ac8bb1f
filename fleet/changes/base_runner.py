"""How workers carry changes of a kind out: one protocol, one object a kind in `runners.py`. docs/changes.md, "Kinds".

What a kind decides without dialing, which pages need as well, is the other half: `base_kind.py`.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from django.db.models import QuerySet

from fleet import lease
from fleet.changes import ClusterBusyError, WrongStateError, engine
from fleet.changes.instance_dialer import AuthClient, Dialer
from fleet.models.changes import Change
from fleet.models.clusters import ClusterLease
from fleet.models.moments import to_moment
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.changes import ChangeState

logger = logging.getLogger(__name__)

_UNFINISHED_STATES = (ChangeState.CONFIRMED, ChangeState.RUNNING, ChangeState.PAUSED)


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a worker lends to a step: the record, the instances of the cluster, the clock, chance, and its name."""

    reader: Reader
    writer: Writer
    auth_client: AuthClient
    dialer: Dialer
    #: Seconds since the epoch.
    clock: Callable[[], float]
    #: From 0 up to 1.
    random: Callable[[], float]
    holder: str

    def now(self) -> datetime:
        """Return the time of the clock."""
        return to_moment(self.clock())


class Runner(Protocol):
    """How a worker carries changes of one kind out."""

    #: The Celery task that makes the steps, every few seconds.
    task: str = "fleet.tasks.step_actions"

    def find_due(self, changes: QuerySet[Change]) -> Iterator[Change]:
        """Yield those of some changes of this kind that need a step; later ones are looked for after earlier steps."""
        rows = changes.filter(state__in=[state.value for state in _UNFINISHED_STATES])
        yield from (row for row in rows if row.state != ChangeState.CONFIRMED or engine.is_ready(row))

    def step(self, change: Change, context: StepContext) -> None:
        """Carry a change on by one step, unless another process does. Raises ChangeError and StateError."""
        try:
            with lease.hold_lease(change, context.holder, context.now()) as held_lease:
                change.refresh_from_db()
                self.advance(change, context, held_lease)
        except ClusterBusyError as error:
            if change.detail != str(error):
                engine.update_change(change, detail=str(error))
        except (lease.LeaseHeldError, WrongStateError) as error:
            # Somebody else works on it, or paused or ended it meanwhile: the next step sees what they did.
            logger.info("change %d: %s", change.pk, error)

    @abstractmethod
    def advance(self, change: Change, context: StepContext, held_lease: ClusterLease) -> None:
        """Make the step, with the lease of the cluster; `change` has just been read."""
