"""Counts of agents by proxy, auth and cause, which the first round of every minute makes for the history. No I/O."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fleet.monitoring.state.codec import Rows
from fleet.monitoring.state.outbox import GROUP_COUNT, GroupKind
from fleet.vocabulary.verdicts import State

_MINUTE_SECONDS = 60


def is_new_minute(previous_as_of: float, now: float) -> bool:
    """Return whether a round at `now` is the first one of its minute; `previous_as_of` 0: there was no round before."""
    return now // _MINUTE_SECONDS != previous_as_of // _MINUTE_SECONDS


def count_groups(verdicts: Rows, places: Rows) -> Rows:
    """Return GROUP_COUNT rows: the agents of each proxy, auth and cause by state."""
    states = verdicts["state"].astype(np.uint32)
    columns = {
        GroupKind.PROXY: places["proxy"],
        GroupKind.AUTH: places["auth"],
        GroupKind.CAUSE: verdicts["cause"],
    }
    return np.concatenate([_count(kind, states, column) for kind, column in columns.items()])


def _count(kind: GroupKind, states: npt.NDArray[np.uint32], instances: npt.NDArray[np.uint16]) -> Rows:
    keys = instances.astype(np.uint32) * len(State) + states
    counts = np.bincount(keys)
    used_keys = np.flatnonzero(counts)
    rows = np.zeros(len(used_keys), GROUP_COUNT)
    rows["kind"], rows["instance"], rows["state"] = kind, used_keys // len(State), used_keys % len(State)
    rows["count"] = counts[used_keys]
    return rows
