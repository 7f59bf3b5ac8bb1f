"""History of concluded rounds for the database: kept in the record until the database has stored it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fleet.monitoring.state.codec import Rows
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE

#: One change of an agent's state; `packed` as in VERDICT. 9 bytes.
TRANSITION = np.dtype(
    [("agent", "<u4"), ("cause", "<u2"), ("old", "u1"), ("new", "u1"), ("reason_and_recovery", "u1")]
)
#: One change of an instance's state. 4 bytes.
INSTANCE_TRANSITION = np.dtype([("instance", "<u2"), ("old", "u1"), ("new", "u1")])
#: Indices of the auths' backend and of the cluster, which have states and spells like instances.
BACKEND_INDEX, CLUSTER_INDEX = BACKEND_CAUSE, NO_CAUSE
_NO_INSTANCE_TRANSITIONS: Rows = np.zeros(0, INSTANCE_TRANSITION)
_HEADER = struct.Struct("<QdII")


@dataclass(frozen=True, slots=True)
class RoundChanges:
    """Changes of one round."""

    round: int
    #: When the round was concluded, seconds since the epoch.
    concluded_at: float
    #: TRANSITION rows.
    transitions: Rows
    #: Agents whose MEMORY rows are new or changed and must be saved.
    agents_to_save: npt.NDArray[np.uint32]
    #: INSTANCE_TRANSITION rows.
    instance_transitions: Rows = field(default_factory=lambda: _NO_INSTANCE_TRANSITIONS)

    @property
    def is_empty(self) -> bool:
        """Return whether the round has nothing for the database."""
        return not (len(self.transitions) or len(self.agents_to_save) or len(self.instance_transitions))


def pack_round_changes(changes: RoundChanges) -> bytes:
    """Return the changes as bytes; empty without any."""
    if changes.is_empty:
        return b""
    header = _HEADER.pack(
        changes.round, changes.concluded_at, len(changes.transitions), len(changes.agents_to_save)
    )
    rows = changes.transitions.tobytes() + changes.agents_to_save.astype("<u4").tobytes()
    # Instances last and without a count: entries from before an upgrade have none and stay readable.
    return header + rows + changes.instance_transitions.tobytes()


def unpack_round_changes(blob: bytes) -> RoundChanges:
    """Return the changes from bytes."""
    round_number, concluded_at, transition_count, saved_agent_count = _HEADER.unpack_from(blob)
    agents_offset = _HEADER.size + transition_count * TRANSITION.itemsize
    instances_offset = agents_offset + 4 * saved_agent_count
    return RoundChanges(
        round=round_number,
        concluded_at=concluded_at,
        transitions=np.frombuffer(blob, TRANSITION, transition_count, _HEADER.size),
        agents_to_save=np.frombuffer(blob, np.dtype("<u4"), saved_agent_count, agents_offset),
        instance_transitions=np.frombuffer(blob, INSTANCE_TRANSITION, -1, instances_offset)
        if instances_offset < len(blob)
        else _NO_INSTANCE_TRANSITIONS,
    )
