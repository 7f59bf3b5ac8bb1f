"""What the frame says of instances, as numpy tables by instance index: the vectorised twin looks things up here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleet.monitoring.classify.dependencies import Dependency
from fleet.monitoring.classify.standings import Standing
from fleet.vocabulary import instances

#: One entry for every u2, `NO_INSTANCE` too: lookups need no bounds check.
SIZE = 1 << 16

SICK = 1
LIVE = 2
UNREAD = 4
DESIRED = 8
FEED_FRESH = 16
HOLDS = 32
#: Silent or gone: it passes nothing on.
CUT_OFF = 64
DEGRADED = 128


@dataclass(frozen=True)
class Tables:
    """By instance index. An index nobody has heard of is unknown, unread and not sick."""

    flags: npt.NDArray[np.uint8]
    states: npt.NDArray[np.uint8]
    #: When the sickness began, and when the resource expires; 0: not sick, never seen.
    since: npt.NDArray[np.float64]
    expires_at: npt.NDArray[np.float64]
    #: What the instance suffers from: itself, or its dependency. Of what is no instance: that.
    causes: npt.NDArray[np.uint16]
    #: When a proxy heartbeats through another auth; 0: it suffers from itself, or has no other.
    moves_at: npt.NDArray[np.float64]

    @classmethod
    def of(cls, standings: Mapping[int, Standing], dependencies: Mapping[int, Dependency]) -> Tables:
        """Spread standings and dependencies over tables."""
        flags = np.full(SIZE, UNREAD, np.uint8)
        causes = np.arange(SIZE, dtype=np.uint16)
        tables = cls(flags, np.zeros(SIZE, np.uint8), np.zeros(SIZE), np.zeros(SIZE), causes, np.zeros(SIZE))
        for index, standing in standings.items():
            flags[index] = _flags(standing)
            tables.states[index] = standing.state
            tables.since[index] = standing.since
            tables.expires_at[index] = standing.facts.expires_at or 0.0
        for index, dependency in dependencies.items():
            causes[index] = dependency.cause
            tables.moves_at[index] = dependency.moves_at or 0.0
        return tables


def _flags(standing: Standing) -> int:
    cut_off = standing.state in instances.CUT_OFF
    return (
        SICK * standing.sick
        | LIVE * standing.live
        | UNREAD * standing.unread
        | DESIRED * standing.desired
        | FEED_FRESH * standing.feed_fresh
        | HOLDS * standing.holds
        | CUT_OFF * cut_off
        | DEGRADED * standing.degraded
    )
