"""Requests to drain an instance, or to undrain it. Workers repeat each request until the instance reports it.

docs/reference/destination-health.md, "Drains". `drains_run.py` sends them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fleet.audit import RequestActor
from fleet.models.drains import Drain
from fleet.protocol.destination.instance_status import LONGEST_REASON
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


def save_drain_request(cluster: str, request: InstanceDrainRequest, now: datetime) -> Drain:
    """Store the request in place of an earlier one, and return its row. `fleet.tasks.apply_drains` sends it."""
    row, _ = Drain.objects.update_or_create(
        cluster_id=cluster,
        instance=request.instance,
        defaults={
            "name": request.name,
            "is_drained": request.is_drained,
            "reason": " ".join(request.reason.split())[:LONGEST_REASON],
            "actor_name": request.actor.identity.name,
            "requested_at": now,
            "applied_at": None,
            "error": "",
        },
    )
    return row


def read_requested_ids(cluster: str) -> frozenset[str]:
    """Return the ids of the instances that an operator drained, also of those that do not report the drain yet."""
    rows = Drain.objects.filter(cluster=cluster, is_drained=True)
    return frozenset(rows.values_list("instance", flat=True))


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
