"""Requests to drain an instance, or to undrain it. Workers repeat each request until the instance reports it.

docs/reference/destination-health.md, "Drains". `drains_run.py` sends them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fleet.audit import RequestActor, record_outcome
from fleet.models.drains import Drain
from fleet.vocabulary.actions import AuditAction
from fleet.vocabulary.instances import InstanceFacts, InstanceKind


@dataclass(frozen=True, slots=True)
class InstanceDrainRequest:
    """A request to drain one instance, or to undrain it, with its author and reason."""

    instance: str
    name: str
    is_drained: bool
    reason: str
    actor: RequestActor


@dataclass(frozen=True, slots=True)
class DueDrain:
    """A request that is to be sent to an instance, with its address."""

    row_id: int
    address: str
    kind: InstanceKind
    is_drained: bool
    reason: str


def record_drain_request(cluster: str, request: InstanceDrainRequest, clock: Callable[[], datetime]) -> Drain:
    """Store the request and return its row, with an audit entry. `fleet.tasks.apply_drains` sends it."""
    action = AuditAction.INSTANCE_DRAIN if request.is_drained else AuditAction.INSTANCE_UNDRAIN
    after = {"instance": request.instance, "is_drained": request.is_drained}
    attempt = request.actor.create_attempt(action, cluster, request.name, reason=request.reason, after=after)
    with record_outcome(attempt, clock):
        row, _ = Drain.objects.update_or_create(
            cluster_id=cluster,
            instance=request.instance,
            defaults={
                "name": request.name,
                "is_drained": request.is_drained,
                "reason": request.reason,
                "actor_name": request.actor.identity.name,
                "requested_at": clock(),
                "applied_at": None,
                "error": "",
            },
        )
    return row


def find_due_drains(cluster: str, instances: Mapping[int, InstanceFacts]) -> list[DueDrain]:
    """Return the requests to send now: to reachable instances whose report differs from the request."""
    rows = {row.instance: row for row in Drain.objects.filter(cluster=cluster)}
    due_drains = []
    for facts in instances.values() if rows else ():
        row = rows.get(facts.id)
        is_reachable = facts.gone_at is None and bool(facts.attempts) and facts.attempts[0].ok
        if row is not None and is_reachable and row.is_drained is not (facts.watch.drain_request is not None):
            due_drains.append(DueDrain(row.pk, facts.address, facts.kind, row.is_drained, row.reason))
    return due_drains


def record_responses(
    due_drains: Sequence[DueDrain], errors_by_row_id: Mapping[int, str], now: datetime
) -> None:
    """Store the result of sending, by row; not where an operator has requested the opposite in the meantime."""
    for drain in due_drains:
        error = errors_by_row_id[drain.row_id]
        columns = {"error": error} if error else {"error": "", "applied_at": now}
        Drain.objects.filter(pk=drain.row_id, is_drained=drain.is_drained).update(**columns)
