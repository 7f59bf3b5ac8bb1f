"""`python -m fleet.nodes agent`: agents in one process, each with its own id and TCP connections."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import click
import grpc.aio
from prometheus_client import CollectorRegistry

from fleet.nodes.agent import services as agent_services
from fleet.nodes.agent import site as agent_site
from fleet.nodes.agent import status as agent_status
from fleet.nodes.agent.auth_connection import Heartbeats, Identity
from fleet.nodes.agent.auth_moves import AuthMoves
from fleet.nodes.agent.metrics import AgentAuthCollector, AgentMetrics
from fleet.nodes.agent.networking import AgentNetworking
from fleet.nodes.agent.proxy_choice import ProxyChoice
from fleet.nodes.agent.services import AgentServices, Services
from fleet.nodes.agent.tunnels import AgentTunnels
from fleet.nodes.shared import agent_labels, lifecycle
from fleet.nodes.shared import flags as node_flags
from fleet.nodes.shared.addresses import ADDRESS, ADDRESSES
from fleet.nodes.shared.name_options import CLUSTER_NAME
from fleet.nodes.shared.tunnel_counts import TunnelCountCollector, TunnelCounts
from fleet.processes import background
from fleet.protocol.recovery import announce, pick_healthy, tunnel_settings
from fleet.protocol.recovery.address_order import AddressOrder
from fleet.protocol.recovery.agent_pool import AgentPool, LinearBackoff
from fleet.protocol.recovery.tracker import Tracker, TrackerSnapshot
from fleet.protocol.recovery.tunnel_settings import Overrides, TunnelSettings
from fleet.protocol.tunnel.messages import WireVersion
from fleet.transport import channels
from fleet.transport.channels import KeepaliveSettings
from fleet.transport.pick_healthy import channel_factory
from fleet.transport.pick_healthy.channel import PickHealthyChannel
from fleet.transport.pick_healthy.tunnelled_channel import TunnelledChannel
from fleet.transport.tls import AUTH_SERVER_NAME, TLSError, TLSFiles
from fleet.wire import fleet_pb2

log = logging.getLogger(__name__)

Addresses = tuple[tuple[str, int], ...]

#: Seconds over which the starts of 1,000 agents are spread, so that they do not connect all at once.
_START_SPREAD_PER_1000 = 2.0


@dataclass(frozen=True, slots=True)
class AgentFlags:
    """Configuration of the agents in one process."""

    auth: Addresses
    proxy: Addresses
    #: Reach auths through the proxies, each connection through one of them; `auth` is not used then.
    auth_via_proxy: bool = False
    count: int = 1
    first_number: int = 1
    name_prefix: str = "agent"
    cluster: str = "default"
    announce_ttl: float = announce.DEFAULT_TTL
    #: Settings that take precedence over the networking config.
    overrides: Overrides = field(default_factory=Overrides)
    #: Step of the linear backoff between dials, seconds; the longest pause is eight steps.
    redial_step: float = 1.0
    #: When the auth connection is abandoned and opened again.
    balancer_settings: pick_healthy.BalancerSettings = pick_healthy.DEFAULTS
    tls: TLSFiles = field(default_factory=TLSFiles)
    #: Seconds between pings on the auth connection; None: as on tunnels.
    auth_keep_alive_interval: float | None = None
    #: Services exposed to users of the proxies.
    services: Services = ()
    #: Labels of the agents, and versions that they report instead of their own; several values in turn.
    labels: agent_labels.Labels = ()
    reported_versions: tuple[str, ...] = ()
    #: Seconds that sessions may last on a tunnel that is being closed; None: no limit.
    drain: float | None = None
    #: Protocol version of TCP over gRPC on the tunnels.
    tunnel_wire: WireVersion = WireVersion.V0_2

    @property
    def keepalive(self) -> KeepaliveSettings:
        """How soon a dead auth is noticed. Only flags count: gRPC needs the values before any config arrives."""
        keep_alive = tunnel_settings.resolve(self.overrides, None).keep_alive
        interval = self.auth_keep_alive_interval or keep_alive.interval
        return KeepaliveSettings(
            ping_after=interval, answer_within=interval * max(keep_alive.count_max - 1, 1)
        )


class Agent:
    """One agent: heartbeats to an auth, tunnels to proxies."""

    def __init__(self, number: int, flags: AgentFlags, metrics: AgentMetrics) -> None:
        """Raises NodeStartError if the configuration cannot be used."""
        name = f"{flags.name_prefix}-{number}"
        attributes = agent_labels.attributes_of(flags.labels, flags.reported_versions, number)
        self.identity = Identity(node_flags.host_id(flags.cluster, "agent", name), name, *attributes)
        self._flags = flags
        self.networking = AgentNetworking(
            name, flags.overrides, metrics, self._apply_settings, self._request_config
        )
        settings = self.networking.settings
        self._tracker = Tracker(flags.cluster, settings.connection_count)
        self._auth_order = AddressOrder(flags.auth)
        try:
            channel = self._open_auth_channel(metrics)
        except (ValueError, TLSError) as error:
            raise lifecycle.NodeStartError(str(error)) from None
        try:
            self._services = AgentServices(self.identity, flags.services, self.status)
        except ValueError as error:
            raise lifecycle.NodeStartError(f"--service of {name}: {error}") from None
        self.heartbeats = Heartbeats(
            self.identity, channel, flags.announce_ttl, self.snapshot, self._on_heartbeat_response
        )
        self.auth_moves = AuthMoves(
            self.heartbeats, lambda: self._open_auth_channel(metrics), len(self._auth_dial_addresses), metrics
        )
        self._proxy_choice = ProxyChoice(flags.proxy, time.monotonic())
        self.tunnels = AgentTunnels(
            self.identity,
            AgentPool(self._tracker, LinearBackoff(flags.redial_step, 8 * flags.redial_step)),
            settings,
            self._open_tunnel_channel,
            self._services,
            metrics,
            self.heartbeats.send_heartbeat_soon,
            self.networking.on_config_notice,
            flags.drain,
            lambda has_response: self._proxy_choice.record_dial(time.monotonic(), has_response=has_response),
            self.auth_moves.advise,
            flags.tunnel_wire,
        )
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def auth_id(self) -> str:
        """Id of the auth that wrote the last heartbeat; empty before the first."""
        return self.heartbeats.last_auth_id

    def snapshot(self) -> TrackerSnapshot:
        """Return a snapshot of the agent's tracker."""
        return self._tracker.snapshot(time.monotonic())

    def status(self) -> dict[str, Any]:
        """Return the agent's status document, for readers on the other end of a tunnel."""
        return agent_status.document(
            self.identity,
            self._tracker,
            self.heartbeats.policy,
            self.tunnels.tunnels,
            self._services.names,
            time.monotonic(),
            self._flags.balancer_settings,
        )

    def start(self, delay: float) -> None:
        """Start after `delay` seconds."""
        self._tasks = [
            asyncio.create_task(_run_after_delay(delay, run), name=f"{self.identity.name}: {task_name}")
            for task_name, run in (("heartbeats", self.heartbeats.run), ("tunnels", self.tunnels.run))
        ]

    async def restart(self, delay: float) -> None:
        """Restart after an internal error, `delay` seconds from now."""
        await self._halt()
        self.start(delay)

    async def stop(self) -> None:
        """Deregister and close all connections."""
        await self._halt()
        await self.auth_moves.close()
        await self.heartbeats.deregister()
        await self.heartbeats.channel.close()

    def find_task_error(self) -> BaseException | None:
        """Return the error that ended one of the agent's tasks; None if all are running."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                return task.exception()
        return None

    async def _halt(self) -> None:
        await background.stop(self._tasks)
        await self.tunnels.close()

    @property
    def _auth_dial_addresses(self) -> Addresses:
        """Addresses at which connections to auths are opened."""
        return self._flags.proxy if self._flags.auth_via_proxy else self._flags.auth

    def _open_auth_channel(self, metrics: AgentMetrics) -> PickHealthyChannel:
        """Return a channel to auths. Each channel starts with the next address."""
        flags = self._flags
        common: dict[str, Any] = {
            "name": f"auth connection of {self.identity.name}",
            "on_change": lambda: self._on_auth_connection_change(channel),
            "on_retire": lambda reason: metrics.auth_failovers.labels(reason).inc(),
            "on_unreadable_policy": metrics.refused_messages.labels("service-config").inc,
        }
        if flags.auth_via_proxy:
            channel: PickHealthyChannel = TunnelledChannel(
                self._auth_dial_addresses, flags.tls, flags.keepalive, flags.balancer_settings, **common
            )
        else:
            channel = channel_factory.open_channel(
                *(self._auth_dial_addresses, flags.tls.for_role("auth")),
                *(flags.keepalive, flags.balancer_settings),
                order=self._auth_order,
                **common,
            )
        return channel

    def _on_auth_connection_change(self, channel: PickHealthyChannel) -> None:
        # Another channel is only a trial: nothing changes before the agent moves to it.
        if channel is self.heartbeats.channel:
            self.heartbeats.on_connection_change()

    def _on_heartbeat_response(self, response: fleet_pb2.HeartbeatResponse) -> None:
        if response.HasField("auth_reconnect_advisory"):
            self.auth_moves.advise(response.auth_reconnect_advisory)
        if response.HasField("networking_config"):
            self.networking.apply(response.networking_config, response.auth_id)
            if self.heartbeats.networking_revision != self.networking.revision:
                self.heartbeats.networking_revision = self.networking.revision
                self.heartbeats.send_heartbeat_soon()  # so that the new revision is reported soon

    def _apply_settings(self, settings: TunnelSettings) -> None:
        self.tunnels.apply_settings(settings, time.monotonic())

    def _request_config(self) -> None:
        self.heartbeats.send_heartbeat_soon()

    def _open_tunnel_channel(self) -> grpc.aio.Channel:
        # One address per dial: the balancer picks the proxy, and each dial is a connection of its own.
        target = channels.target_of((self._proxy_choice.pick(time.monotonic(), random.random()),))
        return channels.open_channel(
            target, self._flags.tls.for_role("proxy"), extra_options=channels.fixed_window_options()
        )


async def _run_after_delay(delay: float, run: Any) -> None:
    await asyncio.sleep(delay)
    await run()


class AgentGroup:
    """The agents of one process, and the timer they share."""

    def __init__(self, flags: AgentFlags, registry: CollectorRegistry | None = None) -> None:
        """Raises NodeStartError if the configuration cannot be used."""
        numbers = range(flags.first_number, flags.first_number + flags.count)
        self.registry = registry or CollectorRegistry()
        metrics = AgentMetrics(self.registry)
        self.agents: Sequence[Agent] = [Agent(number, flags, metrics) for number in numbers]
        self.registry.register(TunnelCountCollector("refloat_agent_tunnels", self._tunnel_counts))
        self.registry.register(AgentAuthCollector("refloat_agent_auths", self._auths_and_modes))
        self._clock_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the agents, spread over a short time if there are many."""
        spread = len(self.agents) / 1000 * _START_SPREAD_PER_1000
        for agent in self.agents:
            agent.start(random.random() * spread)
        self._clock_task = background.start(self._run_clock(), name="agents' clock")

    async def stop(self) -> None:
        """Stop all agents at once."""
        if self._clock_task is not None:
            self._clock_task.cancel()
        await asyncio.gather(*(agent.stop() for agent in self.agents))

    def _auths_and_modes(self) -> list[tuple[str, str]]:
        policies = [(agent.auth_id, agent.heartbeats.policy) for agent in self.agents]
        return [(auth_id, "" if policy is None else policy.mode) for auth_id, policy in policies]

    def _tunnel_counts(self) -> Iterator[TunnelCounts]:
        for agent in self.agents:
            snapshot = agent.snapshot()
            yield snapshot.desired_tunnel_count, len(snapshot.claimed_proxies)

    async def _run_clock(self) -> None:
        while True:
            interval = min(agent.tunnels.keep_alive.interval for agent in self.agents)
            tick = min(max(interval / 10, 0.05), 1.0)
            await asyncio.sleep(tick)
            now = time.monotonic()
            for agent in self.agents:
                agent.tunnels.sweep(now, tick)
                error = agent.find_task_error()
                if error is not None:
                    log.error(
                        "agent.failed: %s failed with an internal error and restarts",
                        agent.identity.name,
                        exc_info=error,
                    )
                    await agent.restart(1.0)


async def serve(flags: AgentFlags, diag_listen: tuple[str, int] | None = None) -> None:
    """Run agents until SIGTERM or SIGINT. Raises NodeStartError."""
    registry = CollectorRegistry()
    async with agent_site.serve(registry, diag_listen) as diag_address:
        group = AgentGroup(
            replace(flags, services=agent_services.with_diag_address(flags.services, diag_address)), registry
        )
        group.start()
        try:
            first, last = group.agents[0].identity, group.agents[-1].identity
            ready_fields = {"id": first.id, "name": first.name, "last": last.name, "count": len(group.agents)}
            lifecycle.print_ready_line(
                role="agent", **ready_fields, **({"diag": diag_address} if diag_address else {})
            )
            await lifecycle.wait_for_stop_signal()
        finally:
            await group.stop()


@click.command("agent")
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of agents in this process.",
)
@click.option(
    "--first",
    "first_number",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Number of the first agent.",
)
@click.option(
    "--name-prefix",
    default="agent",
    show_default=True,
    help="Prefix of the agents' names, PREFIX-NUMBER. Ids are derived from the names.",
)
@click.option("--auth", type=ADDRESSES, help="Addresses of the auths, or of their load balancers.")
@click.option(
    "--auth-via",
    type=click.Choice(["direct", "proxy"]),
    default="direct",
    show_default=True,
    help="How agents reach auths: directly, or through the proxies (then --auth is not needed).",
)
@click.option("--proxy", required=True, type=ADDRESSES, help="Addresses of the proxies' load balancers.")
@click.option(
    "--cluster", type=CLUSTER_NAME, default="default", show_default=True, help="Name of the cluster."
)
@click.option(
    "--announce-ttl",
    type=node_flags.TTL(),
    default="10m",
    show_default=True,
    help="How long an agent stays registered after a heartbeat.",
)
@click.option(
    "--connections",
    type=click.IntRange(min=1),
    default=None,
    help="Desired number of tunnels per agent (proxy peering). Default: from the networking config.",
)
@click.option(
    "--reconnect-wait",
    type=node_flags.DURATION,
    default="250ms",
    show_default=True,
    help="Longest wait before the first attempt to connect to another auth, after the current one became unhealthy. "
    "Later attempts wait 2 s to 24 s.",
)
@click.option(
    "--upstream-reconnect-wait",
    is_flag=True,
    help="Wait 2 s to 3 s, as Teleport does, instead of --reconnect-wait.",
)
@click.option(
    "--auth-drain-timeout",
    type=node_flags.DURATION,
    default=None,
    help="Time after which open RPCs on an abandoned auth connection are ended. Default: no limit.",
)
@click.option(
    "--auth-reconnect-every",
    type=node_flags.POSITIVE_DURATION,
    default=None,
    help="Open a new auth connection after this time plus up to 50 %. Default: never.",
)
@click.option(
    "--auth-keep-alive-interval",
    type=node_flags.POSITIVE_DURATION,
    default=None,
    help="Time between two pings on the auth connection. Default: --keep-alive-interval, or 5m.",
)
@click.option("--mesh", is_flag=True, help="Open a tunnel to every proxy (agent mesh).")
@click.option(
    "--closing-wait-min",
    type=node_flags.DURATION,
    default=None,
    help="Shortest wait before an agent closes an excess tunnel. Default: from the networking config.",
)
@click.option(
    "--closing-wait-max",
    type=node_flags.DURATION,
    default=None,
    help="Longest wait before an agent closes an excess tunnel. Default: from the networking config.",
)
@click.option("--diag-listen", type=ADDRESS, default=None, help="Listen address of /metrics. Default: none.")
@agent_services.service_option
@agent_labels.attribute_options
@click.option(
    "--drain",
    type=node_flags.DURATION,
    help="How long user connections may last on a tunnel that is being closed. Default: no limit.",
)
@click.option(
    "--tunnel-wire",
    type=click.Choice([wire.value for wire in WireVersion]),
    default=WireVersion.V0_2.value,
    show_default=True,
    help="Protocol version of TCP over gRPC on the tunnels. For 0.1, --proxy must lead to the --tunnel-v01-listen "
    "ports of proxies.",
)
@node_flags.keep_alive_options
@node_flags.agent_tls_options
@click.option(
    "--tls-auth-name",
    default="",
    help=f"Host name to expect in an auth's certificate. Default: --tls-server-name, or else {AUTH_SERVER_NAME}.",
)
def command(
    auth: Addresses | None,
    auth_via: str,
    connections: int | None,
    mesh: bool,
    reconnect_wait: float,
    upstream_reconnect_wait: bool,
    auth_drain_timeout: float | None,
    auth_reconnect_every: float | None,
    keep_alive_interval: float | None,
    keep_alive_count_max: int | None,
    closing_wait_min: float | None,
    closing_wait_max: float | None,
    diag_listen: tuple[str, int] | None,
    tls: TLSFiles,
    tls_auth_name: str,
    services: Services,
    tunnel_wire: str,
    **options: Any,
) -> None:
    """Run agents.

    Each agent keeps one gRPC connection to an auth for its heartbeats, and reverse tunnels to proxies.
    """
    if mesh and connections is not None:
        raise click.UsageError("--mesh and --connections cannot be used together")
    agent_services.check_unique_flags(services)
    if auth_via == "proxy" and tunnel_wire == WireVersion.V0_1.value:
        raise click.UsageError(
            "--auth-via proxy needs --tunnel-wire 0.2: version 0.1 cannot carry connections to auths"
        )
    if auth is None and auth_via == "direct":
        raise click.UsageError("--auth is required, unless agents reach auths with --auth-via proxy")
    try:
        overrides = Overrides(
            connection_count=0 if mesh else connections,
            keep_alive_interval=keep_alive_interval,
            keep_alive_count_max=keep_alive_count_max,
            closing_wait_min=closing_wait_min,
            closing_wait_max=closing_wait_max,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    flags = AgentFlags(
        auth=auth or (),
        auth_via_proxy=auth_via == "proxy",
        services=services,
        tunnel_wire=WireVersion(tunnel_wire),
        overrides=overrides,
        tls=replace(tls, auth_name=tls_auth_name),
        balancer_settings=pick_healthy.BalancerSettings(
            first_wait=None if upstream_reconnect_wait else reconnect_wait,
            drain_timeout=auth_drain_timeout,
            reconnect_every=auth_reconnect_every,
        ),
        **options,
    )
    lifecycle.run(lambda: lifecycle.run_on_loop(serve(flags, diag_listen)))
