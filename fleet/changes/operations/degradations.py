"""Requests to mark an instance as degraded: for a limited time load balancers prefer other instances.

Refloat sends one request, and the instance keeps the time itself. Unlike a drain, the request is not stored, so a
restart of the instance ends it. `degradations_run.py` sends it.

docs/reference/destination-health.md, "Degradations".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from fleet.audit import Attempt, RequestActor, record_outcome, write_entry
from fleet.vocabulary.actions import AuditAction, AuditOutcome
from fleet.vocabulary.changes import SYSTEM_ACTOR, Actor


@dataclass(frozen=True, slots=True)
class DegradeRequest:
    """An operator's request to one instance; plain values, so that a Celery task can carry it."""

    cluster: str
    instance: str
    name: str
    is_degraded: bool
    reason: str
    #: How long the instance stays degraded; only to mark.
    duration_seconds: float
    request_id: str = ""


def submit_degrade_request(request: DegradeRequest, actor: Actor, send: Callable[[], object]) -> None:
    """Pass the request to a worker by `send`, with an audit entry. Errors of `send` are raised again."""
    with record_outcome(_attempt_of(request, actor)):
        send()


def record_failure(request: DegradeRequest, error: str, now: datetime) -> None:
    """Write an audit entry with the reason why the instance did not accept the request."""
    attempt = _attempt_of(request, SYSTEM_ACTOR)
    attempt.detail = error
    write_entry(attempt, AuditOutcome.FAILED, now)


def _attempt_of(request: DegradeRequest, actor: Actor) -> Attempt:
    action = AuditAction.INSTANCE_DEGRADE if request.is_degraded else AuditAction.INSTANCE_UNDEGRADE
    after = {
        "instance": request.instance,
        "is_degraded": request.is_degraded,
        "seconds": request.duration_seconds,
    }
    request_actor = RequestActor(actor, request.request_id)
    return request_actor.create_attempt(
        action, request.cluster, request.name, reason=request.reason, after=after
    )
