"""Events of a fleet's record, the only messages that go to browsers: docs/reference/live.md, "Events"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fleet.vocabulary.verdicts import State


class AgentDelta(NamedTuple):
    """New state and place of one agent."""

    #: Agent index; past the end of the snapshot: a new agent.
    agent: int
    state: State
    #: Instance indices, as in the columns PLACE and VERDICT: proxy and auth, and the cause of the state.
    proxy: int
    auth: int
    cause: int


@dataclass(frozen=True, slots=True)
class StateDelta:
    """Changes of states and places in a round: the previous snapshot with `changes` is the next.

    One per round with changes.
    """

    cluster: str
    epoch: str
    #: Sequence number of the previous event + 1.
    seq: int
    #: When the round was concluded, seconds since the epoch.
    as_of: float
    changes: tuple[AgentDelta, ...]
    #: Number of agents by state after the changes; every state is present.
    counts: Mapping[State, int]


@dataclass(frozen=True, slots=True)
class LayoutChanged:
    """Agents or homes were added, so the layout has a new version."""

    cluster: str
    epoch: str
    layout_version: str


@dataclass(frozen=True, slots=True)
class InstancesChanged:
    """The state of an instance changed. A hint to reload, without a sequence number."""

    cluster: str


@dataclass(frozen=True, slots=True)
class IncidentsChanged:
    """Incidents opened, resolved or changed severity. A hint to reload, with a text to announce."""

    cluster: str
    #: Number of open incidents by severity.
    open_counts: Mapping[str, int]
    #: Announcement in one line; empty: only the numbers changed.
    text: str = ""
    #: `critical`, `warning`, `info` or `resolved`.
    severity: str = ""
    #: Number of the incident.
    number: int | None = None


Event = StateDelta | LayoutChanged | InstancesChanged | IncidentsChanged
