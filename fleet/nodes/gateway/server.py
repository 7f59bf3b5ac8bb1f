"""The L7 gateway: gRPC calls go to backends by GRPCRoute rules, whatever their messages are. docs/gateway.md

Retries as GEP-3440 has them, backends probed and picked by health, routes read again when their file changes.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from fleet.nodes.gateway import backends as gateway_backends
from fleet.nodes.gateway import descriptors as gateway_descriptors
from fleet.nodes.gateway import heads
from fleet.nodes.gateway.backends import Backends, Ref
from fleet.nodes.gateway.certificates import Certificates, TLSContexts
from fleet.nodes.gateway.listener import GatewayListener
from fleet.nodes.gateway.metrics import DestinationHealth, GatewayMetrics
from fleet.nodes.gateway.routes_file import RoutesFileError, RoutesFile
from fleet.nodes.gateway.site import gateway_site
from fleet.nodes.shared import addresses, http_site, lifecycle
from fleet.nodes.shared.flags import DURATION, POSITIVE, destination_health_option, tls_options
from fleet.nodes.shared.options import ParsedOption
from fleet.nodes.shared.picking_options import picking_options
from fleet.protocol.destination import health as destination
from fleet.protocol.destination import picker, probe_schedule
from fleet.protocol.retry.budget import RetryBudget, BudgetSettings
from fleet.protocol.retry.route_table import RouteTable
from fleet.transport import diag
from fleet.transport.http2.options import ConnectionOptions
from fleet.transport.process import ProcessHealth
from fleet.transport.tls import TLSError, TLSFiles

log = logging.getLogger(__name__)

#: Nobody knows what backends can take unless it is said: no guard, for it would send calls to dead ones.
_PICKING_SETTINGS = picker.with_headroom(picker.DEFAULTS, None)

#: gRPC servers end a connection that pings more often than once in 5 minutes without data of theirs in between.
_PING_WITHOUT_DATA = 310.0
#: A header list of a backend, bytes: the details of a status are longer than what callers may send.
_BACKEND_HEADER_LIST = 1024 * 1024


@dataclass(frozen=True, slots=True)
class GatewayFlags:
    """How a gateway is configured. Seconds, bytes."""

    routes: Path
    name: str = "gateway"
    listen: tuple[str, int] = ("127.0.0.1", 0)
    diag_listen: tuple[str, int] = ("127.0.0.1", 0)
    backends: Mapping[Ref, Sequence[tuple[str, int]]] | None = None
    tls: TLSFiles = field(default_factory=TLSFiles)
    #: Towards backends; None: no TLS.
    backend_tls: TLSFiles | None = None
    probe_interval: float = probe_schedule.DEFAULTS.interval
    probe_timeout: float = probe_schedule.DEFAULTS.timeout
    dial_timeout: float = 2.0
    #: Silence of a backend after which it is pinged, however often; None: as often as every gRPC server permits.
    backend_keepalive: float | None = None
    max_message: int = 4 * 1024 * 1024
    #: How much of all that is sent may be retries, percent; None: no limit.
    retry_budget: int | None = None
    drain: float = 10.0
    picking_settings: picker.Settings = _PICKING_SETTINGS
    #: Paths of methods whose answers are streams.
    streams: frozenset[str] = frozenset()
    destination_health: destination.HealthSettings = destination.RECOMMENDED_SETTINGS


class Gateway:
    """All parts of one, wired."""

    def __init__(self, flags: GatewayFlags) -> None:
        """Make it. Raises StartError when the TLS files cannot be used."""
        self.flags = flags
        self.process = ProcessHealth(tick=1.0)
        self.process.register("gateway")
        self.registry = diag.new_registry(self.process)
        self.metrics = GatewayMetrics(self.registry)
        try:
            self.certificates = Certificates(
                flags.tls, flags.backend_tls, self._apply_certificates, self.metrics.record_certificates
            )
        except TLSError as error:
            raise lifecycle.NodeStartError(f"TLS: {error}") from None
        client_tls = self.certificates.contexts.backends
        self.backends = Backends(
            fixed_addresses=flags.backends or {},
            probes=_probes(flags),
            health=flags.destination_health,
            options=_backend_options(flags),
            dial_within=flags.dial_timeout,
            tls=client_tls,
            server_name=flags.backend_tls.server_name if flags.backend_tls else "",
            on_resolved=self._on_resolved,
        )
        DestinationHealth(self.backends.destinations, self.registry)
        budget = flags.retry_budget
        self.listener = GatewayListener(
            self.backends,
            self.metrics,
            heads.make_request_reader(secure=client_tls is not None),
            ConnectionOptions(),
            max_message=flags.max_message,
            picking_settings=flags.picking_settings,
            streams=flags.streams,
            budget=None if budget is None else RetryBudget(BudgetSettings(percent=budget)),
        )
        self.file = RoutesFile(flags.routes, self._apply, self.metrics.record_routes)

    async def start(self) -> str:
        """Read the routes and listen; where. Raises StartError."""
        try:
            await self.file.load()
        except RoutesFileError as error:
            raise lifecycle.NodeStartError(str(error)) from None
        bound = await lifecycle.start_listening(
            self.flags.listen, self.listener.listen(self.flags.listen, self.certificates.contexts.callers)
        )
        self.listener.tasks.start(self.file.files.watch())
        self.listener.tasks.start(self.certificates.files.watch())
        self.listener.tasks.start(self.backends.keep_resolving())
        self.process.record_success("gateway", asyncio.get_running_loop().time())
        return bound

    async def stop(self) -> None:
        """Let calls end, then end."""
        self.process.leave()
        await self.listener.stop(self.flags.drain)
        await self.backends.close()

    async def _apply(self, table: RouteTable) -> None:
        refs = {(backend.name, backend.port) for route_entry in table.rules for backend in route_entry.rule.backends}
        await self.backends.use(refs)
        self.listener.route(table)

    def reload_now(self) -> None:
        """Read all files again, whether they changed or not."""
        self.file.files.reload_now()
        self.certificates.files.reload_now()

    async def _apply_certificates(self, contexts: TLSContexts) -> None:
        if contexts.backends is not None:
            self.backends.use_tls(contexts.backends)
        if contexts.callers is not None:
            await self.listener.use_tls(contexts.callers)

    def _on_resolved(self) -> None:
        self.listener.reroute()


def _probes(flags: GatewayFlags) -> probe_schedule.Settings:
    fast = min(probe_schedule.DEFAULTS.fast_interval, flags.probe_interval)
    return probe_schedule.Settings(
        interval=flags.probe_interval, fast_interval=fast, timeout=flags.probe_timeout
    )


def _backend_options(flags: GatewayFlags) -> ConnectionOptions:
    if flags.backend_keepalive is None:
        return ConnectionOptions(header_list=_BACKEND_HEADER_LIST, ping_without_data=_PING_WITHOUT_DATA)
    return ConnectionOptions(header_list=_BACKEND_HEADER_LIST, ping_after=flags.backend_keepalive)


async def serve(flags: GatewayFlags) -> None:
    """Run until SIGTERM or SIGINT; SIGHUP reads routes and certificates again. Raises StartError."""
    gateway = Gateway(flags)
    async with AsyncExitStack() as stack:
        bound = await gateway.start()
        stack.push_async_callback(gateway.stop)
        site = gateway_site(gateway.process, gateway.registry, gateway.listener, gateway.backends, gateway.file)
        diag_at = await stack.enter_async_context(http_site.serve(site, flags.diag_listen))
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, gateway.reload_now)
        lifecycle.announce(role="gateway", name=flags.name, grpc=bound, diag=diag_at)
        await lifecycle.wait_for_stop_signal()
        await gateway.stop()


def _method(text: str) -> str:
    if re.fullmatch(r"/?[^/\s]+/[^/\s]+", text) is None:
        raise ValueError(f"{text!r} is not SERVICE/METHOD")
    return "/" + text.removeprefix("/")


def _streams(text: str) -> frozenset[str]:
    return gateway_descriptors.streams_of(Path(text))


_PATH = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option(
    "--routes",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="GRPCRoutes as YAML; read again when it changes, or at SIGHUP.",
)
@click.option("--name", default="gateway", show_default=True, help="Its name in the ready line.")
@addresses.listen_option("--listen", "Where callers connect.")
@addresses.listen_option("--diag-listen", "/healthz, /readyz, /metrics, /routes, /destinations.")
@click.option(
    "--backend",
    "backends",
    type=ParsedOption("name:port=host:port[,...]", gateway_backends.parse_flag),
    multiple=True,
    help="Where a backendRef is; repeat. One that is not named is looked up by DNS.",
)
@click.option(
    "--stream",
    "streams",
    type=ParsedOption("service/method", _method),
    multiple=True,
    help="A method whose answer is a stream: its calls are passed on once, and never retried; repeat.",
)
@click.option(
    "--descriptors",
    type=ParsedOption("file", _streams),
    multiple=True,
    help="A descriptor set, as protoc and buf write it: its methods with streams are passed on once; repeat.",
)
@tls_options
@click.option(
    "--backend-tls", is_flag=True, help="TLS towards backends, by the system's CAs if none is given."
)
@click.option("--backend-tls-ca", type=_PATH, help="CA of the backends, PEM; turns TLS towards them on.")
@click.option("--backend-tls-cert", type=_PATH, help="Certificate to show to backends, PEM.")
@click.option("--backend-tls-key", type=_PATH, help="Its key, PEM.")
@click.option(
    "--backend-tls-server-name", default="", help="Name to expect in backends' certificates; default: theirs."
)
@click.option(
    "--probe-interval",
    type=DURATION,
    default="5s",
    show_default=True,
    help="Between health checks of a backend; 1s at most while something is in question.",
)
@click.option("--probe-timeout", type=DURATION, default="1s", show_default=True, help="For one health check.")
@picking_options
@destination_health_option
@click.option(
    "--dial-timeout", type=DURATION, default="2s", show_default=True, help="For connecting a backend."
)
@click.option(
    "--backend-keepalive",
    type=POSITIVE,
    default=None,
    help="Ping a silent backend this often while calls are open; default: as often as gRPC servers permit.",
)
@click.option(
    "--max-message",
    type=click.IntRange(min=1, max=(1 << 32) - 1),
    default=4 * 1024 * 1024,
    show_default=True,
    help="Bytes of the longest message, either way.",
)
@click.option(
    "--retry-budget",
    type=click.IntRange(0, 100),
    default=None,
    help="Percent of all tries that may be retries (GEP-3388); default: no limit.",
)
@click.option(
    "--drain", type=DURATION, default="10s", show_default=True, help="How long calls may take at the end."
)
def command(
    routes: Path,
    name: str,
    listen: tuple[str, int],
    diag_listen: tuple[str, int],
    backends: tuple[tuple[Ref, tuple[tuple[str, int], ...]], ...],
    streams: tuple[str, ...],
    descriptors: tuple[frozenset[str], ...],
    tls: TLSFiles,
    backend_tls: bool,
    backend_tls_ca: Path | None,
    backend_tls_cert: Path | None,
    backend_tls_key: Path | None,
    backend_tls_server_name: str,
    **limits: Any,
) -> None:
    """Route gRPC calls to backends by GRPCRoute rules."""
    towards = TLSFiles(backend_tls_cert, backend_tls_key, backend_tls_ca, backend_tls_server_name)
    flags = GatewayFlags(
        routes,
        name,
        listen,
        diag_listen,
        dict(backends),
        tls,
        towards if backend_tls or towards.enabled else None,
        streams=frozenset(streams).union(*descriptors),
        **limits,
    )
    if not (limits["probe_interval"] > 0 and limits["probe_timeout"] > 0 and limits["dial_timeout"] > 0):
        raise click.UsageError("--probe-interval, --probe-timeout and --dial-timeout are above 0")
    lifecycle.run(lambda: lifecycle.on_loop(serve(flags)))
