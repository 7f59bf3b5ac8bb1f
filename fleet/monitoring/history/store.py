"""Transfer between record and database: read the start of a new record, and write the history of rounds.

All writes are idempotent: every result is written at least once, and none is lost with a worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import numpy as np

from fleet.models.history import AgentChange, InstanceChange
from fleet.models.inventory import Agent, Instance
from fleet.models.moments import to_moment, to_seconds
from fleet.monitoring.agent_attributes import AgentAttributes
from fleet.monitoring.columns import HAD_TUNNEL, NO_INSTANCE, RETIRED, blank_memory
from fleet.monitoring.history import keyframes
from fleet.monitoring.history.change_rows import RowKeys, agent_change_rows_of, instance_change_rows_of
from fleet.monitoring.history.minutes import save_minutes
from fleet.monitoring.state.outbox import RoundChanges, unpack_round_changes
from fleet.monitoring.state.writer import RecordSeed, Writer

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
        attributes=[AgentAttributes(agent.version, tuple(sorted(agent.labels.items()))) for agent in agents],
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
    is_minute_over = _save_history(cluster, rounds, record_names)
    for blob in entries:
        writer.remove_from_outbox(cluster, blob)
    if is_minute_over:
        keyframes.save_if_due(writer, cluster, rounds[-1].concluded_at)
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


def _save_history(cluster: str, rounds: Sequence[RoundChanges], record_names: _RecordNames) -> bool:
    """Write changes and counts; return whether a minute is new."""
    changed_agents = np.unique(np.concatenate([changes.agent_changes["agent"] for changes in rounds]))
    instance_ids = [instance_id for instance_id, *_ in record_names.instances]
    keys = RowKeys.read(cluster, record_names.agent_ids, changed_agents, instance_ids)
    agent_rows = (row for changes in rounds for row in agent_change_rows_of(changes, keys))
    for agent_chunk in _chunks(agent_rows):
        AgentChange.objects.bulk_create(agent_chunk, ignore_conflicts=True)
    instance_rows = (
        row
        for changes in rounds
        for row in instance_change_rows_of(cluster, changes, record_names.instance_id)
    )
    for instance_chunk in _chunks(instance_rows):
        InstanceChange.objects.bulk_create(instance_chunk, ignore_conflicts=True)
    return save_minutes(cluster, rounds, keys.instances)


def _chunks(rows: Iterable[T]) -> Iterator[list[T]]:
    """Yield rows per statement, created when needed: 100,000 changes as model objects are at least 45 MB."""
    remaining_rows = iter(rows)
    while chunk := list(islice(remaining_rows, _CHUNK_SIZE)):
        yield chunk
