"""The polled services of a simulated fleet, as real auths and proxies serve them. docs/reference/simulated-fleet.md.

fleet.v1.AgentFeed and TunnelFeed (incremental by epoch and revision), AgentStatus, teleport.presence.v1.PresenceService
and teleport.grpcclientconfig.v1.ServiceConfigDiscoveryService.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc.aio
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from fleet.nodes.shared.agent_labels import labels_of_agent, version_of_agent
from fleet.nodes.simulation.fleet import InstanceModel, SimulatedFleet
from fleet.protocol.instance_labels import DIAG_LABEL, GENERATION_LABEL, GROUP_ID_LABEL, TTL_LABEL
from fleet.vocabulary.instances import InstanceKind
from fleet.wire import (
    agent_status_pb2,
    agent_status_pb2_grpc,
    fleet_pb2,
    fleet_pb2_grpc,
    grpcclientconfig_pb2,
    grpcclientconfig_pb2_grpc,
    presence_pb2,
    presence_pb2_grpc,
    types_pb2,
)

#: Entries per response if the caller sets no limit: about 500 KB, far below gRPC's 4 MB.
_DEFAULT_PAGE_SIZE = 2000
_MAX_PAGE_SIZE = 10_000
#: Instances per page of a presence list.
_SERVERS_PAGE_SIZE = 200
_VERSION = "18.0.0-simulated"
#: Labels and versions of agents, which take them in turn.
_AGENT_LABELS = (
    *(("role", "web"), ("role", "db")),
    *(("env", "prod"), ("env", "prod"), ("env", "staging")),
    *(("site", "berlin"), ("site", "lisbon"), ("site", "oslo")),
)
_AGENT_VERSIONS = (*("18.2.1",) * 6, *("18.2.0",) * 3, "17.5.4")

Clock = Callable[[], float]
#: (gRPC address, diag address) of every instance of the simulation, by name.
Directory = Mapping[str, tuple[str, str]]
Context = grpc.aio.ServicerContext[Any, Any]


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))


class SimulatedAgentFeed(fleet_pb2_grpc.AgentFeedServicer):
    """fleet.v1.AgentFeed: every auth serves the same list, under the same epoch."""

    def __init__(self, fleet: SimulatedFleet, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock

    @override
    async def ListAgents(
        self, request: fleet_pb2.ListAgentsRequest, context: Context
    ) -> fleet_pb2.ListAgentsResponse:
        """Return the agents that changed since the caller's revision, or all if its epoch is another."""
        fleet, now = self._fleet, self._clock()
        is_known_revision = request.epoch == fleet.epoch and 0 < request.since_revision <= fleet.revision
        since_revision = request.since_revision if is_known_revision else 0
        agents, has_more = fleet.list_agents_since(
            since_revision, now, min(request.limit or _DEFAULT_PAGE_SIZE, _MAX_PAGE_SIZE)
        )
        return fleet_pb2.ListAgentsResponse(
            epoch=fleet.epoch,
            revision=int(fleet.revisions[agents[-1]]) if has_more else fleet.revision,
            full=not is_known_revision,
            more=has_more,
            agents=self._entries(agents, now),
        )

    def _entries(self, agents: npt.NDArray[np.int64], now: float) -> list[fleet_pb2.AgentEntry]:
        """Return the entries of agents. Plain lists: reading single numbers from arrays would double the cost."""
        fleet = self._fleet
        expires_at = fleet.expires_at[agents]
        return [
            self._entry(*row)
            for row in zip(
                agents.tolist(),
                fleet.auth_by_agent[agents].tolist(),
                fleet.reconnect_mask[agents].tolist(),
                np.maximum(0, expires_at - fleet.shape.agent_ttl - fleet.policy_read_at[agents]).tolist(),
                (expires_at - now).tolist(),
                strict=True,
            )
        ]

    def _entry(
        self, agent: int, auth: int, has_reconnect_policy: bool, read_age: float, expires_in: float
    ) -> fleet_pb2.AgentEntry:
        fleet = self._fleet
        auth_id = fleet.auths[auth].id
        policy = fleet_pb2.ClientPolicy(
            mode="reconnect" if has_reconnect_policy else "pick_first",
            health_check=has_reconnect_policy,
            read_age_ms=_milliseconds(read_age),
            auth_id=auth_id,
        )
        tracker = fleet_pb2.TrackerSummary(
            desired_count=fleet.shape.tunnels_per_agent,
            claimed=fleet.claimed_ids_of(agent),
            tracked=fleet.shape.proxies,
            ttl_seen_ms=_milliseconds(fleet.shape.instance_ttl),
        )
        resource = fleet_pb2.AgentResource(
            agent_id=fleet.ids[agent],
            name=fleet.names[agent],
            version=version_of_agent(_AGENT_VERSIONS, agent, _VERSION),
            labels=labels_of_agent(_AGENT_LABELS, agent),
            ttl_ms=_milliseconds(fleet.shape.agent_ttl),
            policy=policy,
            tracker=tracker,
        )
        return fleet_pb2.AgentEntry(agent=resource, auth_id=auth_id, expires_in_ms=_milliseconds(expires_in))


class SimulatedTunnelFeed(fleet_pb2_grpc.TunnelFeedServicer):
    """fleet.v1.TunnelFeed: the tunnels of one proxy."""

    def __init__(self, fleet: SimulatedFleet, proxy: InstanceModel, clock: Clock) -> None:
        self._fleet = fleet
        self._proxy = proxy
        self._clock = clock

    @override
    async def ListTunnels(
        self, request: fleet_pb2.ListTunnelsRequest, context: Context
    ) -> fleet_pb2.ListTunnelsResponse:
        """Return the tunnels that changed since the caller's revision, or all if its epoch is another."""
        proxy, now = self._proxy, self._clock()
        page = proxy.tunnels.since(
            request.epoch, request.since_revision, min(request.limit or _DEFAULT_PAGE_SIZE, _MAX_PAGE_SIZE)
        )
        return fleet_pb2.ListTunnelsResponse(
            epoch=page.epoch,
            revision=page.revision,
            full=page.full,
            more=page.more,
            tunnels=[
                fleet_pb2.TunnelEntry(
                    agent_id=self._fleet.ids[tunnel.agent],
                    agent_name=self._fleet.names[tunnel.agent],
                    open_for_ms=_milliseconds(now - tunnel.opened_at),
                )
                for tunnel in page.updates
            ],
            closed=page.removed_keys,
            proxy_id=proxy.id,
        )


class SimulatedAgentStatus(agent_status_pb2_grpc.AgentStatusServicer):
    """fleet.v1.AgentStatus: status documents of agents with a tunnel to one proxy."""

    def __init__(self, fleet: SimulatedFleet, proxy: InstanceModel, clock: Clock) -> None:
        self._fleet = fleet
        self._proxy = proxy
        self._clock = clock

    @override
    async def ReadAgentStatus(
        self, request: agent_status_pb2.ReadAgentStatusRequest, context: Context
    ) -> agent_status_pb2.ReadAgentStatusResponse:
        """Return the status of an agent that has a tunnel here."""
        tunnel = self._proxy.tunnels.get(request.agent_id)
        if tunnel is None:
            details = f"agent {request.agent_id!r} has no live tunnel to this proxy"
            await context.abort(grpc.StatusCode.NOT_FOUND, details)
        document = json.dumps(self._make_document(tunnel.agent))
        return agent_status_pb2.ReadAgentStatusResponse(document=document.encode())

    def _make_document(self, agent: int) -> dict[str, Any]:
        fleet, now = self._fleet, self._clock()
        present = fleet.filter_present(fleet.proxies, now)
        claimed_ids = fleet.claimed_ids_of(agent)
        return {
            "agent_id": fleet.ids[agent],
            "name": fleet.names[agent],
            "version": _VERSION,
            "tracker": {
                "desired_count": fleet.shape.tunnels_per_agent,
                "claimed_proxies": claimed_ids,
                "ttl_seen_ms": _milliseconds(fleet.shape.instance_ttl),
                "proxies": [
                    {
                        "proxy_id": proxy.id,
                        "group": "simulated",
                        "generation": 1,
                        "expires_in_ms": _milliseconds(proxy.expires_at - now),
                        "is_desired": True,
                    }
                    for proxy in present
                ],
            },
            "policy": {
                "mode": "reconnect" if fleet.reconnect_mask[agent] else "pick_first",
                "health_check": bool(fleet.reconnect_mask[agent]),
                "auth_id": fleet.auths[int(fleet.auth_by_agent[agent])].id,
                "read_age_ms": _milliseconds(now - float(fleet.policy_read_at[agent])),
            },
            "tunnels": [{"proxy_id": proxy} for proxy in claimed_ids],
            "services": [],
        }


class SimulatedPresence(presence_pb2_grpc.PresenceServiceServicer):
    """teleport.presence.v1.PresenceService: the instances that have not expired."""

    def __init__(self, fleet: SimulatedFleet, directory: Directory, clock: Clock) -> None:
        self._fleet = fleet
        self._directory = directory
        self._clock = clock

    @override
    async def ListAuthServers(
        self, request: presence_pb2.ListAuthServersRequest, context: Context
    ) -> presence_pb2.ListAuthServersResponse:
        """Return one page of the auths."""
        page, token = await self._list_page(self._fleet.auths, request.page_size, request.page_token, context)
        return presence_pb2.ListAuthServersResponse(servers=page, next_page_token=token)

    @override
    async def ListProxyServers(
        self, request: presence_pb2.ListProxyServersRequest, context: Context
    ) -> presence_pb2.ListProxyServersResponse:
        """Return one page of the proxies."""
        page, token = await self._list_page(
            self._fleet.proxies, request.page_size, request.page_token, context
        )
        return presence_pb2.ListProxyServersResponse(servers=page, next_page_token=token)

    async def _list_page(
        self, instances: Sequence[InstanceModel], size: int, token: str, context: Context
    ) -> tuple[list[types_pb2.ServerV2], str]:
        """Return one page. The token is the index of its first instance, so expiries do not shift the pages."""
        if token and not token.isdecimal():
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "page_token: invalid token")
        begin = int(token or 0)
        end = begin + (min(size, _SERVERS_PAGE_SIZE) if size > 0 else _SERVERS_PAGE_SIZE)
        present_instances = self._fleet.filter_present(instances[begin:end], self._clock())
        servers = [
            self._server_of(instance) for instance in present_instances if instance.name in self._directory
        ]
        return servers, str(end) if end < len(instances) else ""

    def _server_of(self, instance: InstanceModel) -> types_pb2.ServerV2:
        grpc_address, diag_address = self._directory[instance.name]
        metadata = types_pb2.Metadata(
            name=instance.id,
            namespace="default",
            labels={
                DIAG_LABEL: diag_address,
                TTL_LABEL: f"{self._fleet.shape.instance_ttl:g}s",
            },
        )
        if instance.kind is InstanceKind.PROXY:
            metadata.labels[GROUP_ID_LABEL] = "simulated"
            metadata.labels[GENERATION_LABEL] = "1"
        metadata.expires.FromMilliseconds(_milliseconds(instance.expires_at))
        return types_pb2.ServerV2(
            kind="proxy" if instance.kind is InstanceKind.PROXY else "auth_server",
            version="v2",
            metadata=metadata,
            spec=types_pb2.ServerSpecV2(addr=grpc_address, hostname=instance.name, version=_VERSION),
        )


class SimulatedServiceConfigDiscovery(grpcclientconfig_pb2_grpc.ServiceConfigDiscoveryServiceServicer):
    """The load balancing policy for new connections: reconnect, with health checks."""

    @override
    async def GetServiceConfig(
        self, request: grpcclientconfig_pb2.GetServiceConfigRequest, context: Context
    ) -> grpcclientconfig_pb2.GetServiceConfigResponse:
        policy = grpcclientconfig_pb2.TeleportPickHealthyConfig(mode="reconnect")
        return grpcclientconfig_pb2.GetServiceConfigResponse(
            config=grpcclientconfig_pb2.ServiceConfig(
                load_balancing_config=[grpcclientconfig_pb2.LoadBalancerConfig(teleport_pick_healthy=policy)],
                health_check_config=grpcclientconfig_pb2.HealthCheckConfig(service_name=""),
            )
        )
