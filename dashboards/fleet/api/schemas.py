"""Responses of the API about the fleet. Times are ISO 8601 in UTC; the names of ages and intervals end in the unit.

The string below a field is its description in the OpenAPI document.
"""

from __future__ import annotations

from datetime import datetime

from dashboards.shared.api.parameters import Schema


class Problem(Schema):
    """An error."""

    detail: str
    """What happened, why if that is known, and what to do."""


class DatedResponse(Schema):
    """Cluster and age of the data."""

    cluster: str
    """Id of the cluster."""
    as_of: datetime | None
    """When Refloat last finished polling the whole fleet; null before the first time."""
    age_ms: int | None
    """Age of the data in milliseconds; null before the first poll."""
    is_stale: bool
    """Whether the data is too old to use. Then every state except `retired` is `unknown`."""


class HeadlineCauseItem(Schema):
    """A cause that the headline names."""

    key: str
    """Key of the cause: `auth/<id>`, `proxy/<id>`, `backend/<cluster>`, `proxy-group/<name>` …"""
    name: str
    """Name of the cause: `auth-1`."""
    description: str
    """What failed, as a clause: `auth-1 lost its backend`."""
    since: datetime | None
    """When the cause began to fail; null if that is not known."""
    counts: dict[str, int]
    """Number of its agents by state; only states that are not healthy and have agents."""
    incident: int | None
    """Number of its open incident; null without one."""


class HeadlineActionItem(Schema):
    """An action that the headline offers."""

    label: str
    """What to do: `Reconnect agents of auth-1`."""
    path: str
    """Path of its page in the console."""
    permission: str
    """Permission that the page needs: `view_fleet`, `act_on_fleet` or `change_config`."""


class HeadlineChangeItem(Schema):
    """A change that Refloat carries out, or that ended in the last 10 min."""

    number: int
    """Number of the change."""
    kind: str
    """What it is: `campaign`, `rollout` or `config change`."""
    text: str
    """Who started it and when, what it does, and how far it is, as a sentence."""
    is_running: bool
    """Whether it is in progress, or paused."""
    total_count: int
    """Agents of a campaign or instances of a rollout; 0 if not known."""
    finished_count: int
    """Number of those that have succeeded or failed."""
    path: str
    """Path of its page in the console."""
    instances: dict[str, str]
    """What happens with each instance on which it acts now, by name: `restarting`."""


class HeadlineItem(Schema):
    """What is wrong, whom it affects, since when, whether it recovers automatically, and what helps."""

    state: str
    """Most urgent state of agents; `healthy` if nothing is wrong."""
    count: int
    """Number of agents in this state; 0 if no agent is affected."""
    text: str
    """The headline: `67 agents stranded since 10:14 UTC because auth-1 lost its backend. No automatic recovery.`"""
    lead: str
    """The text without the causes that follow the first one, as pages show it."""
    more_count: int
    """Number of causes after the first one; the list of incidents shows them."""
    tab_title: str
    """Symbol and number for titles: `✖67`; empty if nothing is wrong."""
    summary: str
    """First part of the text: how many agents, since when and why."""
    recovery: str
    """Part of the text about the recovery; empty without affected agents."""
    activity: str
    """Part of the text about changes in progress, and about what ended in the last 10 min; empty without any."""
    since: datetime | None
    """When the first agent entered `state`, such as stranded; without agents, when the first cause began to fail."""
    recovers_at: datetime | None
    """Latest time of automatic recovery from the first cause; null when none is predicted."""
    strands_at: datetime | None
    """When the first agent at risk becomes stranded; null without a deadline, or if the cause has stranded agents."""
    causes: list[HeadlineCauseItem]
    """Causes, the one with the most agents first."""
    actions: list[HeadlineActionItem]
    """Actions that help the agents that are affected now, or end the failure if they recover automatically."""
    preventions: list[HeadlineActionItem]
    """Actions that only prevent the next failure: agents notice them when they connect."""
    incidents: list[int]
    """Numbers of the open incidents of the causes."""
    changes: list[HeadlineChangeItem]
    """Changes in progress, and those that ended in the last 10 min."""
    links: list[HeadlineActionItem]
    """Pages of these changes, and of incidents that ended in the last 10 min."""


class SummaryResponse(DatedResponse):
    """Number of agents by state, and the headline of the same round."""

    interval_ms: int
    """Interval between two polls of the whole fleet in milliseconds."""
    agent_count: int
    """Number of agents."""
    instance_count: int
    """Number of auths and proxies."""
    counts: dict[str, int]
    """Number of agents by state; every state is present."""
    headline: HeadlineItem
    """What is wrong and what helps, as all pages show it."""


class InstanceRef(Schema):
    """Id and name of an instance."""

    id: str
    """Host UUID of the instance."""
    name: str
    """Name of the instance: `proxy-1`."""


class ProxyRef(InstanceRef):
    """A proxy that an agent has a tunnel to."""

    group: str
    """Proxy group; empty when the proxy reports none."""
    generation: int
    """Generation of the proxy in its group; 0 when the proxy reports none."""


class AgentItem(Schema):
    """An agent with its state."""

    id: str
    """Host UUID of the agent."""
    name: str
    """Hostname of the agent."""
    state: str
    """State of the agent: `healthy`, `degraded`, `at_risk`, `stranded`, `offline`, `working` (reconnecting),
    `excess` (excess tunnels), `never` (never connected), `retired` or `unknown`.
    """
    reason: str
    """Reason code of the state: `auth-unhealthy`, `no-tunnel`; empty when nothing is wrong."""
    explanation: str
    """Explanation of the state in one or two sentences, with names and without times."""
    cause: str
    """Id of the instance at fault, or `backend/CLUSTER`; empty without one."""
    recovery: str
    """Predicted recovery: `not-needed`, `by-itself` (automatic), `only-if-cause-recovers` or `unclear`."""
    recovers_at: datetime | None
    """Latest time of automatic recovery; null when none is predicted."""
    strands_at: datetime | None
    """When an agent at risk becomes stranded; null without a deadline."""
    since: datetime | None
    """Since when the agent has had this state."""
    auth: InstanceRef | None
    """Auth that received the agent's last heartbeat; null when unknown."""
    mode: str
    """Reconnect mode of the auth connection, from the last heartbeat: `reconnect`, `pick_first` or `unknown`."""
    health_check: bool | None
    """Whether the agent checks the health of its auth; null without a heartbeat."""
    policy_read_at: datetime | None
    """When the agent read that policy; null when the agent does not report it."""
    proxies: list[ProxyRef]
    """Proxies with a live tunnel to the agent."""
    home_proxy: InstanceRef | None
    """First proxy that the agent was seen on; null before its first tunnel."""
    version: str
    """Version in the agent's last heartbeat; empty when it reports none."""
    labels: dict[str, str]
    """Labels in the agent's last heartbeat: `{"env": "prod"}`."""
    heartbeat_at: datetime | None
    """When the last heartbeat was written; null without one."""
    expires_at: datetime | None
    """When the agent's heartbeat expires; null without a heartbeat."""


class AgentsResponse(DatedResponse):
    """One page of agents."""

    total_count: int
    """Number of agents that match the filters, on all pages."""
    next: str | None
    """Value of `cursor` for the next page; null on the last page."""
    agents: list[AgentItem]
    """Agents on this page."""


class AttemptItem(Schema):
    """One attempt to reach an instance."""

    at: datetime
    """When the attempt ended."""
    succeeded: bool
    """Whether the instance responded."""
    error: str
    """Why the attempt failed; empty after a success."""


class DrainItem(Schema):
    """A drain: the instance accepts no new connections."""

    reason: str
    """Why the instance drains, as it reports."""
    since: datetime
    """When Refloat first saw that the instance drains."""


class InstanceItem(Schema):
    """An auth or a proxy with its state."""

    id: str
    """Host UUID of the instance."""
    name: str
    """Name of the instance: `proxy-1`."""
    kind: str
    """Kind: `auth` or `proxy`."""
    state: str
    """State of the instance: `ok`, `silent` (not responding), `unhealthy`, `expired`, `gone` (deregistered) or
    `unknown`.
    """
    label: str
    """The state as pages show it, in the words of the headline: `lost its backend`."""
    explanation: str
    """Why the instance is not OK; empty when it is."""
    health: str
    """Destination health after repeated polls: `healthy`, `degraded`, `unhealthy` or `unknown`."""
    health_since: datetime | None
    """Since when the instance has had this destination health."""
    health_explanation: str
    """Why the destination health is `degraded` or `unhealthy`; empty otherwise."""
    drain: DrainItem | None
    """Reason and start of a drain; null when the instance accepts new connections."""
    is_drain_requested: bool
    """Whether the last request of an operator drained the instance, which may not report the drain yet."""
    cause: str
    """What a failing proxy fails because of, when that is not the proxy itself: the id of its auth, or
    `backend/CLUSTER`; otherwise empty.
    """
    heartbeat_auth: str
    """Of a proxy: id of the auth that received its last heartbeat; empty when the proxy writes its resource itself."""
    proxies: list[str]
    """Of an auth: names of the proxies that heartbeat through it."""
    degraded_reason: str | None
    """Why the instance reports itself as degraded; null when it does not."""
    address: str
    """Address of gRPC, `host:port`."""
    diag_address: str
    """Address of `/healthz`, `/readyz` and `/metrics`, `host:port`; empty when unknown."""
    version: str
    """Version that the instance reports."""
    group: str
    """Of a proxy: its group; empty when it reports none."""
    generation: int
    """Of a proxy: its generation in the group; 0 when it reports none."""
    region: str
    """Region that the instance reports; empty when it reports none."""
    ttl_seconds: float | None
    """Time to live of the instance's resource in seconds; null when the resource was never seen."""
    expires_at: datetime | None
    """When the instance's resource expires; null when the resource was never seen."""
    serving: str | None
    """Last status of grpc.health.v1: `SERVING`, `NOT_SERVING`, `SERVICE_UNKNOWN` or `UNKNOWN`; null without a
    response.
    """
    readyz: int | None
    """Last HTTP status code of `/readyz`; null without a response."""
    connection_counts: dict[str, int]
    """Connections that the instance counts without naming the agents, by type such as `node`: tunnels of a proxy,
    connected resources of an auth. Empty if it reports none.
    """
    missing_tunnel_count: int | None
    """SSH tunnels that a proxy expects and does not have; null if it does not report them."""
    counted_at: datetime | None
    """When the instance reported these counts; null without any."""
    counts_text: str
    """What the counts say, as a sentence, such as `3 of 400 SSH tunnels are missing at proxy-2.`; often empty."""
    attempts: list[AttemptItem]
    """Last two attempts to reach the instance, the newest first."""
    agent_count: int
    """Of a proxy: number of live tunnels. Of an auth: number of agents connected to it, stranded ones included."""
    counts: dict[str, int]
    """Number of its agents by state; states without agents are left out."""


class InstancesResponse(DatedResponse):
    """All auths and proxies that were ever seen."""

    instances: list[InstanceItem]
    """Auths and proxies, deregistered ones included."""


class HeartbeatItem(Schema):
    """An agent's resource, and the policy that the agent reports in it."""

    auth: InstanceRef | None
    """Auth that received the heartbeat."""
    via_proxy: InstanceRef | None
    """Proxy that the agent reaches the auth through; null when it connects directly."""
    expires_at: datetime | None
    """When the agent's heartbeat expires."""
    ttl_seconds: float
    """Time until a heartbeat of the agent expires, in seconds."""
    mode: str
    """Reconnect mode of the auth connection: `reconnect`, `pick_first` or `unknown`."""
    health_check: bool
    """Whether the agent checks the health of its auth."""
    policy_read_at: datetime | None
    """When the agent read that policy; null when the agent does not report it."""
    desired_count: int
    """Desired number of tunnels; 0: one to every proxy."""
    claimed_count: int
    """Number of proxies that the agent reports a tunnel to."""
    tracked_count: int
    """Number of unexpired proxies that the agent knows."""


class TunnelItem(InstanceRef):
    """A proxy that reports a tunnel of an agent."""

    opened_at: datetime | None
    """When the tunnel was opened, as the proxy reports; null when the tunnel has just closed."""


class EvidenceItem(Schema):
    """Data that an agent's state was derived from."""

    heartbeat: HeartbeatItem | None
    """Last heartbeat; null without one."""
    tunnels: list[TunnelItem]
    """Tunnels in the newest reports of the proxies."""
    last_proxies: list[InstanceRef]
    """Proxies that the agent was last seen on, the newest first."""
    last_auth: InstanceRef | None
    """Auth that received the last heartbeat."""
    is_retired: bool
    """Whether an operator retired the agent."""
    had_tunnel: bool
    """Whether the agent ever had a tunnel."""
    reconnecting_until: datetime | None
    """When the reconnect that Refloat requested times out; null without one."""


class ReportedProxyItem(InstanceRef):
    """A proxy that an agent knows, or has a tunnel to."""

    group: str
    """Proxy group; empty when the proxy reports none."""
    generation: int
    """Generation of the proxy in its group; 0 when it reports none."""
    is_desired: bool
    """Whether the agent wants a tunnel to the proxy."""
    is_claimed: bool
    """Whether the agent has a tunnel to the proxy."""
    opened_at: datetime | None
    """When that tunnel was opened; null without one."""
    sessions: int
    """Number of user connections on that tunnel."""
    is_retired: bool
    """Whether that tunnel closes when its last user connection ends."""
    is_draining: bool
    """Whether the proxy accepts no new tunnels."""
    is_leaving: bool
    """Whether the agent is closing its tunnel to the proxy."""
    reconnect_requested: bool
    """Whether the proxy asked the agent to reconnect."""
    expires_at: datetime | None
    """When the agent forgets the proxy, unless it is announced again."""


class AuthReconnectItem(Schema):
    """Settings of an agent's auth reconnects."""

    initial_delay_seconds: float | None
    """Longest wait in seconds from an unhealthy auth to the first attempt at another; null: 2 s to 3 s, as in
    Teleport.
    """
    drain_timeout_seconds: float | None
    """Seconds after which calls on the previous connection are cancelled; null: never."""
    interval_seconds: float | None
    """Interval in seconds between two moves to a new connection; null: never."""


class AgentReportItem(Schema):
    """An agent's report about itself, read through its tunnel."""

    requested_at: datetime | None
    """When the report was requested."""
    via_proxy: InstanceRef | None
    """Proxy whose tunnel carried the request."""
    error: str
    """Why the agent did not respond; empty when it did."""
    version: str
    """Version that the agent reports."""
    desired_count: int
    """Desired number of tunnels; 0: one to every proxy."""
    dials_in_progress: int
    """Number of dials in progress."""
    services: list[str]
    """Services that the agent offers."""
    proxies: list[ReportedProxyItem]
    """Proxies that the agent knows or has a tunnel to."""
    auth_reconnect: AuthReconnectItem | None
    """Settings of the agent's auth reconnects; null when the agent does not report them."""


class AgentResponse(AgentItem):
    """One agent with the data that its state was derived from."""

    cluster: str
    """Id of the cluster."""
    evidence: EvidenceItem
    """Data that the state was derived from."""
    report: AgentReportItem | None
    """The agent's own report, read through its tunnel; null when it was not read recently. Refloat reads the
    reports of agents that are not healthy, and of a sample of healthy agents.
    """
    instances: list[InstanceItem]
    """Instances that the evidence names."""


class VersionResponse(Schema):
    """The version of the console."""

    version: str
    """Version of Refloat, such as `1.2.0`."""
