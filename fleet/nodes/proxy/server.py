"""`python -m fleet.nodes proxy`: holds agents' reverse tunnels, tells agents about proxies, and lists its tunnels."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
from prometheus_client import Gauge

from fleet.nodes.proxy.agent_status import AgentStatusServicer
from fleet.nodes.proxy.auth_sessions import AuthSessionHandler
from fleet.nodes.proxy.connect.access import DEFAULT_USER_LIMIT, ConnectFlags, read_tokens
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
    """Configuration of one proxy."""

    instance: InstanceFlags
    #: Settings that take precedence over the networking config.
    overrides: Overrides = field(default_factory=Overrides)
    #: True: compact discovery of RFD 226 (only proxies with new heartbeats). False: full lists at intervals.
    compact_discovery: bool = True
    #: Seconds that agents may take to leave when the proxy stops.
    drain: float = 2.0
    #: Configuration of the CONNECT port; None: no such port.
    connect: ConnectFlags | None = None
    #: Seconds between the periodic advice to reconnect, per agent; 0: never.
    reconnect_interval: float = 0.0
    heartbeat: HeartbeatFlags = field(default_factory=HeartbeatFlags)
    #: Listen address for tunnels of version 0.1; None: not accepted.
    tunnel_v01_listen: tuple[str, int] | None = None


class Proxy:
    """A proxy: its gRPC services, its CONNECT port and its heartbeats."""

    def __init__(
        self,
        flags: ProxyFlags,
        policies: Policies | None = None,
        restart: Callable[[float | None], None] | None = None,
    ) -> None:
        """Raises NodeStartError if the configuration cannot be used."""
        self.flags = flags
        self.instance = Instance("proxy", flags.instance)
        if flags.heartbeat.through_auth:
            self.instance.presence = AuthPresence(self.instance, flags.heartbeat.auth_addresses)
        self._publisher = Publisher(flags.instance.announce_ttl, compact=flags.compact_discovery)
        auth_handler = AuthSessionHandler(self.instance)
        metrics = ProxyMetrics(self.instance.registry)
        self.tunnels = ReverseTunnels(
            flags.instance.id,
            flags.instance.cluster,
            self._publisher,
            tunnel_settings.resolve(flags.overrides, None).keep_alive,
            metrics,
            self.instance.refusals,
            flags.reconnect_interval,
            auth_handler.accept_session,
        )
        self.table = self.tunnels.table
        self.instance.declared_status.add_listener(self._on_status_change)
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
        policies = policies or node_policies.load("proxy", None, {})
        NodePoliciesServicer(self.instance, policies, restart).add_to(self.instance.server)
        tunnel_gauge = Gauge(
            "teleport_reverse_tunnels_connected",
            "Live reverse tunnels",
            ["type"],
            registry=self.instance.registry,
        )
        tunnel_gauge.labels("node").set_function(lambda: float(len(self.table)))
        self.connect_port: ConnectPort | None = None
        if flags.connect is not None:
            connect_metrics = ConnectMetrics(self.instance.registry, self.table.count_by_state)
            self.connect_port = ConnectPort(flags.connect, self.instance, self.tunnels, connect_metrics)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listen and register. Raises NodeStartError."""
        try:
            if self.connect_port is not None:
                await self.connect_port.start()
                self.instance.labels[CONNECT_LABEL] = self.connect_port.advertised_address
            if self.tunnel_v01 is not None:
                await self.tunnel_v01.start()
            await self.instance.start()
        except lifecycle.NodeStartError:
            if self.tunnel_v01 is not None:
                await self.tunnel_v01.stop()
            if self.connect_port is not None:
                await self.connect_port.stop()
            raise
        ttl = self.flags.instance.announce_ttl
        detection = discovery.detection_seconds(ttl, compact=self.flags.compact_discovery)
        if detection > discovery.RFD_DETECTION_SECONDS:
            log.warning(
                "discovery.slow: with an announce TTL of %s, agents drop a dead proxy only after up to %s, which is "
                "longer than the %s that RFD 226 wants to shorten: lower %s",
                durations.format_seconds(ttl),
                durations.format_seconds(round(detection)),
                durations.format_seconds(discovery.RFD_DETECTION_SECONDS),
                announce.PROXY_TTL_VARIABLE,
            )
        self._tasks = [
            background.start(self._watch_proxies(), name="proxy watcher"),
            background.start(self._sweep(), name="tunnel sweeper"),
        ]

    def ready_fields(self) -> dict[str, object]:
        """Return the content of the ready line."""
        fields = self.instance.ready_fields()
        if self.connect_port is not None:
            fields["connect"] = self.connect_port.address
        if self.tunnel_v01 is not None:
            fields["tunnel_v01"] = self.tunnel_v01.address
        return fields

    def listen_flags(self) -> list[str]:
        """Return the flags with which the next run listens on the same addresses."""
        flags = self.instance.listen_flags()
        if self.connect_port is not None:
            flags += ["--connect-listen", self.connect_port.address]
        if self.tunnel_v01 is not None:
            flags += ["--tunnel-v01-listen", self.tunnel_v01.address]
        return flags

    async def stop(self, drain: float | None = None) -> None:
        """Stop gracefully: deregister, advise agents to leave, wait for them, then close everything.

        `drain` in seconds; None: the configured drain time.
        """
        self.tunnels.is_shutting_down = True
        if self.connect_port is not None:
            await self.connect_port.stop_accepting()
        await self.instance.deregister()
        self.tunnels.reconnect_advisor.shut_down()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.flags.drain if drain is None else drain):
                await self.table.wait_until_empty()
                if self.connect_port is not None:
                    # Users whose agents are connected to other proxies use no tunnel of this one.
                    await self.connect_port.wait_until_empty()
        if self.connect_port is not None:
            await self.connect_port.stop()
        self.table.end_all(SHUTTING_DOWN, time.monotonic())
        await background.stop(self._tasks)
        if self.tunnel_v01 is not None:
            await self.tunnel_v01.stop()
        await self.instance.stop()

    def _on_status_change(self) -> None:
        self.tunnels.is_drained = self.instance.declared_status.draining_declaration is not None

    async def _watch_proxies(self) -> None:
        """Watch the proxies in the backend, and tell agents about changes.

        In compact mode, the heartbeats of a fifth of the TTL are collected into one message. Sending each at once would
        cost 50 % more messages, and detection takes the TTL in any case.
        """
        interval = discovery.read_interval(
            self.flags.instance.announce_ttl, compact=self.flags.compact_discovery
        )
        is_backend_reachable = True
        # Proxies that start together do not read together.
        pause = interval * random.random()
        while True:
            try:
                servers = await self.instance.backend.list_instances("proxy")
                if self._publisher.observe(map(_proxy_resource_of, servers), time.monotonic()):
                    self.table.wake_all()
                await self.networking.apply_stored_config()
            except BackendUnavailableError as error:
                # Nothing is observed, so the proxies that agents know expire, this one included. That is intended.
                if is_backend_reachable:
                    log.warning("backend.unreachable: cannot read the backend: %s", error)
                is_backend_reachable = False
            else:
                if not is_backend_reachable:
                    log.info("backend.reachable: the backend responds again")
                is_backend_reachable = True
            await asyncio.sleep(pause)
            pause = interval

    async def _sweep(self) -> None:
        while True:
            # If a full list is late, agents take live proxies for expired.
            soonest = min(self.table.keep_alive.interval, self._publisher.full_interval)
            tick = min(max(soonest / 4, 0.05), 1.0)
            await asyncio.sleep(tick)
            now = time.monotonic()
            self.table.sweep(now, tick)
            self.tunnels.reconnect_advisor.sweep(now)


def _proxy_resource_of(server: types_pb2.ServerV2) -> ProxyResource:
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
    """Return the announce TTL of a label in seconds; 0 if it is invalid. At most a day."""
    try:
        return min(durations.parse(label), _LONGEST_TTL)
    except DurationError:
        return 0.0


def group_labels(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of the proxy's group. Raises NodeStartError if the generation is not a 64-bit number."""
    labels = {}
    group, generation = environment.get(GROUP_VARIABLE, ""), environment.get(GENERATION_VARIABLE, "")
    if group:
        labels[GROUP_ID_LABEL] = group
    if generation:
        if not (generation.isascii() and generation.isdigit() and int(generation) < 1 << 64):
            raise lifecycle.NodeStartError(
                f"{GENERATION_VARIABLE}={generation!r} must be a whole number of up to 64 bits"
            )
        labels[GENERATION_LABEL] = generation
    return labels


def from_environment(flags: ProxyFlags, environment: Mapping[str, str]) -> ProxyFlags:
    """Return the flags completed from environment variables. Raises NodeStartError."""
    try:
        # Compact discovery, as in RFD 226, unless switched off.
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


async def serve(flags: ProxyFlags, policies: Policies) -> list[str] | None:
    """Run a proxy until it must stop; return the command line of its next run, if it must restart.

    Raises NodeStartError.
    """
    shutdown = lifecycle.Shutdown()
    proxy = Proxy(flags, policies, shutdown.request_restart)
    await proxy.start()
    shutdown.restart_flags = proxy.listen_flags()
    lifecycle.set_on_stop_signal(shutdown.stop_event)
    try:
        lifecycle.print_ready_line(**proxy.ready_fields())
        await shutdown.stop_event.wait()
    finally:
        await proxy.stop(shutdown.drain)
    return shutdown.restart_argv()


def _connect_flags(
    listen: tuple[str, int] | None, advertise: tuple[str, int] | None, tokens: Path | None, limit: int
) -> ConnectFlags | None:
    if listen is None:
        if advertise is not None or tokens is not None:
            raise lifecycle.NodeStartError("--connect-advertise and --connect-tokens need --connect-listen")
        return None
    return ConnectFlags(listen, advertise, read_tokens(tokens) if tokens else (), limit)


@click.command("proxy")
@node_flags.instance_options(ttl_variable=announce.PROXY_TTL_VARIABLE)
@node_flags.keep_alive_options
@click.option(
    "--connect-listen",
    type=ADDRESS,
    help="Listen address of the CONNECT port, where users reach agents' services; port 0: any free port. Default: "
    "none.",
)
@click.option(
    "--connect-advertise",
    type=ADDRESS,
    help="Address at which others reach the CONNECT port. Default: the listen address.",
)
@click.option(
    "--connect-tokens",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with tokens, one per line. Each token admits a user. Without tokens and without --tls-ca, the CONNECT "
    "port must listen on loopback.",
)
@click.option(
    "--connect-limit",
    type=click.IntRange(min=1),
    default=DEFAULT_USER_LIMIT,
    show_default=True,
    help="Maximum number of user connections. Further ones are refused.",
)
@click.option(
    "--heartbeat-to",
    type=click.Choice(["auth", "backend"]),
    default="auth",
    show_default=True,
    help="Who registers the proxy: an auth, over HTTP, or the proxy itself, in the backend.",
)
@click.option(
    "--auth-http",
    type=ADDRESSES,
    default=(),
    help="HTTP addresses of the auths that receive heartbeats. Default: the addresses that auths advertise in the "
    "backend.",
)
@click.option(
    "--tunnel-v01-listen",
    type=ADDRESS,
    help="Listen address for tunnels of version 0.1 of TCP over gRPC; port 0: any free port. Default: none.",
)
@click.option(
    "--drain",
    type=node_flags.DURATION,
    default="2s",
    show_default=True,
    help="Time for agents to leave when the proxy stops.",
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

    TELEPORT_UNSTABLE_PROXYGROUP_ID and TELEPORT_UNSTABLE_PROXYGROUP_GEN set the proxy group and its generation. By
    default, the proxy sends its agents only the proxies that sent a heartbeat since the last message; with
    TELEPORT_UNSTABLE_PROXY_COMPACT_DISCOVERY=false it sends the full list at intervals.
    TELEPORT_UNSTABLE_REVERSETUNNEL_RECONNECT_INTERVAL=1h advises each agent every 1h to 1h30m to reconnect to another
    proxy.
    """

    if auth_http and heartbeat_to != "auth":
        raise click.UsageError("--auth-http cannot be used with --heartbeat-to backend")

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
        lambda instance, policies: serve(
            from_environment(flags_of(instance), policies.merge_environment()), policies
        ),
        **options,
    )
