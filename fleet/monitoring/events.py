"""What happened to a fleet's record, for whoever watches it: docs/flow.md, "Events". Nothing else goes to browsers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.vocabulary.verdicts import State


@dataclass(frozen=True, slots=True)
class StateDelta:
    """Exactly one per round that changed any state: the snapshot before it, with `changes`, is the snapshot after."""

    cluster: str
    epoch: str
    #: That of the event before it + 1.
    seq: int
    #: When the round concluded, seconds since the epoch.
    as_of: float
    #: (agent index, new state); an index past the end of the snapshot is a new agent.
    changes: tuple[tuple[int, State], ...]
    #: Every state, after the changes.
    counts: Mapping[State, int]


@dataclass(frozen=True, slots=True)
class LayoutChanged:
    """Agents or homes were added: the layout has another version."""

    cluster: str
    epoch: str
    layout_version: str


@dataclass(frozen=True, slots=True)
class InstancesChanged:
    """An instance has another state. A hint to look again, without a place in the sequence."""

    cluster: str


@dataclass(frozen=True, slots=True)
class IncidentsChanged:
    """Incidents began, ended, or are not as bad as they were. A hint to look again, with what to say."""

    cluster: str
    #: Open incidents by severity.
    open: Mapping[str, int]
    #: One line for people; empty: only the numbers changed.
    text: str = ""
    #: `critical`, `warning`, `info` or `resolved`.
    severity: str = ""
    #: The incident it is about.
    number: int | None = None


Event = StateDelta | LayoutChanged | InstancesChanged | IncidentsChanged
