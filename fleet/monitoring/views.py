"""What `state.reader` answers: the record with age applied. Pages, API, metrics and sockets show nothing else.

Times are seconds since the epoch, ages are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fleet.monitoring.agent_report import AgentReportResponse
from fleet.monitoring.evidence import AgentEvidence, FleetEvidence, ReconnectMode
from fleet.protocol.destination.health import DrainRequest, Health
from fleet.vocabulary.instances import InstanceFacts, InstanceState
from fleet.vocabulary.verdicts import State, Verdict


@dataclass(frozen=True, slots=True)
class Summary:
    """The fleet in ten numbers. `counts` has every state, also those with none."""

    cluster: str
    #: When the newest round concluded; None before the first one.
    as_of: float | None
    #: Seconds between rounds.
    interval: float
    #: The newest round is too old: every count but `retired` reads as unknown.
    stale: bool
    counts: Mapping[State, int]
    agents: int
    instances: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One byte (State) per agent in layout order, and the place in the event stream where it was taken."""

    cluster: str
    #: Changes when the record was lost or rebuilt: nothing of an older epoch means anything.
    epoch: str
    #: Sequence number of the last event this snapshot already holds.
    seq: int
    layout_version: str
    as_of: float | None
    interval: float
    stale: bool
    states: bytes
    counts: Mapping[State, int]


@dataclass(frozen=True, slots=True)
class StreamHeader:
    """Where the event stream of a cluster is, without the states: cheap enough for every tick of a socket."""

    cluster: str
    epoch: str
    #: Sequence number of the newest event.
    seq: int
    as_of: float | None
    interval: float
    stale: bool
    layout_version: str
    counts: Mapping[State, int]
    agents: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Who stands where on the map. Agents never move: the index is for ever, the block is the home proxy."""

    cluster: str
    version: str
    #: By agent index.
    ids: tuple[str, ...]
    names: tuple[str, ...]
    #: By agent index: the index in `blocks`, or -1 for an agent that never had a tunnel.
    homes: tuple[int, ...]
    #: (instance id, name) of the home proxies, in the order in which they were first recorded.
    blocks: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class InstanceView:
    """One auth or proxy with what follows from its facts."""

    facts: InstanceFacts
    state: InstanceState
    #: One sentence for a person: why it is not ok; empty when it is.
    sentence: str
    #: Live tunnels it reports (proxies), or agents that are connected to it (auths), stranded ones among them.
    agents: int
    #: Agents of its, by verdict: those it is the home or the auth of.
    counts: Mapping[State, int]
    #: What repeated polls make of it, since when, and in one sentence why; that is empty when all is well.
    health: Health = Health.UNKNOWN
    health_since: float | None = None
    health_sentence: str = ""
    #: It takes nobody new.
    drain_request: DrainRequest | None = None
    #: The list of instances, which has its heartbeat, was answered lately.
    is_list_fresh: bool = True
    #: What a sick proxy suffers from when that is not itself: id of its auth, or `backend/CLUSTER`.
    cause: str = ""
    #: Names of the proxies that heartbeat through this auth.
    proxies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentView:
    """One agent in a list."""

    index: int
    id: str
    name: str
    state: State
    verdict: Verdict
    #: When the present state began.
    since: float | None
    #: Instance ids.
    auth: str | None
    proxies: tuple[str, ...]
    home: str | None
    #: When its heartbeat was written, and when its resource expires.
    heartbeat_at: float | None
    expires_at: float | None
    #: The policy of its auth connection, as its heartbeat has it: mode, whether it checks the health of its auth, and
    #: when it read the policy. Of an agent without a heartbeat nothing is known.
    mode: ReconnectMode = ReconnectMode.UNKNOWN
    health_check: bool | None = None
    policy_read_at: float | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """One agent with everything its verdict rests on."""

    view: AgentView
    evidence: AgentEvidence
    #: The instances that the evidence names, by index.
    instances: Mapping[int, InstanceView]
    #: When each tunnel was opened, by instance index of the proxy; one that has gone meanwhile is not in it.
    opened_at: Mapping[int, float] = field(default_factory=dict)
    #: What came of asking the agent through its tunnel; None when that was not done lately.
    report_response: AgentReportResponse | None = None


@dataclass(frozen=True, slots=True)
class FleetTable:
    """All columns of a cluster at one moment, age applied; lists and filters are vector operations over it."""

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
    #: All tunnels: parallel arrays of agent index and instance index of the proxy.
    tunnel_agents: npt.NDArray[np.uint32]
    tunnel_proxies: npt.NDArray[np.uint16]
    #: I and F at that moment, to put one agent's verdict into words.
    fleet: FleetEvidence
