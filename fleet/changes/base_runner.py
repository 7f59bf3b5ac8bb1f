"""The protocol by which workers carry out changes; `runners.py` has one object for each kind.

docs/reference/changes.md, "Kinds of changes".

What pages need as well, without connections to instances, is in `base_kind.py`.
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

_STATES_WITH_STEPS = (ChangeState.CONFIRMED, ChangeState.RUNNING, ChangeState.PAUSED)


@dataclass(frozen=True, slots=True)
class StepContext:
    """The dependencies of a step: fleet data, connections to instances, the clock, randomness, the worker's name."""

    reader: Reader
    writer: Writer
    auth_client: AuthClient
    dialer: Dialer
    #: Seconds since the epoch.
    clock: Callable[[], float]
    #: Returns a random number from 0 up to 1.
    random: Callable[[], float]
    holder: str

    def now(self) -> datetime:
        """Return the present time of the clock."""
        return to_moment(self.clock())


class Runner(Protocol):
    """Carries out changes of one kind, on a worker."""

    #: The Celery task that makes the steps, every few seconds.
    step_task: str = "fleet.tasks.step_actions"

    def find_due(self, changes: QuerySet[Change]) -> Iterator[Change]:
        """Yield those of some changes of this kind that need a step; lazily, so that earlier steps take effect."""
        rows = changes.filter(state__in=[state.value for state in _STATES_WITH_STEPS])
        yield from (row for row in rows if row.state != ChangeState.CONFIRMED or engine.can_start(row))

    def step(self, change: Change, context: StepContext) -> None:
        """Make one step of a change, unless another worker holds its lease. Raises ChangeError and StateError."""
        try:
            with lease.hold_lease(change, context.holder, context.now()) as held_lease:
                change.refresh_from_db()
                self.advance(change, context, held_lease)
        except ClusterBusyError as error:
            if change.detail != str(error):
                engine.update_change(change, detail=str(error))
        except (lease.LeaseHeldError, WrongStateError) as error:
            # Another worker made the step, or an operator paused or ended the change: the next step reads the result.
            logger.info("change %d: no step made: %s", change.pk, error)

    @abstractmethod
    def advance(self, change: Change, context: StepContext, held_lease: ClusterLease) -> None:
        """Make the step under the lease of the cluster. `change` has just been read from the database."""
