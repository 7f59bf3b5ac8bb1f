"""What a concluded round owes to the database: kept in the record with the round, until the database has got it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleet.state.codec import Rows

#: One change of an agent's state; `packed` as in VERDICT. 9 bytes.
TRANSITION = np.dtype([("agent", "<u4"), ("cause", "<u2"), ("old", "u1"), ("new", "u1"), ("packed", "u1")])
_HEAD = struct.Struct("<QdII")


@dataclass(frozen=True, slots=True)
class Owed:
    """One round's changes."""

    round: int
    #: When it concluded, seconds since the epoch.
    at: float
    #: TRANSITION rows.
    transitions: Rows
    #: Agents that are new, or are remembered differently: their MEMORY rows have to be saved.
    remembered: npt.NDArray[np.uint32]

    @property
    def empty(self) -> bool:
        """The database need not hear of this round."""
        return not len(self.transitions) and not len(self.remembered)


def pack_owed(owed: Owed) -> bytes:
    """Its bytes; none when there is nothing to owe."""
    if owed.empty:
        return b""
    head = _HEAD.pack(owed.round, owed.at, len(owed.transitions), len(owed.remembered))
    return head + owed.transitions.tobytes() + owed.remembered.astype("<u4").tobytes()


def unpack_owed(blob: bytes) -> Owed:
    """From its bytes."""
    number, at, transitions, remembered = _HEAD.unpack_from(blob)
    middle = _HEAD.size + transitions * TRANSITION.itemsize
    return Owed(
        round=number,
        at=at,
        transitions=np.frombuffer(blob, TRANSITION, transitions, _HEAD.size),
        remembered=np.frombuffer(blob, np.dtype("<u4"), remembered, middle),
    )
