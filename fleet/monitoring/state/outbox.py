"""History of concluded rounds for the database: kept in the record until the database has stored it."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from fleet.monitoring.columns import AGENT_EVIDENCE, NO_INSTANCE
from fleet.monitoring.state.codec import Rows
from fleet.protocol.destination.health import Health
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE

_AGENT_CHANGE_2 = [
    ("agent", "<u4"),
    ("recovers_at", "<f8"),
    ("cause", "<u2"),
    ("auth", "<u2"),
    ("proxy", "<u2"),
    ("old", "u1"),  # states; equal if the agent only moved
    ("new", "u1"),
    ("reason_and_recovery", "u1"),
    ("tunnel_count", "u1"),  # number of its rows in `proxies`
]
#: One change of an agent's verdict or place; the columns are those of VERDICT, PLACE and HEARTBEAT. 34 bytes.
AGENT_CHANGE = np.dtype(
    [*_AGENT_CHANGE_2, ("via_proxy", "<u2"), ("evidence", AGENT_EVIDENCE), ("strands_at", "<f8")]
)
#: One change of an instance: of its state, its destination health or its drain. 6 bytes.
INSTANCE_CHANGE = np.dtype(
    [("instance", "<u2"), ("old", "u1"), ("new", "u1"), ("health", "u1"), ("is_draining", "?")]
)
#: Number of agents in a state with one proxy, auth or cause; those without agents are left out. 8 bytes.
GROUP_COUNT = np.dtype([("kind", "u1"), ("state", "u1"), ("instance", "<u2"), ("count", "<u4")])


class GroupKind(IntEnum):
    """What GROUP_COUNT rows count by. Never renumber."""

    PROXY = 0
    AUTH = 1
    CAUSE = 2


#: Numbers of destination healths in INSTANCE_CHANGE rows: never renumber.
HEALTH_NUMBERS = {Health.UNKNOWN: 0, Health.HEALTHY: 1, Health.DEGRADED: 2, Health.UNHEALTHY: 3}
#: Indices of the auths' backend and of the cluster, which have states and spells like instances.
BACKEND_INDEX, CLUSTER_INDEX = BACKEND_CAUSE, NO_CAUSE
_HEADER = struct.Struct("<QQdIIIIII")
#: Length of `group_counts` that are None.
_NO_GROUPS = 0xFFFF_FFFF
#: First number of an entry; entries of earlier versions begin with the number of the round.
_MARK, _MARK_2 = 0xFFFF_FFFF_FFFF_0003, 0xFFFF_FFFF_FFFF_0002
_EARLIER_HEADER = struct.Struct("<QdII")
_EARLIER_AGENT_CHANGE = np.dtype(
    [("agent", "<u4"), ("cause", "<u2"), ("old", "u1"), ("new", "u1"), ("reason_and_recovery", "u1")]
)
_EARLIER_INSTANCE_CHANGE = np.dtype([("instance", "<u2"), ("old", "u1"), ("new", "u1")])
_PROXY = np.dtype("<u2")
_AGENT = np.dtype("<u4")
_COUNT = np.dtype("<u4")
_COLUMNS: tuple[np.dtype[Any], ...] = (AGENT_CHANGE, _PROXY, _AGENT, INSTANCE_CHANGE, _COUNT, GROUP_COUNT)


@dataclass(frozen=True, slots=True)
class RoundChanges:
    """Changes of one round."""

    round: int
    #: When the round was concluded, seconds since the epoch.
    concluded_at: float
    #: AGENT_CHANGE rows.
    agent_changes: Rows = field(default_factory=lambda: np.zeros(0, AGENT_CHANGE))
    #: Instance indices of the proxies that report a tunnel to these agents, one run of `tunnel_count` for each row.
    proxies: npt.NDArray[np.uint16] = field(default_factory=lambda: np.zeros(0, _PROXY))
    #: Agents whose MEMORY rows are new or changed and must be saved.
    agents_to_save: npt.NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, _AGENT))
    #: INSTANCE_CHANGE rows.
    instance_changes: Rows = field(default_factory=lambda: np.zeros(0, INSTANCE_CHANGE))
    #: `InstanceEvidence` of each row as JSON; fewer in entries of earlier versions.
    instance_evidence: tuple[str, ...] = ()
    #: Number of agents in each state after the round, by number of the state; empty in entries of earlier versions.
    state_counts: npt.NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, _COUNT))
    #: GROUP_COUNT rows, in the first round of every minute.
    group_counts: Rows | None = None
    #: False in entries of earlier versions, which had no auths and proxies.
    has_places: bool = True

    @property
    def is_empty(self) -> bool:
        """Return whether the round has nothing for the database."""
        has_changes = len(self.agent_changes) or len(self.agents_to_save) or len(self.instance_changes)
        return not has_changes and self.group_counts is None


def pack_round_changes(changes: RoundChanges) -> bytes:
    """Return the changes as bytes; empty without any."""
    if changes.is_empty:
        return b""
    columns = (
        changes.agent_changes,
        changes.proxies.astype(_PROXY),
        changes.agents_to_save.astype(_AGENT),
        changes.instance_changes,
        changes.state_counts.astype(_COUNT),
    )
    # No rows, or none in this round: a fleet without agents has a minute too.
    group_count = _NO_GROUPS if changes.group_counts is None else len(changes.group_counts)
    header = _HEADER.pack(_MARK, changes.round, changes.concluded_at, *map(len, columns), group_count)
    groups = b"" if changes.group_counts is None else changes.group_counts.tobytes()
    evidence = json.dumps(changes.instance_evidence).encode() if changes.instance_evidence else b""
    return header + b"".join(column.tobytes() for column in columns) + groups + evidence


def unpack_round_changes(blob: bytes) -> RoundChanges:
    """Return the changes from bytes, also of an earlier version."""
    mark = _HEADER.unpack_from(blob)[0] if len(blob) >= _HEADER.size else 0
    if mark not in (_MARK, _MARK_2):
        return _unpack_earlier_version(blob)
    _, round_number, concluded_at, *counts = _HEADER.unpack_from(blob)
    columns: list[npt.NDArray[Any] | None] = []
    offset = _HEADER.size
    for dtype, count in zip(_COLUMNS, counts, strict=True):
        if count == _NO_GROUPS:
            columns.append(None)
            continue
        stored_dtype = np.dtype(_AGENT_CHANGE_2) if dtype is AGENT_CHANGE and mark == _MARK_2 else dtype
        columns.append(np.frombuffer(blob, stored_dtype, count, offset))
        offset += count * stored_dtype.itemsize
    agent_changes, proxies, agents_to_save, instance_changes, state_counts, group_counts = columns
    return RoundChanges(
        round_number,
        concluded_at,
        agent_changes=_with_all_columns(agent_changes),
        proxies=proxies,  # type: ignore[arg-type]  # only groups may be None
        agents_to_save=agents_to_save,  # type: ignore[arg-type]
        instance_changes=instance_changes,  # type: ignore[arg-type]
        instance_evidence=tuple(json.loads(blob[offset:])) if len(blob) > offset else (),
        state_counts=state_counts,  # type: ignore[arg-type]
        group_counts=group_counts,
    )


def _with_all_columns(rows: Rows | None) -> Rows:
    """Return AGENT_CHANGE rows of rows of an earlier version, without the evidence that it did not record."""
    assert rows is not None, "only groups may be missing"
    if rows.dtype == AGENT_CHANGE:
        return rows
    complete_rows = np.zeros(len(rows), AGENT_CHANGE)
    complete_rows["via_proxy"] = NO_INSTANCE
    for name in rows.dtype.names or ():
        complete_rows[name] = rows[name]
    return complete_rows


def _unpack_earlier_version(blob: bytes) -> RoundChanges:
    """Return the changes of states of an earlier version, which had no places."""
    round_number, concluded_at, change_count, saved_agent_count = _EARLIER_HEADER.unpack_from(blob)
    agents_offset = _EARLIER_HEADER.size + change_count * _EARLIER_AGENT_CHANGE.itemsize
    instances_offset = agents_offset + _AGENT.itemsize * saved_agent_count
    agent_changes = np.zeros(change_count, AGENT_CHANGE)
    agent_changes["auth"] = agent_changes["proxy"] = agent_changes["via_proxy"] = NO_INSTANCE
    earlier_agent_changes = np.frombuffer(blob, _EARLIER_AGENT_CHANGE, change_count, _EARLIER_HEADER.size)
    earlier_instance_changes = np.frombuffer(blob[instances_offset:], _EARLIER_INSTANCE_CHANGE)
    instance_changes = np.zeros(len(earlier_instance_changes), INSTANCE_CHANGE)
    for earlier, rows in (
        (earlier_agent_changes, agent_changes),
        (earlier_instance_changes, instance_changes),
    ):
        for name in earlier.dtype.names or ():
            rows[name] = earlier[name]
    return RoundChanges(
        round_number,
        concluded_at,
        agent_changes=agent_changes,
        agents_to_save=np.frombuffer(blob, _AGENT, saved_agent_count, agents_offset),
        instance_changes=instance_changes,
        has_places=False,
    )
