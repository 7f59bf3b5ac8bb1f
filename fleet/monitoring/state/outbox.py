"""History of concluded rounds for the database: kept in the record until the database has stored it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fleet.monitoring.state.codec import Rows
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE

#: One change of an agent's state; `packed` as in VERDICT. 9 bytes.
TRANSITION = np.dtype([("agent", "<u4"), ("cause", "<u2"), ("old", "u1"), ("new", "u1"), ("reason_and_recovery", "u1")])
#: One change of an instance's state. 4 bytes.
INSTANCE_TRANSITION = np.dtype([("instance", "<u2"), ("old", "u1"), ("new", "u1")])
#: Indices of the auths' backend and of the cluster, which have states and spells like instances.
BACKEND, CLUSTER = BACKEND_CAUSE, NO_CAUSE
_NO_INSTANCES: Rows = np.zeros(0, INSTANCE_TRANSITION)
_HEAD = struct.Struct("<QdII")


@dataclass(frozen=True, slots=True)
class RoundChanges:
    """Changes of one round."""

    round: int
    #: When the round was concluded, seconds since the epoch.
    at: float
    #: TRANSITION rows.
    transitions: Rows
    #: Agents whose MEMORY rows are new or changed and must be saved.
    changed_agents: npt.NDArray[np.uint32]
    #: INSTANCE_TRANSITION rows.
    instances: Rows = field(default_factory=lambda: _NO_INSTANCES)

    @property
    def is_empty(self) -> bool:
        """Return whether the round has nothing for the database."""
        return not (len(self.transitions) or len(self.changed_agents) or len(self.instances))


def pack_round_changes(changes: RoundChanges) -> bytes:
    """Return the changes as bytes; empty without any."""
    if changes.is_empty:
        return b""
    head = _HEAD.pack(changes.round, changes.at, len(changes.transitions), len(changes.changed_agents))
    rows = changes.transitions.tobytes() + changes.changed_agents.astype("<u4").tobytes()
    # Instances last and without a count: entries from before an upgrade have none and stay readable.
    return head + rows + changes.instances.tobytes()


def unpack_round_changes(blob: bytes) -> RoundChanges:
    """Return the changes from bytes."""
    round_number, at, transition_count, changed_agent_count = _HEAD.unpack_from(blob)
    middle = _HEAD.size + transition_count * TRANSITION.itemsize
    end = middle + 4 * changed_agent_count
    return RoundChanges(
        round=round_number,
        at=at,
        transitions=np.frombuffer(blob, TRANSITION, transition_count, _HEAD.size),
        changed_agents=np.frombuffer(blob, np.dtype("<u4"), changed_agent_count, middle),
        instances=np.frombuffer(blob, INSTANCE_TRANSITION, -1, end) if end < len(blob) else _NO_INSTANCES,
    )
