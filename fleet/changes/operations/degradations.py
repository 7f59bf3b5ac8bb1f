"""Changes that mark an instance as degraded: for a limited time load balancers prefer other instances.

A worker sends one request, and the instance keeps the time itself. Unlike a drain, the request is not repeated, so a
restart of the instance ends it. `degrade_run.py` sends it.

docs/reference/destination-health.md, "Degradations".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from fleet.audit import RequestActor, record_outcome
from fleet.changes import engine
from fleet.changes.engine import ChangeDraft
from fleet.models.changes import Change
from fleet.protocol.durations import format_readable
from fleet.vocabulary.actions import AuditAction
from fleet.vocabulary.changes import ChangeKind, ChangeState


@dataclass(frozen=True, slots=True)
class DegradeRequest:
    """An operator's request to mark one instance as degraded, or to clear the mark."""

    instance: str
    name: str
    is_degraded: bool
    #: How long the instance stays degraded, seconds; only to mark.
    duration_seconds: float = 0.0
    #: The instance was marked before the request.
    was_degraded: bool = False
    #: Number of its agents.
    agent_count: int = 0


def request_degradation(
    cluster: str, request: DegradeRequest, actor: RequestActor, reason: str, clock: Callable[[], datetime]
) -> Change:
    """Store a confirmed change that a worker carries out within seconds, with an audit entry; return the change."""
    draft = _draft_of(request)
    action = AuditAction.INSTANCE_DEGRADE if request.is_degraded else AuditAction.INSTANCE_UNDEGRADE
    attempt = actor.create_attempt(
        action, cluster, request.name, reason=reason, before=draft.before, after=draft.after
    )
    with record_outcome(attempt, clock):
        change = engine.create_request(cluster, draft, actor, reason, clock(), ChangeState.CONFIRMED)
        attempt.change_id = change.pk
    return change


def plan_clearing(change: Change, actor: RequestActor, now: datetime) -> Change:
    """Plan to clear the mark that a change has set, and return the new change."""
    document = engine.document_of(change)
    request = DegradeRequest(document["instance"], document["name"], is_degraded=False, was_degraded=True)
    return engine.create_change(change.cluster_id, _draft_of(request, undone_change_id=change.pk), actor, now)


def _draft_of(request: DegradeRequest, undone_change_id: int | None = None) -> ChangeDraft:
    if request.is_degraded:
        title = f"Mark {request.name} as degraded for {format_readable(request.duration_seconds)}"
        note = f"Load balancers prefer other instances. A restart of {request.name} clears the mark."
    else:
        title = f"Clear the degraded mark of {request.name}"
        note = f"Load balancers use {request.name} again as before."
    identity = {"instance": request.instance, "name": request.name}
    return ChangeDraft(
        kind=ChangeKind.DEGRADE,
        title=title,
        before={**identity, "is_degraded": request.was_degraded},
        after={**identity, "is_degraded": request.is_degraded, "seconds": request.duration_seconds},
        plan={"question": f"{title}?", "notes": [note]},
        affected_count=request.agent_count,
        undone_change_id=undone_change_id,
    )
