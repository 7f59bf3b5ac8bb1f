"""Draining instances: what operators want is a row; instances are told until they say so themselves.

docs/destination-health.md, "Draining from the console". Telling them is in `drains_run.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fleet.audit import By, attempted
from fleet.models.drains import Drain
from fleet.vocabulary.actions import AuditAction
from fleet.vocabulary.instances import InstanceFacts, InstanceKind


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of one instance, by whom and why."""

    instance: str
    name: str
    drained: bool
    reason: str
    by: By


@dataclass(frozen=True, slots=True)
class Due:
    """An instance to be told, where it listens."""

    row: int
    address: str
    kind: InstanceKind
    drained: bool
    reason: str


def ask(cluster: str, wanted: Wanted, clock: Callable[[], datetime]) -> Drain:
    """Keep what is wanted, with a row in the log. `fleet.tasks.apply_drains` does it."""
    action = AuditAction.INSTANCE_DRAIN if wanted.drained else AuditAction.INSTANCE_UNDRAIN
    after = {"instance": wanted.instance, "drained": wanted.drained}
    attempt = wanted.by.attempt(action, cluster, wanted.name, reason=wanted.reason, after=after)
    with attempted(attempt, clock):
        row, _ = Drain.objects.update_or_create(
            cluster_id=cluster,
            instance=wanted.instance,
            defaults={
                "name": wanted.name,
                "drained": wanted.drained,
                "reason": wanted.reason,
                "who": wanted.by.actor.name,
                "asked_at": clock(),
                "told_at": None,
                "error": "",
            },
        )
    return row


def due(cluster: str, instances: Mapping[int, InstanceFacts]) -> list[Due]:
    """Tell who says otherwise than is wanted, and answers: the others are told when they do."""
    rows = {row.instance: row for row in Drain.objects.filter(cluster=cluster)}
    found = []
    for facts in instances.values() if rows else ():
        row = rows.get(facts.id)
        answers = facts.gone_at is None and bool(facts.attempts) and facts.attempts[0].ok
        if row is not None and answers and row.drained is not (facts.watch.draining is not None):
            found.append(Due(row.pk, facts.address, facts.kind, row.drained, row.reason))
    return found


def told(wanted: Sequence[Due], answers: Mapping[int, str], now: datetime) -> None:
    """Take note of what came of telling; not where operators want the opposite by now: they were not told that."""
    for one in wanted:
        error = answers[one.row]
        changed = {"error": error} if error else {"error": "", "told_at": now}
        Drain.objects.filter(pk=one.row, drained=one.drained).update(**changed)
