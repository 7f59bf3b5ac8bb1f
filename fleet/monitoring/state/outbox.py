"""What a concluded round owes to the database: kept in the record with the round, until the database has got it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fleet.monitoring.state.codec import Rows
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE

#: One change of an agent's state; `packed` as in VERDICT. 9 bytes.
TRANSITION = np.dtype([("agent", "<u4"), ("cause", "<u2"), ("old", "u1"), ("new", "u1"), ("packed", "u1")])
#: One change of an instance's state. 4 bytes.
INSTANCE_TRANSITION = np.dtype([("instance", "<u2"), ("old", "u1"), ("new", "u1")])
#: Two more that have states and spells, in the places that no instance has: the auths' backend, and the cluster.
BACKEND, CLUSTER = BACKEND_CAUSE, NO_CAUSE
_NO_INSTANCES: Rows = np.zeros(0, INSTANCE_TRANSITION)
_HEAD = struct.Struct("<QdII")


@dataclass(frozen=True, slots=True)
class RoundChanges:
    """One round's changes."""

    round: int
    #: When it concluded, seconds since the epoch.
    at: float
    #: TRANSITION rows.
    transitions: Rows
    #: Agents that are new, or are remembered differently: their MEMORY rows have to be saved.
    changed_agents: npt.NDArray[np.uint32]
    #: INSTANCE_TRANSITION rows.
    instances: Rows = field(default_factory=lambda: _NO_INSTANCES)

    @property
    def is_empty(self) -> bool:
        """The database need not hear of this round."""
        return not (len(self.transitions) or len(self.changed_agents) or len(self.instances))


def pack_round_changes(changes: RoundChanges) -> bytes:
    """Its bytes; none when there is nothing to owe."""
    if changes.is_empty:
        return b""
    head = _HEAD.pack(changes.round, changes.at, len(changes.transitions), len(changes.changed_agents))
    rows = changes.transitions.tobytes() + changes.changed_agents.astype("<u4").tobytes()
    # Instances last and uncounted: what was owed before an upgrade has none, and can still be read.
    return head + rows + changes.instances.tobytes()


def unpack_round_changes(blob: bytes) -> RoundChanges:
    """From its bytes."""
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
