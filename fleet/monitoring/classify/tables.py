"""The frame's facts about instances as numpy tables by instance index, for the vectorised rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleet.monitoring.classify.dependencies import Dependency
from fleet.monitoring.classify.instance_conditions import InstanceCondition
from fleet.vocabulary import instances

#: One entry for every u2 value, also for `NO_INSTANCE`: lookups need no bounds check.
TABLE_SIZE = 1 << 16

SICK = 1
LIVE = 2
UNREAD = 4
DESIRED = 8
FEED_FRESH = 16
KEEPS_CONNECTIONS = 32
#: Silent or deregistered: the instance forwards no traffic.
CUT_OFF = 64
DEGRADED = 128


@dataclass(frozen=True)
class InstanceTables:
    """Tables by instance index. An index without an instance is unknown, unread and not failing."""

    flags: npt.NDArray[np.uint8]
    states: npt.NDArray[np.uint8]
    #: Start of the problem, and expiry of the resource; 0: no problem, never seen.
    since: npt.NDArray[np.float64]
    expires_at: npt.NDArray[np.float64]
    #: Cause of a problem: the instance itself or its dependency; an index without an instance is its own cause.
    causes: npt.NDArray[np.uint16]
    #: When a proxy heartbeats through another auth; 0: it has no dependency, or no other auth is available.
    moves_at: npt.NDArray[np.float64]

    @classmethod
    def of(
        cls, conditions: Mapping[int, InstanceCondition], dependencies: Mapping[int, Dependency]
    ) -> InstanceTables:
        """Return conditions and dependencies as tables."""
        flags = np.full(TABLE_SIZE, UNREAD, np.uint8)
        causes = np.arange(TABLE_SIZE, dtype=np.uint16)
        tables = cls(
            flags,
            np.zeros(TABLE_SIZE, np.uint8),
            np.zeros(TABLE_SIZE),
            np.zeros(TABLE_SIZE),
            causes,
            np.zeros(TABLE_SIZE),
        )
        for index, condition in conditions.items():
            flags[index] = _flags_of(condition)
            tables.states[index] = condition.state
            tables.since[index] = condition.since
            tables.expires_at[index] = condition.facts.expires_at or 0.0
        for index, dependency in dependencies.items():
            causes[index] = dependency.cause
            tables.moves_at[index] = dependency.moves_at or 0.0
        return tables


def _flags_of(condition: InstanceCondition) -> int:
    cut_off = condition.state in instances.CUT_OFF_STATES
    return (
        SICK * condition.is_sick
        | LIVE * condition.is_live
        | UNREAD * condition.is_unread
        | DESIRED * condition.is_desired
        | FEED_FRESH * condition.is_feed_fresh
        | KEEPS_CONNECTIONS * condition.keeps_connections
        | CUT_OFF * cut_off
        | DEGRADED * condition.is_degraded
    )
