"""Retiring and reinstating agents: operators write to the database, and the fleet data in Redis follows.

docs/reference/verdicts.md, "Retired agents". `fleet.tasks.apply_retired` updates Redis, also after it was unavailable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from django.db import transaction

from fleet.audit import RequestActor, record_outcome
from fleet.models.inventory import Agent
from fleet.monitoring.columns import RETIRED
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.actions import AuditAction

#: Longest reason, characters.
MAX_REASON_LENGTH = 200


@dataclass(frozen=True, slots=True)
class RetireRequest:
    """A request to retire or reinstate one agent, with author and reason. `position`: its index in the fleet data."""

    agent: str
    name: str
    position: int
    is_retired: bool
    reason: str
    actor: RequestActor


def problem_of(reason: str) -> str:
    """Return what is wrong with a reason, as a sentence; empty when it is valid."""
    if not 3 <= len(reason.strip()) <= MAX_REASON_LENGTH:
        return f"Enter a reason of 3 to {MAX_REASON_LENGTH} characters."
    return "" if reason.isprintable() else "Use printable characters only."


def record_retire_request(cluster: str, request: RetireRequest, clock: Callable[[], datetime]) -> bool:
    """Store the request, with an audit entry; return whether it changed anything."""
    action = AuditAction.AGENT_RETIRE if request.is_retired else AuditAction.AGENT_REINSTATE
    after = {"agent": request.agent, "is_retired": request.is_retired}
    attempt = request.actor.create_attempt(action, cluster, request.name, reason=request.reason, after=after)
    with record_outcome(attempt, clock), transaction.atomic():
        # Rounds may not have stored the agent in the database yet.
        row, _ = Agent.objects.select_for_update().get_or_create(
            cluster_id=cluster,
            agent_id=request.agent,
            defaults={"name": request.name, "position": request.position},
        )
        attempt.before = {"agent": request.agent, "is_retired": row.is_retired}
        is_changed = row.is_retired is not request.is_retired
        if is_changed:
            row.is_retired = request.is_retired
            row.save(update_fields=["is_retired"])
    return is_changed


def copy_to_record(writer: Writer, cluster: str) -> int:
    """Copy retirements from the database to the record; return the number of agents changed. Raises StateError."""
    epoch = writer.epoch(cluster)
    if epoch is None:
        return 0  # no fleet data yet; it will be built from the database
    rows = Agent.objects.filter(cluster=cluster, is_retired=True).values_list("position", "agent_id")
    agents_by_position = dict(rows)
    flagged_indices = np.flatnonzero(writer.memory(cluster)["flags"] & RETIRED).tolist()
    if agents_by_position.keys() == set(flagged_indices):
        return 0
    # Positions may differ from those of the fleet data for a moment; ids never do.
    ids, _ = writer.agent_ids_and_names(cluster)
    indices_by_id = {agent: index for index, agent in enumerate(ids)}
    retired_indices = {
        indices_by_id[agent] for agent in agents_by_position.values() if agent in indices_by_id
    }
    changed_count = 0
    for is_retired, indices in (
        (True, retired_indices.difference(flagged_indices)),
        (False, set(flagged_indices).difference(retired_indices)),
    ):
        changed_count += _write_retirement_flags(
            writer, cluster, epoch, sorted(indices), is_retired=is_retired
        )
    return changed_count


def _write_retirement_flags(
    writer: Writer, cluster: str, epoch: str, indices: Sequence[int], *, is_retired: bool
) -> int:
    if indices:
        writer.set_retired(cluster, epoch, indices, is_retired=is_retired)
    return len(indices)
