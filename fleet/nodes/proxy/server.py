"""`python -m fleet.nodes proxy`: a proxy. Holds agents' reverse tunnels, tells agents of proxies, lists its tunnels."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
from prometheus_client import Gauge

from fleet.nodes.proxy.agent_status import AgentStatusServicer
from fleet.nodes.proxy.auth_sessions import AuthSessionHandler
from fleet.nodes.proxy.connect.access import DEFAULT_LIMIT, ConnectFlags, read_tokens
from fleet.nodes.proxy.connect.metrics import ConnectMetrics
from fleet.nodes.proxy.connect.port import ConnectPort
from fleet.nodes.proxy.heartbeat import AuthPresence, HeartbeatFlags
from fleet.nodes.proxy.metrics import ProxyMetrics
from fleet.nodes.proxy.networking import ProxyNetworking
from fleet.nodes.proxy.reverse_tunnels import ReverseTunnels
from fleet.nodes.proxy.tunnel_admin import TunnelAdminServicer
from fleet.nodes.proxy.tunnel_v01_listener import TunnelV01Listener
from fleet.nodes.proxy.tunnels import SHUTTING_DOWN
from fleet.nodes.shared import flags as node_flags
from fleet.nodes.shared import lifecycle, node_policies
from fleet.nodes.shared.addresses import ADDRESS, ADDRESSES
from fleet.nodes.shared.instance import Instance, InstanceFlags
from fleet.nodes.shared.node_policies import NodePoliciesServicer, Policies
from fleet.processes import background
from fleet.protocol import durations
from fleet.protocol.durations import DurationError
from fleet.protocol.instance_labels import (
    CONNECT_LABEL,
    DRAINING_LABEL,
    GENERATION_LABEL,
    GROUP_ID_LABEL,
    TTL_LABEL,
)
from fleet.protocol.policies import switches
from fleet.protocol.policies.switches import SwitchError
from fleet.protocol.recovery import announce, discovery, reconnect_schedule, tunnel_settings
from fleet.protocol.recovery.discovery import ProxyResource, Publisher
from fleet.protocol.recovery.reconnect_schedule import ReconnectError
from fleet.protocol.recovery.tunnel_settings import Overrides
from fleet.transport.backend import BackendUnavailableError
from fleet.wire import agent_status_pb2_grpc, types_pb2

log = logging.getLogger(__name__)

GROUP_VARIABLE = "TELEPORT_UNSTABLE_PROXYGROUP_ID"
GENERATION_VARIABLE = "TELEPORT_UNSTABLE_PROXYGROUP_GEN"

_LONGEST_TTL = 86_400.0


@dataclass(frozen=True, slots=True)
class ProxyFlags:
    """How one proxy is configured."""

    instance: InstanceFlags
    #: What is not for the networking config to say.
    overrides: Overrides = field(default_factory=Overrides)
    #: The discovery of RFD 226 (what heartbeated), or full lists on a ticker.
    compact_discovery: bool = True
    #: How long agents may take to leave when the proxy ends, seconds.
    drain: float = 2.0
    #: Its port for users; None for none.
    connect: ConnectFlags | None = None
    #: Between pieces of advice to reconnect, for each agent, seconds; 0 is never.
    reconnect_interval: float = 0.0
    heartbeat: HeartbeatFlags = field(default_factory=HeartbeatFlags)
    #: Where tunnels of version 0.1 are accepted; None for nowhere.
    tunnel_v01_listen: tuple[str, int] | None = None


class Proxy:
    """A proxy."""

    def __init__(
        self,
        flags: ProxyFlags,
        own: Policies | None = None,
        restart: Callable[[float | None], None] | None = None,
    ) -> None:
        """Make it. Raises StartError."""
        self.flags = flags
        self.instance = Instance("proxy", flags.instance)
        if flags.heartbeat.through_auth:
            self.instance.presence = AuthPresence(self.instance, flags.heartbeat.auths)
        self._publisher = Publisher(flags.instance.announce_ttl, compact=flags.compact_discovery)
        auth_handler = AuthSessionHandler(self.instance)
        metrics = ProxyMetrics(self.instance.registry)
        self.tunnels = ReverseTunnels(
            flags.instance.id,
            flags.instance.cluster,
            self._publisher,
            tunnel_settings.settings(flags.overrides, None).keep_alive,
            metrics,
            self.instance.refusals,
            flags.reconnect_interval,
            auth_handler.accept_session,
        )
        self.table = self.tunnels.table
        self.instance.declared_status.listen(self._on_status_change)
        self.networking = ProxyNetworking(self.instance, flags.overrides, self.table)
        self.tunnels.add_to(self.instance.server)
        self.tunnel_v01: TunnelV01Listener | None = None
        if flags.tunnel_v01_listen is not None:
            self.tunnel_v01 = TunnelV01Listener(flags.tunnel_v01_listen, flags.instance.tls, self.tunnels)
        agent_status_pb2_grpc.add_AgentStatusServicer_to_server(
            AgentStatusServicer(self.tunnels), self.instance.server
        )
        TunnelAdminServicer(flags.instance.id, self.tunnels, flags.instance.listen[0]).add_to(
            self.instance.server
        )
        own = own or node_policies.load("proxy", None, {})
        NodePoliciesServicer(self.instance, own, restart).add_to(self.instance.server)
        tunnels = Gauge(
            "teleport_reverse_tunnels_connected",
            "Live reverse tunnels",
            ["type"],
            registry=self.instance.registry,
        )
        tunnels.labels("node").set_function(lambda: float(len(self.table)))
        self.connect: ConnectPort | None = None
        if flags.connect is not None:
            users = ConnectMetrics(self.instance.registry, self.table.states)
            self.connect = ConnectPort(flags.connect, self.instance, self.tunnels, users)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start it. Raises StartError."""
        try:
            if self.connect is not None:
                await self.connect.start()
                self.instance.labels[CONNECT_LABEL] = self.connect.advertised_address
            if self.tunnel_v01 is not None:
                await self.tunnel_v01.start()
            await self.instance.start()
        except lifecycle.NodeStartError:
            if self.tunnel_v01 is not None:
                await self.tunnel_v01.stop()
            if self.connect is not None:
                await self.connect.stop()
            raise
        ttl = self.flags.instance.announce_ttl
        detection = discovery.detection(ttl, compact=self.flags.compact_discovery)
        if detection > discovery.RFD_DETECTION:
            log.warning(
                "discovery.slow: with an announce TTL of %s agents drop a dead proxy after up to %s, later than the %s "
                "that RFD 226 sets out to shorten: lower %s",
                durations.format_seconds(ttl),
                durations.format_seconds(round(detection)),
                durations.format_seconds(discovery.RFD_DETECTION),
                announce.PROXY_TTL_VARIABLE,
            )
        self._tasks = [
            background.start(self._watch_proxies(), name="proxy watcher"),
            background.start(self._sweep(), name="tunnel sweeper"),
        ]

    def ready_fields(self) -> dict[str, object]:
        """What the ready line says."""
        fields = self.instance.ready_fields()
        if self.connect is not None:
            fields["connect"] = self.connect.address
        if self.tunnel_v01 is not None:
            fields["tunnel_v01"] = self.tunnel_v01.address
        return fields

    def listen_flags(self) -> list[str]:
        """Flags with which another run listens where this one does."""
        flags = self.instance.listen_flags()
        if self.connect is not None:
            flags += ["--connect-listen", self.connect.address]
        if self.tunnel_v01 is not None:
            flags += ["--tunnel-v01-listen", self.tunnel_v01.address]
        return flags

    async def stop(self, drain: float | None = None) -> None:
        """End it gracefully: nobody new comes, agents are advised to go and given time, then all is closed.

        `drain` in seconds; None: as its flags say.
        """
        self.tunnels.is_shutting_down = True
        if self.connect is not None:
            await self.connect.stop_accepting()
        await self.instance.deregister()
        self.tunnels.reconnects.shut_down()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.flags.drain if drain is None else drain):
                await self.table.wait_until_empty()
                if self.connect is not None:
                    # Users of agents that are elsewhere are on no tunnel of ours.
                    await self.connect.wait_until_empty()
        if self.connect is not None:
            await self.connect.stop()
        self.table.end_all(SHUTTING_DOWN, time.monotonic())
        await background.stop(self._tasks)
        if self.tunnel_v01 is not None:
            await self.tunnel_v01.stop()
        await self.instance.stop()

    def _on_status_change(self) -> None:
        self.tunnels.is_drained = self.instance.declared_status.drain_declaration is not None

    async def _watch_proxies(self) -> None:
        """See who heartbeats and let tunnels know.

        In compact mode what heartbeats within a fifth of the TTL goes in one message: seeing each at once would cost
        agents half again as many, and detection waits for the TTL in any case.
        """
        interval = discovery.read_interval(
            self.flags.instance.announce_ttl, compact=self.flags.compact_discovery
        )
        is_reachable = True
        while True:
            try:
                servers = await self.instance.backend.instances("proxy")
                if self._publisher.observe(map(_resource, servers), time.monotonic()):
                    self.table.wake_all()
                await self.networking.refresh()
            except BackendUnavailableError as error:
                # Nothing is observed, so what agents know of proxies ages, ours included: that is meant.
                if is_reachable:
                    log.warning("proxies.unseen: %s", error)
                is_reachable = False
            else:
                if not is_reachable:
                    log.info("proxies.seen: the backend answers again")
                is_reachable = True
            await asyncio.sleep(interval)

    async def _sweep(self) -> None:
        while True:
            # A full list that is sent late leaves a gap in which agents take live proxies for expired.
            soonest = min(self.table.keep_alive.interval, self._publisher.full_interval)
            tick = min(max(soonest / 4, 0.05), 1.0)
            await asyncio.sleep(tick)
            now = time.monotonic()
            self.table.sweep(now, tick)
            self.tunnels.reconnects.sweep(now)


def _resource(server: types_pb2.ServerV2) -> ProxyResource:
    labels = server.metadata.labels
    return ProxyResource(
        name=server.metadata.name,
        group=labels.get(GROUP_ID_LABEL, ""),
        generation=discovery.generation_of(labels.get(GENERATION_LABEL, "")),
        expires_at=server.metadata.expires.ToNanoseconds() / 1e9,
        is_draining=DRAINING_LABEL in labels,
        ttl=_announce_ttl(labels.get(TTL_LABEL, "")),
    )


def _announce_ttl(label: str) -> float:
    """Seconds; 0 for what is none. No longer than a resource may live."""
    try:
        return min(durations.parse(label), _LONGEST_TTL)
    except DurationError:
        return 0.0


def group_labels(environment: Mapping[str, str]) -> dict[str, str]:
    """The labels of the proxy's group. Raises StartError for a generation that is no number of 64 bits."""
    labels = {}
    group, generation = environment.get(GROUP_VARIABLE, ""), environment.get(GENERATION_VARIABLE, "")
    if group:
        labels[GROUP_ID_LABEL] = group
    if generation:
        if not (generation.isascii() and generation.isdigit() and int(generation) < 1 << 64):
            raise lifecycle.NodeStartError(
                f"{GENERATION_VARIABLE}={generation!r} is not a whole number of 64 bits"
            )
        labels[GENERATION_LABEL] = generation
    return labels


def from_environment(flags: ProxyFlags, environment: Mapping[str, str]) -> ProxyFlags:
    """Flags with what the environment says. Raises StartError."""
    try:
        # The seed's discovery unless switched off.
        compact = switches.switch_from(environment, discovery.COMPACT_VARIABLE, default=True)
        interval = reconnect_schedule.interval_from(environment)
    except (SwitchError, ReconnectError) as error:
        raise lifecycle.NodeStartError(str(error)) from None
    return replace(
        flags,
        instance=replace(flags.instance, labels=group_labels(environment)),
        compact_discovery=compact,
        reconnect_interval=interval,
    )


async def serve(flags: ProxyFlags, own: Policies) -> list[str] | None:
    """Run a proxy until told to end; answers the command line of its next run, if there is to be one.

    Raises StartError.
    """
    shutdown = lifecycle.Shutdown()
    proxy = Proxy(flags, own, shutdown.request_restart)
    await proxy.start()
    shutdown.flags = proxy.listen_flags()
    lifecycle.set_on_stop_signal(shutdown.stop_event)
    try:
        lifecycle.announce(**proxy.ready_fields())
        await shutdown.stop_event.wait()
    finally:
        await proxy.stop(shutdown.drain)
    return shutdown.argv()


def _connect_flags(
    listen: tuple[str, int] | None, advertise: tuple[str, int] | None, tokens: Path | None, limit: int
) -> ConnectFlags | None:
    if listen is None:
        if advertise is not None or tokens is not None:
            raise lifecycle.NodeStartError(
                "--connect-advertise and --connect-tokens are nothing without --connect-listen"
            )
        return None
    return ConnectFlags(listen, advertise, read_tokens(tokens) if tokens else (), limit)


@click.command("proxy")
@node_flags.instance_options(ttl_variable=announce.PROXY_TTL_VARIABLE)
@node_flags.keep_alive_options
@click.option(
    "--connect-listen",
    type=ADDRESS,
    help="Port for users, who reach agents' services by HTTP CONNECT; 0 is any. Default: none.",
)
@click.option(
    "--connect-advertise",
    type=ADDRESS,
    help="Where others reach the CONNECT port; default: the port itself.",
)
@click.option(
    "--connect-tokens",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of tokens, one a line, each of which lets a user in. Without it, and without --tls-ca, "
    "the port must be of this machine alone.",
)
@click.option(
    "--connect-limit",
    type=click.IntRange(min=1),
    default=DEFAULT_LIMIT,
    show_default=True,
    help="User connections at a time; the next one is refused in a sentence.",
)
@click.option(
    "--heartbeat-to",
    type=click.Choice(["auth", "backend"]),
    default="auth",
    show_default=True,
    help="Who writes its resource: an auth, over HTTP, or the proxy itself, to the backend.",
)
@click.option(
    "--auth-http",
    type=ADDRESSES,
    default=(),
    help="HTTP ports of the auths to heartbeat through. Default: those that the auths in the backend advertise.",
)
@click.option(
    "--tunnel-v01-listen",
    type=ADDRESS,
    help="Port for tunnels of version 0.1 of TCP over gRPC; 0 is any. Default: none.",
)
@click.option(
    "--drain",
    type=node_flags.DURATION,
    default="2s",
    show_default=True,
    help="How long agents may take to leave when the proxy is told to end.",
)
def command(
    keep_alive_interval: float | None,
    keep_alive_count_max: int | None,
    connect_listen: tuple[str, int] | None,
    connect_advertise: tuple[str, int] | None,
    connect_tokens: Path | None,
    connect_limit: int,
    heartbeat_to: str,
    auth_http: tuple[tuple[str, int], ...],
    tunnel_v01_listen: tuple[str, int] | None,
    drain: float,
    **options: Any,
) -> None:
    """Run a proxy.

    Its group: TELEPORT_UNSTABLE_PROXYGROUP_ID and TELEPORT_UNSTABLE_PROXYGROUP_GEN. Discovery: what heartbeated, with
    its TTL; TELEPORT_UNSTABLE_PROXY_COMPACT_DISCOVERY=false sends full lists on a ticker instead.
    TELEPORT_UNSTABLE_REVERSETUNNEL_RECONNECT_INTERVAL=1h advises each agent every 1h to 1h30m to reconnect elsewhere.
    """

    if auth_http and heartbeat_to != "auth":
        raise click.UsageError("--auth-http is nothing with --heartbeat-to backend")

    def flags_of(instance: InstanceFlags) -> ProxyFlags:
        return ProxyFlags(
            instance=instance,
            overrides=Overrides(
                keep_alive_interval=keep_alive_interval, keep_alive_count_max=keep_alive_count_max
            ),
            drain=drain,
            connect=_connect_flags(connect_listen, connect_advertise, connect_tokens, connect_limit),
            heartbeat=HeartbeatFlags(heartbeat_to == "auth", auth_http),
            tunnel_v01_listen=tunnel_v01_listen,
        )

    node_policies.run_instance(
        "proxy",
        lambda instance, own: serve(from_environment(flags_of(instance), own.merge_environment()), own),
        **options,
    )
