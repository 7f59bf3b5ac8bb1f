"""Sends the request to mark an instance as degraded, or to clear the mark, on a worker."""

from __future__ import annotations

from datetime import timedelta

from typing_extensions import override

from fleet.changes import engine
from fleet.changes.base_runner import Runner, StepContext
from fleet.changes.instance_dialer import Dialer
from fleet.models.changes import Change
from fleet.models.clusters import ClusterLease
from fleet.protocol.destination.instance_status import LONGEST_REASON
from fleet.protocol.durations import format_clock_time
from fleet.transport.admin import AdminError
from fleet.vocabulary.changes import ChangeState

#: How long a request waits for a worker: later an operator would not expect its effect.
_MAX_WAIT = timedelta(seconds=60)


class DegradeRunner(Runner):
    """Sends the request once; the change ends with the answer of the instance."""

    @override
    def advance(self, change: Change, context: StepContext, held_lease: ClusterLease) -> None:
        if change.state != ChangeState.CONFIRMED:
            return
        confirmed_at = change.confirmed_at or change.created_at
        if context.now() - confirmed_at > _MAX_WAIT:
            _fail(change, context, f"no worker took the request within {_MAX_WAIT.seconds} s")
            return
        try:
            _send_request(change, context.dialer)
        except AdminError as error:
            _fail(change, context, str(error))
            return
        document = engine.document_of(change)
        detail = f"{document['name']} is no longer marked as degraded"
        if document["is_degraded"]:
            ends_at = context.clock() + document["seconds"]
            detail = f"{document['name']} is marked as degraded until {format_clock_time(ends_at)}"
        engine.transition(
            change, ChangeState.VERIFIED, context.now(), detail=detail, started_at=context.now()
        )
        engine.mark_original_undone(change, context.now())


def _send_request(change: Change, dialer: Dialer) -> None:
    document = engine.document_of(change)
    if document["is_degraded"]:
        reason = " ".join(change.reason.split())[:LONGEST_REASON]
        dialer.degrade(document["instance"], reason, document["seconds"])
    else:
        dialer.restore(document["instance"])


def _fail(change: Change, context: StepContext, sentence: str) -> None:
    engine.transition(change, ChangeState.FAILED, context.now(), detail=sentence)
