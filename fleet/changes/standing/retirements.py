"""Retiring agents that are gone for good: what operators say is in the database, and the record follows it.

docs/verdicts.md, "Retired agents". `fleet.tasks.apply_retired` has the record follow, also when it was away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from django.db import transaction

from fleet.audit import By, attempted
from fleet.models.inventory import Agent
from fleet.monitoring.columns import RETIRED
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.actions import AuditAction

#: As long as a reason may be.
LONGEST_REASON = 200


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of one agent, by whom and why. `position` is its index in the record."""

    agent: str
    name: str
    position: int
    retired: bool
    reason: str
    by: By


def problem_of(reason: str) -> str:
    """What is wrong with a reason, a sentence; empty when it will do."""
    if not 3 <= len(reason.strip()) <= LONGEST_REASON:
        return f"Give a reason of 3 to {LONGEST_REASON} characters."
    return "" if reason.isprintable() else "Use printable characters."


def ask(cluster: str, wanted: Wanted, clock: Callable[[], datetime]) -> bool:
    """Keep what is wanted, with a row in the log; answers whether it was otherwise before."""
    action = AuditAction.AGENT_RETIRE if wanted.retired else AuditAction.AGENT_UNRETIRE
    after = {"agent": wanted.agent, "retired": wanted.retired}
    attempt = wanted.by.attempt(action, cluster, wanted.name, reason=wanted.reason, after=after)
    with attempted(attempt, clock), transaction.atomic():
        # Rounds may not have written it down yet.
        row, _ = Agent.objects.select_for_update().get_or_create(
            cluster_id=cluster,
            agent_id=wanted.agent,
            defaults={"name": wanted.name, "position": wanted.position},
        )
        attempt.before = {"agent": wanted.agent, "retired": row.retired}
        changed = row.retired is not wanted.retired
        if changed:
            row.retired = wanted.retired
            row.save(update_fields=["retired"])
    return changed


def apply(writer: Writer, cluster: str) -> int:
    """Have the record say what the database does; answers of how many agents it did not. Raises StateError."""
    epoch = writer.epoch(cluster)
    if epoch is None:
        return 0  # it is made from the database
    rows = Agent.objects.filter(cluster=cluster, retired=True).values_list("position", "agent_id")
    wanted = dict(rows)
    marked = np.flatnonzero(writer.memory(cluster)["flags"] & RETIRED).tolist()
    if wanted.keys() == set(marked):
        return 0
    # Positions are those of the record but for a moment; ids always are.
    ids, _ = writer.agent_ids(cluster)
    at = {agent: index for index, agent in enumerate(ids)}
    there = {at[agent] for agent in wanted.values() if agent in at}
    changed = 0
    for retired, indices in ((True, there.difference(marked)), (False, set(marked).difference(there))):
        changed += _mark(writer, cluster, epoch, sorted(indices), retired=retired)
    return changed


def _mark(writer: Writer, cluster: str, epoch: str, indices: Sequence[int], *, retired: bool) -> int:
    if indices:
        writer.set_retired(cluster, epoch, indices, retired=retired)
    return len(indices)
