"""Between the record and the database: recall what a new record begins with, and settle what rounds owe.

All writes are idempotent, so a result is settled at least once and nothing is lost with a worker.
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
    empty_memory,
)
from fleet.monitoring.state.outbox import BACKEND, CLUSTER, Owed, unpack_owed
from fleet.monitoring.state.writer import Remembered, Writer
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import BACKEND_CAUSE, Reason, Recovery, State

T = TypeVar("T")
Positioned = TypeVar("Positioned", Instance, Agent)

#: Rows in one statement, and so in one transaction: SQLite has one writer, and the others wait for it.
_CHUNK = 1000
#: Results settled in one go.
_AT_ONCE = 20


def recall(cluster: str) -> Remembered:
    """What the database remembers of a cluster, by position. Gaps are closed, for a record has none."""
    instances = list(Instance.objects.filter(cluster=cluster).order_by("position", "pk"))
    agents = list(Agent.objects.filter(cluster=cluster).order_by("position", "pk"))
    for chunk in _chunks(_renumber(instances)):
        Instance.objects.bulk_update(chunk, ["position"])
    for moved in _chunks(_renumber(agents)):
        Agent.objects.bulk_update(moved, ["position"])
    at = {instance.instance_id: index for index, instance in enumerate(instances)}
    memory = empty_memory(len(agents))
    for row, agent in zip(memory, agents, strict=True):
        row["home"] = at.get(agent.home, NO_INSTANCE)
        row["last_auth"] = at.get(agent.last_auth, NO_INSTANCE)
        proxies = [at[proxy] for proxy in agent.last_proxies if proxy in at]
        row["last_proxies"][: len(proxies)] = proxies
        row["flags"] = HAD_TUNNEL * agent.had_tunnel | RETIRED * agent.retired
        row["lost_at"] = to_seconds(agent.lost_at) if agent.lost_at else 0.0
    return Remembered(
        agents=[(agent.agent_id, agent.name) for agent in agents],
        instances=[(instance.instance_id, instance.kind, instance.name) for instance in instances],
        memory=memory,
    )


def settle(writer: Writer, cluster: str) -> int:
    """Write to the database what rounds owe to it; answers how many rounds were settled."""
    owed = writer.owed(cluster, _AT_ONCE)
    if not owed:
        return 0
    saved = _Names.read(writer, cluster)
    rounds = [unpack_owed(blob) for blob in owed]
    _save_instances(cluster, saved)
    _save_agents(writer, cluster, rounds, saved)
    _save_transitions(cluster, rounds, saved)
    _save_turns(cluster, rounds, saved)
    for blob in owed:
        writer.settled(cluster, blob)
    return len(owed)


class _Names:
    """Ids by index, as the record has them now."""

    def __init__(
        self, ids: Sequence[str], names: Sequence[str], instances: Sequence[tuple[str, str, str]]
    ) -> None:
        self.ids = ids
        self.names = names
        self.instances = instances

    @classmethod
    def read(cls, writer: Writer, cluster: str) -> _Names:
        ids, names = writer.agent_ids(cluster)
        return cls(ids, names, writer.instance_names(cluster))

    def instance(self, index: int) -> str:
        return self.instances[index][0] if index < len(self.instances) else ""

    def cause(self, cluster: str, index: int) -> str:
        return f"backend/{cluster}" if index == BACKEND_CAUSE else self.instance(index)


def _renumber(rows: Sequence[Positioned]) -> list[Positioned]:
    """Give each row its place in the list as its position; answers those that had another one."""
    moved = [row for position, row in enumerate(rows) if row.position != position]
    for position, row in enumerate(rows):
        row.position = position
    return moved


def _save_instances(cluster: str, saved: _Names) -> None:
    if Instance.objects.filter(cluster=cluster).count() == len(saved.instances):
        return
    rows = [
        Instance(cluster_id=cluster, instance_id=identity, kind=kind, name=name, position=position)
        for position, (identity, kind, name) in enumerate(saved.instances)
    ]
    for chunk in _chunks(rows):
        Instance.objects.bulk_create(
            chunk,
            update_conflicts=True,
            unique_fields=["cluster", "instance_id"],
            update_fields=["name", "position"],
        )


def _save_agents(writer: Writer, cluster: str, rounds: Sequence[Owed], saved: _Names) -> None:
    indices = np.unique(np.concatenate([owed.remembered for owed in rounds]))
    memory = writer.memory(cluster)
    known = min(len(memory), len(saved.ids))
    rows = (_agent(cluster, int(index), memory[index], saved) for index in indices if index < known)
    for chunk in _chunks(rows):
        Agent.objects.bulk_create(
            chunk,
            update_conflicts=True,
            unique_fields=["cluster", "agent_id"],
            # `retired` is an operator's word: the database tells the record, never the other way round.
            update_fields=["name", "position", "home", "last_auth", "last_proxies", "had_tunnel", "lost_at"],
        )


def _agent(cluster: str, index: int, row: np.void, saved: _Names) -> Agent:
    return Agent(
        cluster_id=cluster,
        agent_id=saved.ids[index],
        name=saved.names[index],
        position=index,
        home=saved.instance(int(row["home"])),
        last_auth=saved.instance(int(row["last_auth"])),
        last_proxies=[
            saved.instance(proxy) for proxy in row["last_proxies"].tolist() if proxy != NO_INSTANCE
        ],
        had_tunnel=bool(row["flags"] & HAD_TUNNEL),
        lost_at=to_moment(float(row["lost_at"])) if row["lost_at"] else None,
    )


def _save_transitions(cluster: str, rounds: Sequence[Owed], saved: _Names) -> None:
    rows = (
        Transition(
            cluster_id=cluster,
            agent=saved.ids[agent],
            old=State(old).slug,
            new=State(new).slug,
            reason=Reason(packed & REASON_BITS).slug,
            recovery=Recovery(packed >> RECOVERY_SHIFT).slug,
            cause=saved.cause(cluster, cause),
            at=to_moment(owed.at),
            round=owed.round,
        )
        for owed in rounds
        for agent, cause, old, new, packed in owed.transitions.tolist()
        if agent < len(saved.ids)
    )
    for chunk in _chunks(rows):
        Transition.objects.bulk_create(chunk, ignore_conflicts=True)


def _save_turns(cluster: str, rounds: Sequence[Owed], saved: _Names) -> None:
    wholes = {BACKEND: f"backend/{cluster}", CLUSTER: f"cluster/{cluster}"}
    rows = (
        InstanceTransition(
            cluster_id=cluster,
            instance=identity,
            old=InstanceState(old).slug,
            new=InstanceState(new).slug,
            at=to_moment(owed.at),
            round=owed.round,
        )
        for owed in rounds
        for index, old, new in owed.instances.tolist()
        if (identity := wholes.get(index) or saved.instance(index))
    )
    for chunk in _chunks(rows):
        InstanceTransition.objects.bulk_create(chunk, ignore_conflicts=True)


def prune(before: datetime) -> int:
    """Delete transitions older than that, a chunk in a statement so that nobody waits long; return how many."""
    deleted = 0
    for model in (Transition, InstanceTransition):
        old = model.objects.filter(at__lt=before).order_by("pk").values_list("pk", flat=True)
        while oldest := list(old[:_CHUNK]):
            model.objects.filter(pk__in=oldest).delete()
            deleted += len(oldest)
    return deleted


def _chunks(rows: Iterable[T]) -> Iterator[list[T]]:
    """Rows by the statement, made when their turn comes: 100,000 changes as model objects are 45 MB at least."""
    left = iter(rows)
    while chunk := list(islice(left, _CHUNK)):
        yield chunk
