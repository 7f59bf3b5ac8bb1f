"""`python -m fleet.nodes auth`: an auth server. Writes agents' heartbeats to the backend, serves presence from it."""

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

from fleet.nodes.auth import cluster_config
from fleet.nodes.auth.cluster_config import Beginning, ClusterConfigServicer, Current
from fleet.nodes.auth.site import DEFAULT_HTTP, AuthSite, HTTPFlags
from fleet.nodes.shared import agent_admission, lifecycle, node_policies
from fleet.nodes.shared import flags as node_flags
from fleet.nodes.shared.addresses import ADDRESS, listen_option
from fleet.nodes.shared.instance import Instance, InstanceFlags, unavailable
from fleet.nodes.shared.node_policies import NodePoliciesServicer, Policies
from fleet.nodes.shared.refusals import host_of
from fleet.nodes.shared.response_limiter import LargeAnswers
from fleet.nodes.shared.tunnel_counts import Place, TunnelPlaces
from fleet.protocol.instance_labels import HTTP_LABEL
from fleet.protocol.policies import switches
from fleet.protocol.policies.switches import SwitchError
from fleet.protocol.recovery import announce, service_config
from fleet.protocol.recovery.service_config import ServiceConfig, ServiceConfigError
from fleet.transport import http_close, peers
from fleet.transport.backend import BackendUnavailable, ForeignError, Kind
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

#: Most resources in one answer of presence, and how many when the asker does not say (Teleport's numbers).
_MOST_SERVERS = 1000


class HeartbeatServicer:
    """fleet.v1.HeartbeatService. Method names here and below are those of the .proto."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        #: When each agent that heartbeats here will be taken for gone, by the monotonic clock.
        self._until: dict[str, float] = {}
        #: Tunnels that each of them wants and has.
        self._places: dict[str, Place] = {}
        self._refusals = Counter(
            "refloat_heartbeats_refused", "Heartbeats that could not be used", registry=instance.registry
        )
        instance.registry.register(TunnelPlaces("refloat_auth_agents", self._living_places))
        self._networking = Current(instance)
        self._pushed = Counter(
            "refloat_networking_config_pushed",
            "Networking configs sent to agents in answers to heartbeats",
            registry=instance.registry,
        )
        self._received = Counter(
            "heartbeat_connections_received",
            "Agents that began to heartbeat here",
            registry=instance.registry,
        )
        connected = Gauge(
            "teleport_connected_resources",
            "Agents that heartbeat here",
            ["type"],
            registry=instance.registry,
        )
        connected.labels("node").set_function(self._connected)

    async def Heartbeat(  # noqa: N802
        self, request: fleet_pb2.HeartbeatRequest, context: Context
    ) -> fleet_pb2.HeartbeatResponse:
        """Write the agent's resource."""
        agent = request.agent
        if why_not := agent_admission.unusable(agent):
            await self._refuse(context, agent, grpc.StatusCode.INVALID_ARGUMENT, why_not)
        caller, cluster = peers.caller_of(context), self._instance.flags.cluster
        if why_not := agent_admission.unproven(caller, agent.agent_id, agent.name, cluster):
            await self._refuse(context, agent, grpc.StatusCode.PERMISSION_DENIED, why_not)
        try:
            with self._instance.writing("agent"):
                written = await self._instance.backend.put_agent(agent, self._instance.flags.id)
        except BackendUnavailable as error:
            await unavailable(context, error)
        self._note(agent)
        return fleet_pb2.HeartbeatResponse(
            auth_id=self._instance.flags.id,
            revision=written.revision,
            networking_config=await self._news_for(agent, written.networking),
            auth_reconnect_advisory=self._advice(),
        )

    async def Deregister(  # noqa: N802
        self, request: fleet_pb2.DeregisterRequest, context: Context
    ) -> fleet_pb2.DeregisterResponse:
        """Delete the agent's resource."""
        try:
            if not await self._may_deregister(request.agent_id, context):
                return fleet_pb2.DeregisterResponse()  # there is nothing to delete
            with self._instance.writing("agent"):
                await self._instance.backend.delete_agent(request.agent_id)
        except BackendUnavailable as error:
            await unavailable(context, error)
        self._until.pop(request.agent_id, None)
        self._places.pop(request.agent_id, None)
        return fleet_pb2.DeregisterResponse()

    def _advice(self) -> fleet_pb2.AuthReconnectAdvisory | None:
        """Return the advice to connect to another auth while this one drains.

        Agents come by one after the other within a heartbeat interval, so they do not leave as a herd.
        """
        draining, auth_id = self._instance.standing.draining, self._instance.flags.id
        if draining is None:
            return None
        return fleet_pb2.AuthReconnectAdvisory(
            advisory_id=f"drain-{int(draining.at)}", reason=draining.reason, leave_auth_id=auth_id
        )

    async def _news_for(self, agent: fleet_pb2.AgentResource, revision: str) -> Message | None:
        """The networking config, when it is not what the agent runs with."""
        if agent.networking_revision == revision:
            return None
        try:
            found = await self._networking.of(revision)
        except BackendUnavailable:
            return None  # the heartbeat is written: the config comes with a later one
        if found is not None:
            self._pushed.inc()
        return found

    async def _may_deregister(self, agent_id: str, context: Context) -> bool:
        """Return whether there is a resource to delete; refuse a caller whose certificate is that of somebody else.

        A certificate of many agents proves names, and a deregistration has only the id: the resource has both.
        """
        caller = peers.caller_of(context)
        if caller is None:
            return True
        entry = await self._instance.backend.agent(agent_id)
        if entry is None:
            return False
        name, cluster = entry.agent.name, self._instance.flags.cluster
        if why_not := agent_admission.unproven(caller, agent_id, name, cluster):
            host = host_of(context.peer())
            self._instance.refusals.refuse("deregistration", host, f"of {name[:40]!r} at {host}", why_not)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why_not)
        return True

    async def _refuse(
        self, context: Context, agent: fleet_pb2.AgentResource, code: grpc.StatusCode, why_not: str
    ) -> Never:
        self._refusals.inc()
        host = host_of(context.peer())
        self._instance.refusals.tell(
            "heartbeat", f"{code.name} {host}", f"of {agent.name[:40]!r} at {host}", why_not
        )
        await context.abort(code, why_not)

    def _note(self, agent: fleet_pb2.AgentResource) -> None:
        now = time.monotonic()
        if self._until.get(agent.agent_id, 0.0) < now:
            self._received.inc()
        self._until[agent.agent_id] = now + agent.ttl_ms / 1000
        self._places[agent.agent_id] = agent.tracker.wanted, len(agent.tracker.claimed)

    def _connected(self) -> float:
        now = time.monotonic()
        self._until = {agent_id: until for agent_id, until in self._until.items() if until >= now}
        self._places = {agent_id: self._places[agent_id] for agent_id in self._until}
        return float(len(self._until))

    def _living_places(self) -> Iterable[Place]:
        self._connected()
        return self._places.values()


class AgentFeedServicer:
    """fleet.v1.AgentFeed: the backend's list of agents, the same from every auth."""

    def __init__(self, instance: Instance) -> None:
        self._backend = instance.backend
        self._answers = LargeAnswers()

    async def ListAgents(  # noqa: N802
        self, request: fleet_pb2.ListAgentsRequest, context: Context
    ) -> fleet_pb2.ListAgentsResponse:
        """Answer what changed since a revision."""
        await self._answers.admit(context)
        try:
            page = await self._backend.agents(request.epoch, request.since_revision, request.limit)
        except BackendUnavailable as error:
            await unavailable(context, error)
        return fleet_pb2.ListAgentsResponse(
            epoch=page.epoch,
            revision=page.revision,
            full=page.full,
            more=page.more,
            agents=page.agents,
            removed=page.removed,
        )


class PresenceServicer:
    """teleport.presence.v1.PresenceService, in pages by name."""

    def __init__(self, instance: Instance) -> None:
        self._backend = instance.backend
        self._answers = LargeAnswers()

    async def ListAuthServers(  # noqa: N802
        self, request: presence_pb2.ListAuthServersRequest, context: Context
    ) -> presence_pb2.ListAuthServersResponse:
        """List unexpired auths."""
        servers, token = await self._page("auth", request.page_size, request.page_token, context)
        return presence_pb2.ListAuthServersResponse(servers=servers, next_page_token=token)

    async def ListProxyServers(  # noqa: N802
        self, request: presence_pb2.ListProxyServersRequest, context: Context
    ) -> presence_pb2.ListProxyServersResponse:
        """List unexpired proxies."""
        servers, token = await self._page("proxy", request.page_size, request.page_token, context)
        return presence_pb2.ListProxyServersResponse(servers=servers, next_page_token=token)

    async def _page(
        self, kind: Kind, size: int, token: str, context: Context
    ) -> tuple[Sequence[types_pb2.ServerV2], str]:
        await self._answers.admit(context)
        try:
            found = await self._backend.instances(kind)
        except BackendUnavailable as error:
            await unavailable(context, error)
        # The token is the first name of the next page: what came or went in between moves nothing else.
        rest = [server for server in found if server.metadata.name >= token]
        size = min(size, _MOST_SERVERS) if size > 0 else _MOST_SERVERS
        return rest[:size], rest[size].metadata.name if len(rest) > size else ""


class ServiceConfigServicer:
    """teleport.grpcclientconfig.v1.ServiceConfigDiscoveryService: one answer, readable in both dialects."""

    def __init__(self, config: ServiceConfig, auth_id: str) -> None:
        self._answer = grpcclientconfig_pb2.GetServiceConfigResponse.FromString(service_config.encode(config))
        self._metadata = ((AUTH_ID_METADATA, auth_id),)

    async def GetServiceConfig(  # noqa: N802
        self, request: grpcclientconfig_pb2.GetServiceConfigRequest, context: Context
    ) -> grpcclientconfig_pb2.GetServiceConfigResponse:
        """Answer the policy wanted of clients."""
        del request
        context.set_trailing_metadata(self._metadata)
        return self._answer


class Auth:
    """An auth server."""

    def __init__(
        self,
        flags: InstanceFlags,
        config: ServiceConfig,
        networking: Beginning | None = None,
        http: HTTPFlags = DEFAULT_HTTP,
        own: Policies | None = None,
        restart: Callable[[float | None], None] | None = None,
    ) -> None:
        """Make it. Raises StartError."""
        self.instance = Instance("auth", flags)
        self._networking = networking
        self._http = AuthSite(self.instance, http)
        server = self.instance.server
        ClusterConfigServicer(self.instance).add_to(server)
        own = own or node_policies.load("auth", None, {})
        NodePoliciesServicer(self.instance, own, restart).add_to(server)
        fleet_pb2_grpc.add_HeartbeatServiceServicer_to_server(HeartbeatServicer(self.instance), server)
        fleet_pb2_grpc.add_AgentFeedServicer_to_server(AgentFeedServicer(self.instance), server)
        presence_pb2_grpc.add_PresenceServiceServicer_to_server(PresenceServicer(self.instance), server)
        grpcclientconfig_pb2_grpc.add_ServiceConfigDiscoveryServiceServicer_to_server(
            ServiceConfigServicer(config, flags.id), server
        )

    async def start(self) -> None:
        """Start it. Raises StartError."""
        try:
            await self.instance.start(self._serve_http)
        except lifecycle.StartError:
            await self._http.stop()
            raise
        try:
            if self._networking is not None:
                await self._networking.store(self.instance.backend)
            with contextlib.suppress(ForeignError):  # who asks for it is told, and this auth serves all else
                await cluster_config.stored(self.instance.backend)  # agents are to be told something
        except BackendUnavailable as error:
            await self.stop()
            raise lifecycle.StartError(str(error)) from error
        except lifecycle.StartError:
            await self.stop()
            raise

    async def _serve_http(self) -> None:
        # Before the first heartbeat: proxies find the port in the resource of this auth.
        await self._http.start()
        self.instance.labels[HTTP_LABEL] = self._http.advertised

    @property
    def http_address(self) -> str:
        """Where the HTTP part of the auth API is served."""
        return self._http.address

    async def stop(self) -> None:
        """Deregister and end it."""
        await self.instance.leave()
        await self._http.stop()
        await self.instance.stop()


async def serve(
    flags: InstanceFlags,
    own: Policies,
    networking: Beginning | None = None,
    http: HTTPFlags = DEFAULT_HTTP,
) -> list[str] | None:
    """Run an auth until told to end; answers the command line of its next run, if there is to be one.

    Raises StartError.
    """
    environment = own.merged()
    try:
        config = service_config.from_environment(environment)
        close = switches.switch_from(environment, http_close.VARIABLE, default=False)
    except (ServiceConfigError, SwitchError) as error:
        raise lifecycle.StartError(str(error)) from None
    rerun = lifecycle.Rerun()
    auth = Auth(flags, config, networking, replace(http, close_unhealthy=close), own, rerun.ask)
    await auth.start()
    rerun.flags = [*auth.instance.same_addresses(), "--http-listen", auth.http_address]
    lifecycle.on_end(rerun.told)
    try:
        lifecycle.announce(**auth.instance.ready_facts(), http=auth.http_address)
        await rerun.told.wait()
    finally:
        await auth.stop()
    return rerun.argv()


@click.command("auth")
@node_flags.instance_options(ttl_variable=announce.AUTH_TTL_VARIABLE)
@listen_option("--http-listen", "HTTP port of the auth API; 0 is any.")
@click.option(
    "--advertise-http",
    type=ADDRESS,
    help="Where proxies reach the HTTP port; default: the port itself.",
)
@click.option(
    "--networking-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML of the cluster's networking config; stored at every start, over what is there.",
)
@click.option(
    "--bootstrap",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The same, stored only if the cluster has none yet.",
)
@click.option(
    "--anybody",
    is_flag=True,
    help="Off loopback without --tls-ca: let everybody who reaches the ports change the networking config and "
    "write by HTTP.",
)
def command(
    networking_config: Path | None,
    bootstrap: Path | None,
    http_listen: tuple[str, int],
    advertise_http: tuple[str, int] | None,
    **given: Any,
) -> None:
    """Run an auth server.

    Clients' load balancing policy: TELEPORT_UNSTABLE_GRPC_CLIENT_LB_POLICY (RFD 226's wrapped JSON) or
    TELEPORT_UNSTABLE_GRPC_SERVICE_CONFIG (the bare JSON); default pick_first without health checks.
    TELEPORT_UNSTABLE_HTTP_CLOSE_UNHEALTHY=true ends HTTP connections while the auth is unhealthy.
    """
    if networking_config is not None and bootstrap is not None:
        raise click.UsageError("--networking-config and --bootstrap exclude each other")
    http = HTTPFlags(http_listen, advertise_http)
    node_policies.run_instance(
        "auth",
        lambda flags, own: serve(flags, own, cluster_config.beginning(networking_config, bootstrap), http),
        **given,
    )
