"""The API's answers. Times are ISO 8601 in UTC; ages and intervals say their unit."""

from __future__ import annotations

from datetime import datetime

from ninja import Schema


class Problem(Schema):
    """What went wrong, as one sentence."""

    detail: str


class DatedResponse(Schema):
    """What every answer about a fleet says of its age."""

    cluster: str
    #: When the newest round concluded; null before the first one.
    as_of: datetime | None
    age_ms: int | None
    #: Too old: every state but `retired` reads as unknown.
    stale: bool


class SummaryAnswer(DatedResponse):
    """The fleet in ten numbers; every state is in `counts`."""

    interval_ms: int
    agents: int
    instances: int
    counts: dict[str, int]


class InstanceRef(Schema):
    """An instance, named."""

    id: str
    name: str


class ProxyRef(InstanceRef):
    """A proxy that an agent has a tunnel to; its group and generation, empty and 0 for a proxy that states none."""

    group: str
    generation: int


class AgentItem(Schema):
    """One agent in a list."""

    id: str
    name: str
    state: str
    #: A code; empty when nothing is wrong.
    reason: str
    sentence: str
    #: The instance at fault, or `backend/<cluster>`, or empty.
    cause: str
    #: Will it recover by itself: `not-needed`, `by-itself`, `only-if-cause-recovers`, `unclear`.
    recovery: str
    recovers_at: datetime | None
    strands_at: datetime | None
    since: datetime | None
    auth: InstanceRef | None
    #: The policy of its auth connection, as its heartbeat has it: `reconnect`, `pick_first`, or `unknown`; whether it
    #: checks the health of its auth; when it read the policy.
    mode: str
    health_check: bool | None
    policy_read_at: datetime | None
    proxies: list[ProxyRef]
    home: InstanceRef | None
    heartbeat_at: datetime | None
    expires_at: datetime | None


class AgentsAnswer(DatedResponse):
    """One page of agents; `next` is the `cursor` of the page after it, null on the last."""

    total: int
    next: str | None
    agents: list[AgentItem]


class AttemptItem(Schema):
    """One try to reach an instance."""

    at: datetime
    ok: bool
    error: str


class DrainingItem(Schema):
    """Somebody wants no new connections there."""

    reason: str
    #: Since when that was seen.
    since: datetime


class InstanceItem(Schema):
    """One auth or proxy."""

    id: str
    name: str
    kind: str
    state: str
    #: Why it is not ok; empty when it is.
    sentence: str
    #: What repeated polls make of it as a destination: `unknown`, `healthy`, `degraded`, `unhealthy`; since when, and
    #: why when it is not well.
    health: str
    health_since: datetime | None
    health_sentence: str
    draining: DrainingItem | None
    #: What a sick proxy suffers from when that is not itself: the id of the auth that it heartbeats through, or
    #: `backend/CLUSTER`; else empty.
    cause: str
    #: Of a proxy: id of the auth that took its newest heartbeat; empty when the proxy writes its resource itself.
    heartbeat_auth: str
    #: Of an auth: names of the proxies that heartbeat through it.
    proxies: list[str]
    #: Why it reports that it is degraded, so that others are preferred to it; null when it does not.
    degraded: str | None
    address: str
    diag_address: str
    version: str
    #: Of a proxy: its group and generation, empty and 0 when it states none.
    group: str
    generation: int
    #: Where it runs; empty when it does not say.
    region: str
    ttl_seconds: float | None
    expires_at: datetime | None
    #: The last answers of grpc.health.v1 and of `/readyz`.
    serving: str | None
    readyz: int | None
    attempts: list[AttemptItem]
    #: Live tunnels it reports (proxies), or agents that are connected to it (auths), stranded ones among them.
    agents: int
    #: Its agents by state, those with none left out.
    counts: dict[str, int]


class InstancesAnswer(DatedResponse):
    """All instances ever seen."""

    instances: list[InstanceItem]


class HeartbeatItem(Schema):
    """An agent's resource, and the policy it says it runs with."""

    auth: InstanceRef | None
    via_proxy: InstanceRef | None
    expires_at: datetime | None
    ttl_seconds: float
    mode: str
    health_check: bool
    policy_read_at: datetime | None
    #: Wanted tunnels; 0: one to every proxy.
    desired: int
    claimed: int
    tracked: int


class TunnelItem(InstanceRef):
    """A proxy that reports a tunnel of an agent."""

    #: By the proxy's word; null when it has just gone.
    opened_at: datetime | None


class EvidenceItem(Schema):
    """Everything seen of an agent."""

    heartbeat: HeartbeatItem | None
    tunnels: list[TunnelItem]
    last_proxies: list[InstanceRef]
    last_auth: InstanceRef | None
    retired: bool
    had_tunnel: bool
    working_until: datetime | None


class SaidProxyItem(InstanceRef):
    """A proxy that an agent knows, or holds a tunnel to."""

    group: str
    generation: int
    #: It wants a tunnel there.
    desired: bool
    #: It has one there, since then, with so many user connections; `retired`: it closes when those have ended.
    claimed: bool
    opened_at: datetime | None
    sessions: int
    retired: bool
    #: The proxy takes no new tunnels; the agent lets its tunnel go; the proxy asked it to.
    draining: bool
    leaving: bool
    advised: bool
    #: When it forgets the proxy, unless it hears of it again.
    expires_at: datetime | None


class AuthReconnectItem(Schema):
    """When an agent moves its auth connection, by its flags."""

    #: From an unhealthy auth to the first attempt at another, at most; null: 2 s to 3 s, as Teleport waits.
    first_wait_seconds: float | None
    #: RPCs on a connection that was left end by force after this; null: never.
    drain_timeout_seconds: float | None
    #: It moves to a new connection this often; null: never.
    every_seconds: float | None


class SaidItem(Schema):
    """What an agent said of itself when it was asked through its tunnel."""

    asked_at: datetime | None
    through: InstanceRef | None
    #: Why it did not answer; empty when it did.
    error: str
    version: str
    #: Wanted tunnels; 0: one to every proxy.
    desired: int
    #: Dials under way.
    dials: int
    services: list[str]
    proxies: list[SaidProxyItem]
    #: Null for an agent that does not say.
    auth_reconnect: AuthReconnectItem | None


class AgentAnswer(AgentItem):
    """One agent with everything its verdict rests on."""

    cluster: str
    evidence: EvidenceItem
    #: Null when it was not asked lately: who is not healthy is, and a sample of who is.
    said: SaidItem | None
    instances: list[InstanceItem]


class ClustersAnswer(Schema):
    """The clusters that may be asked for."""

    clusters: list[str]
