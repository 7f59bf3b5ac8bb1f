"""Results of `state.reader`: the record with the age of the data applied, for pages, API, metrics and sockets.

Times are seconds since the epoch, ages are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fleet.monitoring.agent_attributes import AttributeTable
from fleet.monitoring.agent_report import AgentReportResponse
from fleet.monitoring.evidence import AgentEvidence, FleetEvidence, ReconnectMode
from fleet.protocol.destination.health import DrainRequest, Health
from fleet.vocabulary.instances import InstanceFacts, InstanceState
from fleet.vocabulary.verdicts import State, Verdict


@dataclass(frozen=True, slots=True)
class Summary:
    """Number of agents by state; `counts` has every state."""

    cluster: str
    #: When the newest round was concluded; None before the first one.
    as_of: float | None
    #: Seconds between rounds.
    interval: float
    #: The newest round is too old: agents of every state but `retired` count as unknown.
    stale: bool
    counts: Mapping[State, int]
    agent_count: int
    instance_count: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """States and places of all agents in layout order, with the place in the event stream."""

    cluster: str
    #: Changes when the record is lost or rebuilt: data of an older epoch is invalid.
    epoch: str
    #: Sequence number of the last event that this snapshot includes.
    seq: int
    layout_version: str
    as_of: float | None
    interval: float
    stale: bool
    #: One byte per agent: its state.
    states: bytes
    #: Two bytes per agent, little-endian: instance indices of its proxy and its auth (columns.PLACE), and the cause.
    proxies: bytes
    auths: bytes
    causes: bytes
    counts: Mapping[State, int]


@dataclass(frozen=True, slots=True)
class StreamHeader:
    """Place in the event stream of a cluster, without the states: cheap enough for every tick of a socket."""

    cluster: str
    epoch: str
    #: Sequence number of the newest event.
    seq: int
    as_of: float | None
    interval: float
    stale: bool
    layout_version: str
    counts: Mapping[State, int]
    agent_count: int


@dataclass(frozen=True, slots=True)
class InstanceView:
    """An auth or proxy with the conclusions from its facts."""

    facts: InstanceFacts
    state: InstanceState
    #: Why the instance is not OK, as a sentence; empty when it is.
    sentence: str
    #: Number of live tunnels (proxies), or of connected agents, stranded ones included (auths).
    agent_count: int
    #: Number of its agents by state: agents with this home proxy or this auth.
    counts: Mapping[State, int]
    #: Destination health after repeated polls, its start, and the reason as a sentence; empty when healthy.
    health: Health = Health.UNKNOWN
    health_since: float | None = None
    health_sentence: str = ""
    #: Reason and start of a drain; None when the instance accepts new connections.
    drain_request: DrainRequest | None = None
    #: The list of instances, which has its heartbeat, was read recently.
    is_list_fresh: bool = True
    #: Cause of a failing proxy when that is not the proxy itself: id of its auth, or `backend/CLUSTER`; or empty.
    cause: str = ""
    #: Names of the proxies that heartbeat through this auth.
    proxies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentView:
    """An agent with its state."""

    index: int
    id: str
    name: str
    state: State
    verdict: Verdict
    #: When the present state began.
    since: float | None
    #: Instance ids of the auth, the proxies with tunnels, and the home proxy.
    auth: str | None
    proxies: tuple[str, ...]
    home_proxy: str | None
    #: When the last heartbeat was written, and when the resource expires.
    heartbeat_at: float | None
    expires_at: float | None
    #: Policy of the auth connection in the last heartbeat: mode, whether the agent checks the health of its auth, and
    #: when it read the policy. Unknown without a heartbeat.
    mode: ReconnectMode = ReconnectMode.UNKNOWN
    health_check: bool | None = None
    policy_read_at: float | None = None
    #: Version and labels in the last heartbeat.
    version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """An agent with the data that its state was derived from."""

    view: AgentView
    evidence: AgentEvidence
    #: The instances that the evidence names, by index.
    instances: Mapping[int, InstanceView]
    #: When each tunnel was opened, by instance index of the proxy; without tunnels that have closed meanwhile.
    opened_at_by_proxy: Mapping[int, float] = field(default_factory=dict)
    #: Result of asking the agent through its tunnel; None when it was not asked recently.
    agent_report_response: AgentReportResponse | None = None


@dataclass(frozen=True, slots=True)
class FleetTable:
    """All columns of a cluster at one time, with the age of the data applied, for lists and filters."""

    cluster: str
    epoch: str
    seq: int
    as_of: float | None
    stale: bool
    ids: tuple[str, ...]
    names: tuple[str, ...]
    instances: Mapping[int, InstanceView]
    #: `columns.HEARTBEAT`, `columns.MEMORY` and `columns.VERDICT`, one row per agent; VERDICT is aged already.
    heartbeats: npt.NDArray[np.void]
    memory: npt.NDArray[np.void]
    verdicts: npt.NDArray[np.void]
    #: `columns.PLACE`, as of the round of the verdicts; the other columns may be newer.
    places: npt.NDArray[np.void]
    #: All tunnels: parallel arrays of agent index and instance index of the proxy.
    tunnel_agents: npt.NDArray[np.uint32]
    tunnel_proxies: npt.NDArray[np.uint16]
    #: Evidence I and F at that time, for the sentences of verdicts.
    fleet: FleetEvidence
    #: Versions and labels of agents; they may be newer than the verdicts.
    attributes: AttributeTable = field(default_factory=AttributeTable)
    #: Made from the history: without heartbeats, and without the evidence for states.
    is_past: bool = False
