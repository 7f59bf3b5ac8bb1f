"""Retiring and reinstating agents: operators write to the database, and the fleet data in Redis follows.

docs/reference/verdicts.md, "Retired agents". `fleet.tasks.apply_retired` updates Redis, also after it was unavailable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from fleet.audit import RequestActor, write_entries
from fleet.changes import engine
from fleet.changes.engine import ChangeDraft
from fleet.models.changes import Change
from fleet.models.inventory import Agent
from fleet.monitoring.columns import RETIRED
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.actions import AuditAction, AuditOutcome
from fleet.vocabulary.changes import ChangeKind, ChangeState

#: Longest reason, characters.
MAX_REASON_LENGTH = 200
#: Agents in one statement, and agents that a plan names.
_BATCH_SIZE, _MAX_NAMES = 500, 20


@dataclass(frozen=True, slots=True)
class RetireTarget:
    """An agent to retire or to reinstate. `position`: its index in the fleet data."""

    agent: str
    name: str
    position: int


def problem_of(reason: str) -> str:
    """Return what is wrong with a reason, as a sentence; empty when it is valid."""
    if not 3 <= len(reason.strip()) <= MAX_REASON_LENGTH:
        return f"Enter a reason of 3 to {MAX_REASON_LENGTH} characters."
    return "" if reason.isprintable() else "Use printable characters only."


def request_retirement(
    cluster: str,
    targets: Sequence[RetireTarget],
    actor: RequestActor,
    reason: str,
    clock: Callable[[], datetime],
    *,
    is_retired: bool,
) -> Change | None:
    """Retire or reinstate agents at once, with an audit entry for each; return the change.

    None when every agent is already retired, or none is retired: the attempt is in the audit log nevertheless.
    `fleet.tasks.apply_retired` updates the fleet data.
    """
    now, targets_to_change = clock(), _select_changing(cluster, targets, is_retired=is_retired)
    change = None
    if targets_to_change:
        draft = _draft_of(targets_to_change, is_retired=is_retired)
        change = engine.create_request(
            cluster,
            draft,
            actor,
            reason,
            now,
            ChangeState.VERIFYING,
            lambda _: _save_retirements(cluster, targets_to_change, is_retired=is_retired),
        )
    # An agent that was retired before has an entry only if the request was about nothing else.
    entry_targets = targets_to_change or targets
    _log(cluster, entry_targets, targets_to_change, actor, reason, now, change, is_retired=is_retired)
    return change


def plan_reversal(change: Change, actor: RequestActor, now: datetime) -> Change:
    """Plan to reinstate the agents that a change has retired, or the reverse, and return the new change."""
    draft = _draft_of(
        targets_of(change),
        is_retired=not engine.document_of(change)["is_retired"],
        undone_change_id=change.pk,
    )
    return engine.create_change(change.cluster_id, draft, actor, now)


def carry_out(change: Change, actor: RequestActor, now: datetime) -> None:
    """Store the retirements of a confirmed change, and start its verification."""
    is_retired = bool(engine.document_of(change)["is_retired"])
    targets = targets_of(change)
    engine.transition(
        change,
        ChangeState.VERIFYING,
        now,
        started_at=now,
        write_related_rows=lambda _: _save_retirements(change.cluster_id, targets, is_retired=is_retired),
    )
    _log(change.cluster_id, targets, targets, actor, change.reason, now, change, is_retired=is_retired)
    engine.mark_original_undone(change, now)


def targets_of(change: Change) -> list[RetireTarget]:
    """Return the agents of a change."""
    return [
        RetireTarget(agent, name, position) for agent, (name, position) in change.parameters["agents"].items()
    ]


def _select_changing(
    cluster: str, targets: Sequence[RetireTarget], *, is_retired: bool
) -> list[RetireTarget]:
    retired_ids = set(
        Agent.objects.filter(cluster=cluster, is_retired=True).values_list("agent_id", flat=True)
    )
    return [target for target in targets if (target.agent in retired_ids) is not is_retired]


def _draft_of(
    targets: Sequence[RetireTarget], *, is_retired: bool, undone_change_id: int | None = None
) -> ChangeDraft:
    subject = targets[0].name if len(targets) == 1 else f"{len(targets):,} agents"
    title = f"{'Retire' if is_retired else 'Reinstate'} {subject}"
    effect = (
        "Retired agents keep their place on the map and raise no alerts."
        if is_retired
        else "Refloat evaluates their states and raises alerts again."
    )
    return ChangeDraft(
        kind=ChangeKind.RETIRE,
        title=title,
        before={"agent_count": len(targets), "is_retired": not is_retired},
        after={"agent_count": len(targets), "is_retired": is_retired},
        plan={
            "question": f"{title}?",
            "notes": [effect],
            "agent_names": [target.name for target in targets[:_MAX_NAMES]],
        },
        affected_count=len(targets),
        parameters={"agents": {target.agent: [target.name, target.position] for target in targets}},
        undone_change_id=undone_change_id,
    )


def _save_retirements(cluster: str, targets: Sequence[RetireTarget], *, is_retired: bool) -> None:
    """Store which agents are retired, a batch at a time, because databases limit the size of a statement."""
    for start in range(0, len(targets), _BATCH_SIZE):
        batch = targets[start : start + _BATCH_SIZE]
        # Rounds may not have stored the agents in the database yet.
        Agent.objects.bulk_create(
            [
                Agent(
                    cluster_id=cluster,
                    agent_id=target.agent,
                    name=target.name[:255],
                    position=target.position,
                )
                for target in batch
            ],
            ignore_conflicts=True,
        )
        Agent.objects.filter(cluster=cluster, agent_id__in=[target.agent for target in batch]).update(
            is_retired=is_retired
        )


def _log(
    cluster: str,
    targets: Sequence[RetireTarget],
    targets_to_change: Sequence[RetireTarget],
    actor: RequestActor,
    reason: str,
    now: datetime,
    change: Change | None,
    *,
    is_retired: bool,
) -> None:
    """Write an audit entry for each agent in `targets`, so that the log of each agent is complete."""
    action = AuditAction.AGENT_RETIRE if is_retired else AuditAction.AGENT_REINSTATE
    changing_ids = {target.agent for target in targets_to_change}
    write_entries(
        [
            actor.create_attempt(
                action,
                cluster,
                target.name,
                reason=reason,
                before={
                    "agent": target.agent,
                    "is_retired": is_retired is not (target.agent in changing_ids),
                },
                after={"agent": target.agent, "is_retired": is_retired},
                change_id=None if change is None else change.pk,
            )
            for target in targets
        ],
        AuditOutcome.SUCCEEDED,
        now,
    )


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
