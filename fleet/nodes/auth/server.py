"""`python -m fleet.nodes auth`: writes agents' heartbeats to the backend and serves presence lists from it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

import click
import grpc
import grpc.aio
from prometheus_client import Counter, Gauge
from typing_extensions import override

from fleet.nodes.auth import cluster_config
from fleet.nodes.auth.cluster_config import (
    ClusterConfigServicer,
    InitialNetworkingConfig,
    NetworkingConfigCache,
)
from fleet.nodes.auth.site import DEFAULT_HTTP, AuthSite, HTTPFlags
from fleet.nodes.shared import agent_admission, lifecycle, node_policies
from fleet.nodes.shared import flags as node_flags
from fleet.nodes.shared.addresses import ADDRESS, listen_option
from fleet.nodes.shared.instance import Instance, InstanceFlags, abort_unavailable
from fleet.nodes.shared.node_policies import NodePoliciesServicer, Policies
from fleet.nodes.shared.refusals import host_of
from fleet.nodes.shared.response_limiter import ResponseLimiter
from fleet.nodes.shared.tunnel_counts import TunnelCountCollector, TunnelCounts
from fleet.protocol.instance_labels import HTTP_LABEL
from fleet.protocol.policies import switches
from fleet.protocol.policies.switches import SwitchError
from fleet.protocol.recovery import announce, service_config
from fleet.protocol.recovery.service_config import ServiceConfig, ServiceConfigError
from fleet.transport import http_close, peers
from fleet.transport.backend import AuthOrProxy, BackendUnavailableError, UnreadableResourceError
from fleet.transport.networking_config import Message
from fleet.transport.service_config import AUTH_ID_METADATA
from fleet.wire import (
    fleet_pb2,
    fleet_pb2_grpc,
    grpcclientconfig_pb2,
    grpcclientconfig_pb2_grpc,
    presence_pb2,
    presence_pb2_grpc,
    types_pb2,
)

Context = grpc.aio.ServicerContext[Any, Any]

#: Page size of presence lists: the maximum, and the default (as in Teleport).
_MAX_PAGE_SIZE = 1000


class HeartbeatServicer:
    """fleet.v1.HeartbeatService. Method names here and below are those of the .proto."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        #: When each agent's resource expires, by the monotonic clock (agents that send heartbeats to this auth).
        self._expires_at: dict[str, float] = {}
        #: Desired and actual tunnels of each of these agents.
        self._tunnel_counts: dict[str, TunnelCounts] = {}
        self._refused_heartbeats = Counter(
            "refloat_heartbeats_refused",
            "Agents' heartbeats that were invalid or not allowed",
            registry=instance.registry,
        )
        instance.registry.register(TunnelCountCollector("refloat_auth_agents", self._current_tunnel_counts))
        self._config_cache = NetworkingConfigCache(instance)
        self._pushed_configs = Counter(
            "refloat_networking_config_pushes",
            "Networking configs sent to agents in responses to heartbeats",
            registry=instance.registry,
        )
        self._new_agent_counter = Counter(
            "heartbeat_connections_received",
            "Agents that began to send heartbeats to this auth",
            registry=instance.registry,
        )
        connected_resources = Gauge(
            "teleport_connected_resources",
            "Agents that send heartbeats to this auth",
            ["type"],
            registry=instance.registry,
        )
        connected_resources.labels("node").set_function(self._count_agents)

    async def Heartbeat(  # noqa: N802
        self, request: fleet_pb2.HeartbeatRequest, context: Context
    ) -> fleet_pb2.HeartbeatResponse:
        """Write the agent's resource to the backend."""
        agent = request.agent
        if refusal := agent_admission.heartbeat_refusal_of(agent):
            await self._refuse(context, agent, grpc.StatusCode.INVALID_ARGUMENT, refusal)
        caller, cluster = peers.caller_of(context), self._instance.flags.cluster
        if refusal := agent_admission.identity_refusal_of(caller, agent.agent_id, agent.name, cluster):
            await self._refuse(context, agent, grpc.StatusCode.PERMISSION_DENIED, refusal)
        try:
            with self._instance.measure_write("agent"):
                stored_heartbeat = await self._instance.backend.put_agent(agent, self._instance.flags.id)
        except BackendUnavailableError as error:
            await abort_unavailable(context, error)
        self._record_heartbeat(agent)
        return fleet_pb2.HeartbeatResponse(
            auth_id=self._instance.flags.id,
            revision=stored_heartbeat.revision,
            networking_config=await self._config_for(agent, stored_heartbeat.networking_revision),
            auth_reconnect_advisory=self._drain_advisory(),
        )

    async def Deregister(  # noqa: N802
        self, request: fleet_pb2.DeregisterRequest, context: Context
    ) -> fleet_pb2.DeregisterResponse:
        """Delete the agent's resource from the backend."""
        try:
            if not await self._may_deregister(request.agent_id, context):
                return fleet_pb2.DeregisterResponse()  # nothing to delete
            with self._instance.measure_write("agent"):
                await self._instance.backend.delete_agent(request.agent_id)
        except BackendUnavailableError as error:
            await abort_unavailable(context, error)
        self._expires_at.pop(request.agent_id, None)
        self._tunnel_counts.pop(request.agent_id, None)
        return fleet_pb2.DeregisterResponse()

    def _drain_advisory(self) -> fleet_pb2.AuthReconnectAdvisory | None:
        """Return the advice to connect to another auth while this one is draining; None otherwise.

        Agents receive it one by one within a heartbeat interval, so they do not all move at once.
        """
        drain, auth_id = self._instance.declared_status.draining_declaration, self._instance.flags.id
        if drain is None:
            return None
        return fleet_pb2.AuthReconnectAdvisory(
            advisory_id=f"drain-{int(drain.declared_at)}", reason=drain.reason, leave_auth_id=auth_id
        )

    async def _config_for(self, agent: fleet_pb2.AgentResource, revision: str) -> Message | None:
        """Return the networking config if the agent does not run with it yet; None otherwise."""
        if agent.networking_revision == revision:
            return None
        try:
            config = await self._config_cache.get(revision)
        except BackendUnavailableError:
            return None  # the heartbeat is written; the config follows with a later one
        if config is not None:
            self._pushed_configs.inc()
        return config

    async def _may_deregister(self, agent_id: str, context: Context) -> bool:
        """Return whether there is a resource to delete. Ends the RPC if the certificate is not the agent's.

        A certificate for many agents proves names, and a deregistration has only the id: the resource has both.
        """
        caller = peers.caller_of(context)
        if caller is None:
            return True
        entry = await self._instance.backend.get_agent(agent_id)
        if entry is None:
            return False
        name, cluster = entry.agent.name, self._instance.flags.cluster
        if refusal := agent_admission.identity_refusal_of(caller, agent_id, name, cluster):
            host = host_of(context.peer())
            self._instance.refusals.record("deregistration", host, f"agent {name[:40]!r} at {host}", refusal)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal)
        return True

    async def _refuse(
        self, context: Context, agent: fleet_pb2.AgentResource, code: grpc.StatusCode, reason: str
    ) -> Never:
        self._refused_heartbeats.inc()
        host = host_of(context.peer())
        self._instance.refusals.log_once(
            "heartbeat", f"{code.name} {host}", f"agent {agent.name[:40]!r} at {host}", reason
        )
        await context.abort(code, reason)

    def _record_heartbeat(self, agent: fleet_pb2.AgentResource) -> None:
        now = time.monotonic()
        if self._expires_at.get(agent.agent_id, 0.0) < now:
            self._new_agent_counter.inc()
        self._expires_at[agent.agent_id] = now + agent.ttl_ms / 1000
        self._tunnel_counts[agent.agent_id] = agent.tracker.desired_tunnel_count, len(agent.tracker.claimed)

    def _count_agents(self) -> float:
        now = time.monotonic()
        self._expires_at = {
            agent_id: expires_at for agent_id, expires_at in self._expires_at.items() if expires_at >= now
        }
        self._tunnel_counts = {agent_id: self._tunnel_counts[agent_id] for agent_id in self._expires_at}
        return float(len(self._expires_at))

    def _current_tunnel_counts(self) -> Iterable[TunnelCounts]:
        self._count_agents()
        return self._tunnel_counts.values()


class AgentFeedServicer:
    """fleet.v1.AgentFeed: the backend's list of agents. Every auth returns the same."""

    def __init__(self, instance: Instance) -> None:
        self._backend = instance.backend
        self._response_limiter = ResponseLimiter()

    async def ListAgents(  # noqa: N802
        self, request: fleet_pb2.ListAgentsRequest, context: Context
    ) -> fleet_pb2.ListAgentsResponse:
        """Return the agents that changed since a revision."""
        await self._response_limiter.admit(context)
        try:
            page = await self._backend.list_agents(request.epoch, request.since_revision, request.limit)
        except BackendUnavailableError as error:
            await abort_unavailable(context, error)
        return fleet_pb2.ListAgentsResponse(
            epoch=page.epoch,
            revision=page.revision,
            full=page.full,
            more=page.more,
            agents=page.agents,
            removed=page.removed_ids,
        )


class PresenceServicer(presence_pb2_grpc.PresenceServiceServicer):
    """teleport.presence.v1.PresenceService: instances in pages, ordered by name."""

    def __init__(self, instance: Instance) -> None:
        self._backend = instance.backend
        self._response_limiter = ResponseLimiter()

    @override
    async def ListAuthServers(
        self, request: presence_pb2.ListAuthServersRequest, context: Context
    ) -> presence_pb2.ListAuthServersResponse:
        """List the auths that have not expired."""
        servers, token = await self._list_page("auth", request.page_size, request.page_token, context)
        return presence_pb2.ListAuthServersResponse(servers=servers, next_page_token=token)

    @override
    async def ListProxyServers(
        self, request: presence_pb2.ListProxyServersRequest, context: Context
    ) -> presence_pb2.ListProxyServersResponse:
        """List the proxies that have not expired."""
        servers, token = await self._list_page("proxy", request.page_size, request.page_token, context)
        return presence_pb2.ListProxyServersResponse(servers=servers, next_page_token=token)

    @override
    async def ListRemoteClusters(
        self, request: presence_pb2.ListRemoteClustersRequest, context: Context
    ) -> presence_pb2.ListRemoteClustersResponse:
        """Refuse the call: an auth of Refloat has no leaf clusters. Without this gRPC would log a traceback."""
        del request
        return await context.abort(grpc.StatusCode.UNIMPLEMENTED, "a Refloat auth has no leaf clusters")

    async def _list_page(
        self, kind: AuthOrProxy, size: int, token: str, context: Context
    ) -> tuple[Sequence[types_pb2.ServerV2], str]:
        await self._response_limiter.admit(context)
        try:
            servers = await self._backend.list_instances(kind)
        except BackendUnavailableError as error:
            await abort_unavailable(context, error)
        # The token is the first name of the next page, so instances that come or go in between do not shift the pages.
        rest = [server for server in servers if server.metadata.name >= token]
        size = min(size, _MAX_PAGE_SIZE) if size > 0 else _MAX_PAGE_SIZE
        return rest[:size], rest[size].metadata.name if len(rest) > size else ""


class ServiceConfigServicer:
    """teleport.grpcclientconfig.v1.ServiceConfigDiscoveryService: one response, readable in both wire formats."""

    def __init__(self, config: ServiceConfig, auth_id: str) -> None:
        self._response = grpcclientconfig_pb2.GetServiceConfigResponse.FromString(
            service_config.encode(config)
        )
        self._metadata = ((AUTH_ID_METADATA, auth_id),)

    async def GetServiceConfig(  # noqa: N802
        self, request: grpcclientconfig_pb2.GetServiceConfigRequest, context: Context
    ) -> grpcclientconfig_pb2.GetServiceConfigResponse:
        """Return the load balancing policy for clients."""
        del request
        context.set_trailing_metadata(self._metadata)
        return self._response


class Auth:
    """An auth: its gRPC services, its HTTP port and its heartbeats."""

    def __init__(
        self,
        flags: InstanceFlags,
        client_config: ServiceConfig,
        initial_networking_config: InitialNetworkingConfig | None = None,
        http: HTTPFlags = DEFAULT_HTTP,
        policies: Policies | None = None,
        request_restart: Callable[[float | None], None] | None = None,
    ) -> None:
        """Raises NodeStartError if the configuration cannot be used."""
        self.instance = Instance("auth", flags)
        self._initial_networking_config = initial_networking_config
        self._http_site = AuthSite(self.instance, http)
        server = self.instance.server
        ClusterConfigServicer(self.instance).add_to(server)
        policies = policies or node_policies.load("auth", None, {})
        NodePoliciesServicer(self.instance, policies, request_restart).add_to(server)
        fleet_pb2_grpc.add_HeartbeatServiceServicer_to_server(HeartbeatServicer(self.instance), server)
        fleet_pb2_grpc.add_AgentFeedServicer_to_server(AgentFeedServicer(self.instance), server)
        presence_pb2_grpc.add_PresenceServiceServicer_to_server(PresenceServicer(self.instance), server)
        grpcclientconfig_pb2_grpc.add_ServiceConfigDiscoveryServiceServicer_to_server(
            ServiceConfigServicer(client_config, flags.id), server
        )

    async def start(self) -> None:
        """Listen, register and store the networking config. Raises NodeStartError."""
        try:
            await self.instance.start(self._serve_http)
        except lifecycle.NodeStartError:
            await self._http_site.stop()
            raise
        try:
            if self._initial_networking_config is not None:
                await self._initial_networking_config.store(self.instance.backend)
            with contextlib.suppress(
                UnreadableResourceError
            ):  # RPCs for the config report the error; everything else works
                await cluster_config.get_or_create(self.instance.backend)  # agents need a config
        except BackendUnavailableError as error:
            await self.stop()
            raise lifecycle.NodeStartError(str(error)) from error
        except lifecycle.NodeStartError:
            await self.stop()
            raise

    async def _serve_http(self) -> None:
        # Before the first heartbeat: proxies find the port in the resource of this auth.
        await self._http_site.start()
        self.instance.labels[HTTP_LABEL] = self._http_site.advertised_address

    @property
    def http_address(self) -> str:
        """host:port of the HTTP part of the auth API."""
        return self._http_site.address

    async def stop(self) -> None:
        """Deregister and stop."""
        await self.instance.deregister()
        await self._http_site.stop()
        await self.instance.stop()


async def serve(
    flags: InstanceFlags,
    policies: Policies,
    initial_networking_config: InitialNetworkingConfig | None = None,
    http: HTTPFlags = DEFAULT_HTTP,
) -> list[str] | None:
    """Run an auth until it must stop; return the command line of its next run, if it must restart.

    Raises NodeStartError.
    """
    environment = policies.merge_environment()
    try:
        client_config = service_config.from_environment(environment)
        close_unhealthy = switches.switch_from(environment, http_close.ENV_VARIABLE, default=False)
    except (ServiceConfigError, SwitchError) as error:
        raise lifecycle.NodeStartError(str(error)) from None
    shutdown = lifecycle.Shutdown()
    auth = Auth(
        flags,
        client_config,
        initial_networking_config,
        replace(http, close_unhealthy=close_unhealthy),
        policies,
        shutdown.request_restart,
    )
    await auth.start()
    shutdown.restart_flags = [*auth.instance.listen_flags(), "--http-listen", auth.http_address]
    lifecycle.set_on_stop_signal(shutdown.stop_event)
    try:
        lifecycle.print_ready_line(**auth.instance.ready_fields(), http=auth.http_address)
        await shutdown.stop_event.wait()
    finally:
        await auth.stop()
    return shutdown.restart_argv()


@click.command("auth")
@node_flags.instance_options(ttl_variable=announce.AUTH_TTL_VARIABLE)
@listen_option("--http-listen", "Listen address of the HTTP port of the auth API; port 0: any free port.")
@click.option(
    "--advertise-http",
    type=ADDRESS,
    help="Address at which proxies reach the HTTP port. Default: the listen address.",
)
@click.option(
    "--networking-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML file with the cluster's networking config. Stored at every start; replaces the stored config.",
)
@click.option(
    "--bootstrap",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML file with the cluster's networking config. Stored only if the cluster has none yet.",
)
@click.option(
    "--allow-anonymous",
    is_flag=True,
    help="Allow every client that reaches the ports to change the networking config and to write over HTTP. "
    "Without it, such writes need --tls-ca, or a listen address on loopback.",
)
def command(
    networking_config: Path | None,
    bootstrap: Path | None,
    http_listen: tuple[str, int],
    advertise_http: tuple[str, int] | None,
    **options: Any,
) -> None:
    """Run an auth.

    TELEPORT_UNSTABLE_GRPC_CLIENT_LB_POLICY (the JSON that RFD 226 defines) or TELEPORT_UNSTABLE_GRPC_SERVICE_CONFIG (a
    gRPC service config) sets the load balancing policy of clients. Default: pick_first without health checks. With
    TELEPORT_UNSTABLE_HTTP_CLOSE_UNHEALTHY=true, the auth closes HTTP connections while it is unhealthy.
    """
    if networking_config is not None and bootstrap is not None:
        raise click.UsageError("--networking-config and --bootstrap cannot be used together")
    http = HTTPFlags(http_listen, advertise_http)
    node_policies.run_instance(
        "auth",
        lambda flags, policies: serve(
            flags, policies, cluster_config.read_initial_networking_config(networking_config, bootstrap), http
        ),
        **options,
    )
