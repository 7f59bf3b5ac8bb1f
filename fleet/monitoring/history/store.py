"""Transfer between record and database: read the start of a new record, and write the history of rounds.

All writes are idempotent: every result is written at least once, and none is lost with a worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TypeVar

import numpy as np

from fleet.models.inventory import Agent, Instance
from fleet.models.moments import to_moment, to_seconds
from fleet.models.transitions import InstanceTransition, Transition
from fleet.monitoring.columns import (
    HAD_TUNNEL,
    NO_INSTANCE,
    REASON_BITS,
    RECOVERY_SHIFT,
    RETIRED,
    blank_memory,
)
from fleet.monitoring.state.outbox import BACKEND_INDEX, CLUSTER_INDEX, RoundChanges, unpack_round_changes
from fleet.monitoring.state.writer import RecordSeed, Writer
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import BACKEND_CAUSE, Reason, Recovery, State

T = TypeVar("T")
PositionedT = TypeVar("PositionedT", Instance, Agent)

#: Rows per statement, and so per transaction: SQLite has one writer, and others wait for it.
_CHUNK_SIZE = 1000
#: Results of rounds per transfer.
_MAX_ROUNDS_PER_FLUSH = 20


def load_record_seed(cluster: str) -> RecordSeed:
    """Return the data of a cluster in the database, by position. Gaps are closed, because a record has none."""
    instances = list(Instance.objects.filter(cluster=cluster).order_by("position", "pk"))
    agents = list(Agent.objects.filter(cluster=cluster).order_by("position", "pk"))
    for instance_chunk in _chunks(_renumber(instances)):
        Instance.objects.bulk_update(instance_chunk, ["position"])
    for agent_chunk in _chunks(_renumber(agents)):
        Agent.objects.bulk_update(agent_chunk, ["position"])
    index_by_instance_id = {instance.instance_id: index for index, instance in enumerate(instances)}
    memory = blank_memory(len(agents))
    for row, agent in zip(memory, agents, strict=True):
        row["home_proxy"] = index_by_instance_id.get(agent.home_proxy, NO_INSTANCE)
        row["last_auth"] = index_by_instance_id.get(agent.last_auth, NO_INSTANCE)
        proxies = [
            index_by_instance_id[proxy] for proxy in agent.last_proxies if proxy in index_by_instance_id
        ]
        row["last_proxies"][: len(proxies)] = proxies
        row["flags"] = HAD_TUNNEL * agent.had_tunnel | RETIRED * agent.is_retired
        row["lost_at"] = to_seconds(agent.lost_at) if agent.lost_at else 0.0
    return RecordSeed(
        agents=[(agent.agent_id, agent.name) for agent in agents],
        instances=[(instance.instance_id, instance.kind, instance.name) for instance in instances],
        memory=memory,
    )


def flush_outbox(writer: Writer, cluster: str) -> int:
    """Write the history of rounds to the database; return how many rounds were written."""
    entries = writer.read_outbox(cluster, _MAX_ROUNDS_PER_FLUSH)
    if not entries:
        return 0
    record_names = _RecordNames.read(writer, cluster)
    rounds = [unpack_round_changes(blob) for blob in entries]
    _save_instances(cluster, record_names)
    _save_agents(writer, cluster, rounds, record_names)
    _save_transitions(cluster, rounds, record_names)
    _save_instance_transitions(cluster, rounds, record_names)
    for blob in entries:
        writer.remove_from_outbox(cluster, blob)
    return len(entries)


class _RecordNames:
    """Ids by index, from the current record."""

    def __init__(
        self, ids: Sequence[str], names: Sequence[str], instances: Sequence[tuple[str, str, str]]
    ) -> None:
        self.agent_ids = ids
        self.agent_names = names
        self.instances = instances

    @classmethod
    def read(cls, writer: Writer, cluster: str) -> _RecordNames:
        ids, names = writer.agent_ids_and_names(cluster)
        return cls(ids, names, writer.instance_identities(cluster))

    def instance_id(self, index: int) -> str:
        return self.instances[index][0] if index < len(self.instances) else ""

    def cause_id(self, cluster: str, index: int) -> str:
        return f"backend/{cluster}" if index == BACKEND_CAUSE else self.instance_id(index)


def _renumber(rows: Sequence[PositionedT]) -> list[PositionedT]:
    """Set the position of each row to its place in the list; return the rows that changed."""
    moved_rows = [row for position, row in enumerate(rows) if row.position != position]
    for position, row in enumerate(rows):
        row.position = position
    return moved_rows


def _save_instances(cluster: str, record_names: _RecordNames) -> None:
    if Instance.objects.filter(cluster=cluster).count() == len(record_names.instances):
        return
    rows = [
        Instance(cluster_id=cluster, instance_id=instance_id, kind=kind, name=name, position=position)
        for position, (instance_id, kind, name) in enumerate(record_names.instances)
    ]
    for chunk in _chunks(rows):
        Instance.objects.bulk_create(
            chunk,
            update_conflicts=True,
            unique_fields=["cluster", "instance_id"],
            update_fields=["name", "position"],
        )


def _save_agents(
    writer: Writer, cluster: str, rounds: Sequence[RoundChanges], record_names: _RecordNames
) -> None:
    indices = np.unique(np.concatenate([changes.agents_to_save for changes in rounds]))
    memory = writer.memory(cluster)
    agent_count = min(len(memory), len(record_names.agent_ids))
    rows = (
        _build_agent(cluster, int(index), memory[index], record_names)
        for index in indices
        if index < agent_count
    )
    for chunk in _chunks(rows):
        Agent.objects.bulk_create(
            chunk,
            update_conflicts=True,
            unique_fields=["cluster", "agent_id"],
            # `is_retired` is set by operators: it is copied from the database to the record, never back.
            update_fields=[
                "name",
                "position",
                "home_proxy",
                "last_auth",
                "last_proxies",
                "had_tunnel",
                "lost_at",
            ],
        )


def _build_agent(cluster: str, index: int, row: np.void, record_names: _RecordNames) -> Agent:
    return Agent(
        cluster_id=cluster,
        agent_id=record_names.agent_ids[index],
        name=record_names.agent_names[index],
        position=index,
        home_proxy=record_names.instance_id(int(row["home_proxy"])),
        last_auth=record_names.instance_id(int(row["last_auth"])),
        last_proxies=[
            record_names.instance_id(proxy) for proxy in row["last_proxies"].tolist() if proxy != NO_INSTANCE
        ],
        had_tunnel=bool(row["flags"] & HAD_TUNNEL),
        lost_at=to_moment(float(row["lost_at"])) if row["lost_at"] else None,
    )


def _save_transitions(cluster: str, rounds: Sequence[RoundChanges], record_names: _RecordNames) -> None:
    rows = (
        Transition(
            cluster_id=cluster,
            agent=record_names.agent_ids[agent],
            old=State(old).slug,
            new=State(new).slug,
            reason=Reason(packed_reason_and_recovery & REASON_BITS).slug,
            recovery=Recovery(packed_reason_and_recovery >> RECOVERY_SHIFT).slug,
            cause=record_names.cause_id(cluster, cause),
            at=to_moment(changes.concluded_at),
            round=changes.round,
        )
        for changes in rounds
        for agent, cause, old, new, packed_reason_and_recovery in changes.agent_changes[
            ["agent", "cause", "old", "new", "reason_and_recovery"]
        ].tolist()
        if agent < len(record_names.agent_ids) and old != new
    )
    for chunk in _chunks(rows):
        Transition.objects.bulk_create(chunk, ignore_conflicts=True)


def _save_instance_transitions(
    cluster: str, rounds: Sequence[RoundChanges], record_names: _RecordNames
) -> None:
    system_names = {BACKEND_INDEX: f"backend/{cluster}", CLUSTER_INDEX: f"cluster/{cluster}"}
    rows = (
        InstanceTransition(
            cluster_id=cluster,
            instance=instance_id,
            old=InstanceState(old).slug,
            new=InstanceState(new).slug,
            at=to_moment(changes.concluded_at),
            round=changes.round,
        )
        for changes in rounds
        for index, old, new, *_ in changes.instance_changes.tolist()
        if old != new and (instance_id := system_names.get(index) or record_names.instance_id(index))
    )
    for chunk in _chunks(rows):
        InstanceTransition.objects.bulk_create(chunk, ignore_conflicts=True)


def prune_transitions(before: datetime) -> int:
    """Delete transitions before a time in chunks, so that no writer waits long; return how many."""
    deleted_count = 0
    for model in (Transition, InstanceTransition):
        old = model.objects.filter(at__lt=before).order_by("pk").values_list("pk", flat=True)
        while oldest := list(old[:_CHUNK_SIZE]):
            model.objects.filter(pk__in=oldest).delete()
            deleted_count += len(oldest)
    return deleted_count


def _chunks(rows: Iterable[T]) -> Iterator[list[T]]:
    """Yield rows per statement, created when needed: 100,000 changes as model objects are at least 45 MB."""
    remaining_rows = iter(rows)
    while chunk := list(islice(remaining_rows, _CHUNK_SIZE)):
        yield chunk
