"""Degrading instances: for a limited time balancers prefer others to them.

It is one request to the instance, which keeps the time itself: no row holds it up as one holds up a drain, so a restart
of the instance ends it. Sending it is in `degradations_run.py`.

docs/destination-health.md, "Degrading from the console".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from fleet.audit import Attempt, RequestActor, record_outcome, record
from fleet.vocabulary.actions import AuditAction, AuditOutcome
from fleet.vocabulary.changes import SYSTEM_ACTOR, Actor


@dataclass(frozen=True, slots=True)
class DegradeRequest:
    """What an operator requests of one instance; plain values, for a task carries it."""

    cluster: str
    instance: str
    name: str
    degraded: bool
    reason: str
    #: How long, when `degraded`.
    seconds: float
    request_id: str = ""


def submit_degrade_request(request: DegradeRequest, actor: Actor, send: Callable[[], object]) -> None:
    """Give the request to a worker by `send`, with a row in the log. What `send` raises goes on."""
    with record_outcome(_attempt_of(request, actor)):
        send()


def record_failure(request: DegradeRequest, error: str, now: datetime) -> None:
    """Write down why the instance did not accept the request."""
    attempt = _attempt_of(request, SYSTEM_ACTOR)
    attempt.detail = error
    record(attempt, AuditOutcome.FAILED, now)


def _attempt_of(request: DegradeRequest, actor: Actor) -> Attempt:
    action = AuditAction.INSTANCE_DEGRADE if request.degraded else AuditAction.INSTANCE_RESTORE
    after = {"instance": request.instance, "degraded": request.degraded, "seconds": request.seconds}
    request_actor = RequestActor(actor, request.request_id)
    return request_actor.create_attempt(action, request.cluster, request.name, reason=request.reason, after=after)
