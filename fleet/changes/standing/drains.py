"""Draining instances: what operators want is a row; instances are told until they say so themselves.

docs/destination-health.md, "Draining from the console". Telling them is in `drains_run.py`.
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
    """What is wanted of one instance, by whom and why."""

    instance: str
    name: str
    is_drained: bool
    reason: str
    actor: RequestActor


@dataclass(frozen=True, slots=True)
class DueDrain:
    """An instance to be told, where it listens."""

    row_id: int
    address: str
    kind: InstanceKind
    is_drained: bool
    reason: str


def record_drain_request(cluster: str, request: InstanceDrainRequest, clock: Callable[[], datetime]) -> Drain:
    """Keep what is wanted, with a row in the log. `fleet.tasks.apply_drains` does it."""
    action = AuditAction.INSTANCE_DRAIN if request.is_drained else AuditAction.INSTANCE_UNDRAIN
    after = {"instance": request.instance, "drained": request.is_drained}
    attempt = request.actor.create_attempt(action, cluster, request.name, reason=request.reason, after=after)
    with record_outcome(attempt, clock):
        row, _ = Drain.objects.update_or_create(
            cluster_id=cluster,
            instance=request.instance,
            defaults={
                "name": request.name,
                "drained": request.is_drained,
                "reason": request.reason,
                "who": request.actor.identity.name,
                "asked_at": clock(),
                "told_at": None,
                "error": "",
            },
        )
    return row


def find_due_drains(cluster: str, instances: Mapping[int, InstanceFacts]) -> list[DueDrain]:
    """Tell who says otherwise than is wanted, and answers: the others are told when they do."""
    rows = {row.instance: row for row in Drain.objects.filter(cluster=cluster)}
    due_drains = []
    for facts in instances.values() if rows else ():
        row = rows.get(facts.id)
        is_reachable = facts.gone_at is None and bool(facts.attempts) and facts.attempts[0].ok
        if row is not None and is_reachable and row.drained is not (facts.watch.drain_request is not None):
            due_drains.append(DueDrain(row.pk, facts.address, facts.kind, row.drained, row.reason))
    return due_drains


def record_responses(due_drains: Sequence[DueDrain], errors: Mapping[int, str], now: datetime) -> None:
    """Take note of what came of telling; not where operators want the opposite by now: they were not told that."""
    for drain in due_drains:
        error = errors[drain.row_id]
        columns = {"error": error} if error else {"error": "", "told_at": now}
        Drain.objects.filter(pk=drain.row_id, drained=drain.is_drained).update(**columns)
