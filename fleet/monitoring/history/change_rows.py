"""Rows of the history from the changes of rounds: indices of the record become keys of the database.

Indices are valid in one record only, and host UUIDs take 36 bytes; keys are small and stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from struct import Struct

import numpy as np
import numpy.typing as npt

from fleet.models.history import BACKEND_CAUSE_KEY, LAST_PROXY_BIT, AgentChange, InstanceChange
from fleet.models.inventory import Agent, Instance
from fleet.monitoring.columns import NO_INSTANCE, PRESENCE_BITS, REASON_BITS, RECOVERY_SHIFT, ResourcePresence
from fleet.monitoring.state.outbox import BACKEND_INDEX, CLUSTER_INDEX, HEALTH_NUMBERS, RoundChanges
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import BACKEND_CAUSE, State

#: Agents in one query.
_QUERY_SIZE = 500
#: Instance indices of packed columns.
_INDEX_COUNT = NO_INSTANCE + 1
#: Maximum distance of a prediction in milliseconds: 24 days.
_MAX_AFTER_MS = 2**31 - 1
#: Second part of `AgentChange.evidence`: milliseconds until the agent becomes stranded (0: no deadline), and the key of
#: the proxy that carries its auth connection (0: none).
EVIDENCE_TAIL = Struct("<iI")
_HEALTHS_BY_NUMBER = {number: health.value for health, number in HEALTH_NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class RowKeys:
    """Keys of the rows in the database, by index in the record; 0: no row."""

    agents: npt.NDArray[np.int64]
    #: With entries for the backend and for no instance.
    instances: npt.NDArray[np.int64]

    @classmethod
    def read(
        cls,
        cluster: str,
        agent_ids: Sequence[str],
        indices: npt.NDArray[np.uint32],
        instance_ids: Sequence[str],
    ) -> RowKeys:
        """Return the keys of all instances and of the agents with these indices."""
        return cls(read_agent_keys(cluster, agent_ids, indices), read_instance_keys(cluster, instance_ids))


def read_instance_keys(cluster: str, instance_ids: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the keys of instances by index in the record; BACKEND_CAUSE_KEY for the backend."""
    key_by_id = dict(Instance.objects.filter(cluster=cluster).values_list("instance_id", "pk"))
    keys = np.zeros(_INDEX_COUNT, np.int64)
    keys[: len(instance_ids)] = [key_by_id.get(instance_id, 0) for instance_id in instance_ids]
    keys[BACKEND_CAUSE] = BACKEND_CAUSE_KEY
    return keys


def read_agent_keys(
    cluster: str, agent_ids: Sequence[str], indices: npt.NDArray[np.uint32]
) -> npt.NDArray[np.int64]:
    """Return the keys of the agents with these indices, by index in the record; 0 for the others."""
    keys = np.zeros(len(agent_ids), np.int64)
    rows = Agent.objects.filter(cluster=cluster).order_by().values_list("agent_id", "pk")
    present_indices = indices[indices < len(agent_ids)].tolist()
    if len(present_indices) * 10 > len(agent_ids):
        key_by_id = dict(rows)
        keys[present_indices] = [key_by_id.get(agent_ids[index], 0) for index in present_indices]
        return keys
    for start in range(0, len(present_indices), _QUERY_SIZE):
        index_by_id = {agent_ids[index]: index for index in present_indices[start : start + _QUERY_SIZE]}
        for agent_id, key in rows.filter(agent_id__in=[*index_by_id]):
            keys[index_by_id[agent_id]] = key
    return keys


def agent_change_rows_of(changes: RoundChanges, keys: RowKeys) -> Iterator[AgentChange]:
    """Yield the rows of the agents that have a key."""
    rows = changes.agent_changes
    is_in_record = rows["agent"] < len(keys.agents)
    agent_keys = np.where(is_in_record, keys.agents[np.where(is_in_record, rows["agent"], 0)], 0)
    packed_proxies = _pack_proxies(changes, keys.instances)
    auth_keys = keys.instances[rows["auth"]].tolist() if changes.has_places else [None] * len(rows)
    columns = (
        agent_keys.tolist(),
        keys.instances[rows["cause"]].tolist(),
        auth_keys,
        packed_proxies,
        _pack_evidence(changes, keys.instances),
        *(rows[name].tolist() for name in ("recovers_at", "old", "new", "reason_and_recovery")),
    )
    at = changes.concluded_at
    for agent, cause, auth, proxies, evidence, recovers_at, old, new, reason_and_recovery in zip(
        *columns, strict=True
    ):
        if agent:
            yield AgentChange(
                agent_id=agent,
                at=at,
                cause=cause,
                auth=auth,
                recovers_after_ms=_milliseconds_from(at, recovers_at),
                old=old,
                new=new,
                reason=reason_and_recovery & REASON_BITS,
                recovery=reason_and_recovery >> RECOVERY_SHIFT,
                proxies=proxies,
                evidence=evidence,
            )


def _milliseconds_from(at: float, predicted_at: float) -> int:
    """Return the distance of a prediction, at least 1 ms, because 0 means that there is none."""
    if not predicted_at:
        return 0
    milliseconds = round((predicted_at - at) * 1000)
    return max(-_MAX_AFTER_MS, min(milliseconds, _MAX_AFTER_MS)) or 1


def _pack_proxies(changes: RoundChanges, instance_keys: npt.NDArray[np.int64]) -> Sequence[bytes | None]:
    """Return `AgentChange.proxies` of each change."""
    rows = changes.agent_changes
    if not changes.has_places:
        return [None] * len(rows)
    counts = rows["tunnel_count"].astype(np.intp)
    row_numbers = np.repeat(np.arange(len(rows)), counts)
    is_other = changes.proxies != rows["proxy"][row_numbers]
    # The current proxy first; the others stay in the order of the record.
    order = np.lexsort((is_other, row_numbers))
    packed_keys = instance_keys[changes.proxies[order]].astype("<u4").tobytes()
    last_keys = np.where(rows["proxy"] == NO_INSTANCE, 0, instance_keys[rows["proxy"]])
    ends = np.cumsum(counts) * 4
    return [
        packed_keys[end - count * 4 : end]
        if count
        else (last_key | LAST_PROXY_BIT).to_bytes(4, "little")
        if last_key
        else b""
        for end, count, last_key in zip(ends.tolist(), counts.tolist(), last_keys.tolist(), strict=True)
    ]


def _pack_evidence(changes: RoundChanges, instance_keys: npt.NDArray[np.int64]) -> Sequence[bytes | None]:
    """Return `AgentChange.evidence` of each change: AGENT_EVIDENCE, and EVIDENCE_TAIL if it says anything.

    A healthy agent whose resource has not expired needs none: its sentence names its auth and its tunnels.
    """
    rows = changes.agent_changes
    via_proxies = instance_keys[rows["via_proxy"]]
    columns = (rows["new"], rows["evidence"], rows["strands_at"], via_proxies)
    packed_evidence = list[bytes | None]()
    for state, evidence, strands_at, via_proxy in zip(*(column.tolist() for column in columns), strict=True):
        if evidence & PRESENCE_BITS == ResourcePresence.NOT_RECORDED:
            packed_evidence.append(None)
        elif state == State.HEALTHY and evidence & PRESENCE_BITS == ResourcePresence.UNEXPIRED:
            packed_evidence.append(b"")
        else:
            tail = (
                EVIDENCE_TAIL.pack(_milliseconds_from(changes.concluded_at, strands_at), via_proxy)
                if strands_at or via_proxy
                else b""
            )
            packed_evidence.append(evidence.to_bytes(2, "little") + tail)
    return packed_evidence


def instance_change_rows_of(
    cluster: str, changes: RoundChanges, instance_id_of: Callable[[int], str]
) -> Iterator[InstanceChange]:
    """Yield the rows of the instances that have an id."""
    system_names = {BACKEND_INDEX: f"backend/{cluster}", CLUSTER_INDEX: f"cluster/{cluster}"}
    rows = changes.instance_changes.tolist()
    for (index, old, new, health, is_draining), evidence in zip_longest(
        rows, changes.instance_evidence[: len(rows)]
    ):
        system_name = system_names.get(index)
        instance = system_name or instance_id_of(index)
        has_health = changes.has_places and not system_name
        if instance:
            yield InstanceChange(
                cluster_id=cluster,
                instance=instance,
                old=InstanceState(old).slug,
                new=InstanceState(new).slug,
                health=_HEALTHS_BY_NUMBER[health] if has_health else "",
                is_draining=is_draining if has_health else None,
                evidence=evidence or None,
                at=changes.concluded_at,
                round=changes.round,
            )
