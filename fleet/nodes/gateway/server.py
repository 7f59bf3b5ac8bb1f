"""The L7 gateway: routes gRPC calls to backends by GRPCRoute rules, whatever their messages are.

docs/reference/gateway.md

Retries follow GEP-3440. Backends are probed and picked by health. Routes are reloaded when their file changes.
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
from fleet.nodes.gateway.metrics import DestinationHealthCollector, GatewayMetrics
from fleet.nodes.gateway.routes_file import RoutesFile, RoutesFileError
from fleet.nodes.gateway.site import gateway_site
from fleet.nodes.shared import addresses, http_site, lifecycle
from fleet.nodes.shared.flags import (
    DURATION,
    POSITIVE_DURATION,
    destination_health_option,
    server_tls_options,
)
from fleet.nodes.shared.options import ParsedOption
from fleet.nodes.shared.picking_options import picking_options
from fleet.protocol.destination import health as destination
from fleet.protocol.destination import picker, probe_schedule
from fleet.protocol.retry.budget import BudgetSettings, RetryBudget
from fleet.protocol.retry.route_table import RouteTable
from fleet.transport import diag
from fleet.transport.http2.options import ConnectionOptions
from fleet.transport.process import ProcessHealth
from fleet.transport.tls import TLSError, TLSFiles

log = logging.getLogger(__name__)

#: gRPC servers close a connection with more than one ping in 5 minutes without data of their own in between.
_PING_WITHOUT_DATA = 310.0
#: Largest header list of a backend, in bytes: details of a status are longer than what callers may send.
_MAX_BACKEND_HEADER_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class GatewayFlags:
    """Configuration of a gateway. Durations in seconds, sizes in bytes."""

    routes: Path
    name: str = "gateway"
    listen: tuple[str, int] = ("127.0.0.1", 0)
    diag_listen: tuple[str, int] = ("127.0.0.1", 0)
    backends: Mapping[Ref, Sequence[tuple[str, int]]] | None = None
    tls: TLSFiles = field(default_factory=TLSFiles)
    #: TLS files for backends; None: no TLS.
    backend_tls: TLSFiles | None = None
    probe_interval: float = probe_schedule.DEFAULTS.interval
    probe_timeout: float = probe_schedule.DEFAULTS.timeout
    dial_timeout: float = 2.0
    #: Seconds of silence after which a backend is pinged; None: as often as every gRPC server permits.
    backend_keepalive: float | None = None
    max_message: int = 4 * 1024 * 1024
    #: Largest share of retries among all attempts, percent; None: no limit.
    retry_budget: int | None = None
    drain: float = 10.0
    picking_settings: picker.PickerSettings = picker.DEFAULTS
    #: Paths of methods with streaming responses.
    streams: frozenset[str] = frozenset()
    destination_health: destination.HealthSettings = destination.RECOMMENDED_SETTINGS


class Gateway:
    """A gateway with all its parts."""

    def __init__(self, flags: GatewayFlags) -> None:
        """Raises NodeStartError if the TLS files cannot be used."""
        self.flags = flags
        self.process = ProcessHealth(tick=1.0)
        self.process.register("gateway")
        self.registry = diag.create_registry(self.process)
        self.metrics = GatewayMetrics(self.registry)
        try:
            self.certificates = Certificates(
                flags.tls, flags.backend_tls, self._apply_certificates, self.metrics.record_certificates_load
            )
        except TLSError as error:
            raise lifecycle.NodeStartError(f"TLS: {error}") from None
        client_tls = self.certificates.contexts.backends
        self.backends = Backends(
            fixed_addresses=flags.backends or {},
            probes=_probe_settings_of(flags),
            health=flags.destination_health,
            options=_connection_options_of(flags),
            dial_within=flags.dial_timeout,
            tls=client_tls,
            server_name=flags.backend_tls.server_name if flags.backend_tls else "",
            on_resolved=self._on_resolved,
        )
        DestinationHealthCollector(self.backends.destinations, self.registry)
        budget_percent = flags.retry_budget
        self.listener = GatewayListener(
            self.backends,
            self.metrics,
            heads.make_request_reader(secure=client_tls is not None),
            ConnectionOptions(),
            max_message=flags.max_message,
            picking_settings=flags.picking_settings,
            stream_methods=flags.streams,
            budget=None if budget_percent is None else RetryBudget(BudgetSettings(percent=budget_percent)),
        )
        self.routes_file = RoutesFile(flags.routes, self._apply_routes, self.metrics.record_routes_load)

    async def start(self) -> str:
        """Load the routes and listen; return host:port. Raises NodeStartError."""
        try:
            await self.routes_file.load()
        except RoutesFileError as error:
            raise lifecycle.NodeStartError(str(error)) from None
        grpc_address = await lifecycle.start_listening(
            self.flags.listen, self.listener.listen(self.flags.listen, self.certificates.contexts.callers)
        )
        self.listener.tasks.start(self.routes_file.watched_files.watch())
        self.listener.tasks.start(self.certificates.watched_files.watch())
        self.listener.tasks.start(self.backends.keep_resolving())
        self.process.record_success("gateway", asyncio.get_running_loop().time())
        return grpc_address

    async def stop(self) -> None:
        """Let calls finish, then stop."""
        self.process.leave()
        await self.listener.stop(self.flags.drain)
        await self.backends.close()

    async def _apply_routes(self, table: RouteTable) -> None:
        refs = {
            (backend.name, backend.port)
            for route_entry in table.rules
            for backend in route_entry.rule.backends
        }
        await self.backends.use(refs)
        self.listener.apply_routes(table)

    def reload_now(self) -> None:
        """Read all files again, changed or not."""
        self.routes_file.watched_files.reload_now()
        self.certificates.watched_files.reload_now()

    async def _apply_certificates(self, contexts: TLSContexts) -> None:
        if contexts.backends is not None:
            self.backends.use_tls(contexts.backends)
        if contexts.callers is not None:
            await self.listener.use_tls(contexts.callers)

    def _on_resolved(self) -> None:
        self.listener.reapply_routes()


def _probe_settings_of(flags: GatewayFlags) -> probe_schedule.ProbeSettings:
    fast = min(probe_schedule.DEFAULTS.fast_interval, flags.probe_interval)
    return probe_schedule.ProbeSettings(
        interval=flags.probe_interval, fast_interval=fast, timeout=flags.probe_timeout
    )


def _connection_options_of(flags: GatewayFlags) -> ConnectionOptions:
    if flags.backend_keepalive is None:
        return ConnectionOptions(
            max_header_list_size=_MAX_BACKEND_HEADER_BYTES, ping_interval_without_data=_PING_WITHOUT_DATA
        )
    return ConnectionOptions(
        max_header_list_size=_MAX_BACKEND_HEADER_BYTES, ping_after=flags.backend_keepalive
    )


async def serve(flags: GatewayFlags) -> None:
    """Run until SIGTERM or SIGINT; SIGHUP reloads routes and certificates. Raises NodeStartError."""
    gateway = Gateway(flags)
    async with AsyncExitStack() as stack:
        grpc_address = await gateway.start()
        stack.push_async_callback(gateway.stop)
        site = gateway_site(
            gateway.process, gateway.registry, gateway.listener, gateway.backends, gateway.routes_file
        )
        diag_address = await stack.enter_async_context(http_site.serve(site, flags.diag_listen))
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, gateway.reload_now)
        lifecycle.print_ready_line(role="gateway", name=flags.name, grpc=grpc_address, diag=diag_address)
        await lifecycle.wait_for_stop_signal()
        await gateway.stop()


def _parse_method(text: str) -> str:
    if re.fullmatch(r"/?[^/\s]+/[^/\s]+", text) is None:
        raise ValueError(f"{text!r} is not SERVICE/METHOD")
    return "/" + text.removeprefix("/")


def _read_stream_methods(text: str) -> frozenset[str]:
    return gateway_descriptors.streams_of(Path(text))


_PATH = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option(
    "--routes",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="YAML file with GRPCRoutes. Reloaded when it changes, and at SIGHUP.",
)
@click.option("--name", default="gateway", show_default=True, help="Name of this gateway in the ready line.")
@addresses.listen_option("--listen", "Listen address for gRPC calls; port 0: any free port.")
@addresses.listen_option(
    "--diag-listen",
    "Listen address of /healthz, /readyz, /metrics, /routes and /destinations; port 0: any free port.",
)
@click.option(
    "--backend",
    "backends",
    type=ParsedOption("name:port=host:port[,...]", gateway_backends.parse_flag),
    multiple=True,
    help="Addresses of a backendRef. Repeatable. Other backendRefs are looked up by DNS.",
)
@click.option(
    "--stream",
    "streams",
    type=ParsedOption("service/method", _parse_method),
    multiple=True,
    help="Method with a streaming response. Its calls are never retried. Repeatable.",
)
@click.option(
    "--descriptors",
    type=ParsedOption("file", _read_stream_methods),
    multiple=True,
    help="Descriptor set, as protoc and buf write it. Calls of its streaming methods are never retried. Repeatable.",
)
@server_tls_options
@click.option(
    "--backend-tls",
    is_flag=True,
    help="Use TLS to backends; without --backend-tls-ca, with the system's CAs.",
)
@click.option("--backend-tls-ca", type=_PATH, help="CA of the backends (PEM). Implies --backend-tls.")
@click.option("--backend-tls-cert", type=_PATH, help="Client certificate for backends (PEM).")
@click.option("--backend-tls-key", type=_PATH, help="Private key of --backend-tls-cert (PEM).")
@click.option(
    "--backend-tls-server-name",
    default="",
    help="Host name to expect in backends' certificates. Default: the name of the backend.",
)
@click.option(
    "--probe-interval",
    type=DURATION,
    default="5s",
    show_default=True,
    help="Time between two health checks of a backend; at most 1s while its health may be changing.",
)
@click.option(
    "--probe-timeout", type=DURATION, default="1s", show_default=True, help="Timeout of a health check."
)
@picking_options
@destination_health_option
@click.option(
    "--dial-timeout",
    type=DURATION,
    default="2s",
    show_default=True,
    help="Timeout of connecting to a backend.",
)
@click.option(
    "--backend-keepalive",
    type=POSITIVE_DURATION,
    default=None,
    help="Ping a silent backend this often while it has open calls. Default: as often as gRPC servers permit.",
)
@click.option(
    "--max-message",
    type=click.IntRange(min=1, max=(1 << 32) - 1),
    default=4 * 1024 * 1024,
    show_default=True,
    help="Maximum size of a message in bytes, in both directions.",
)
@click.option(
    "--retry-budget",
    type=click.IntRange(0, 100),
    default=None,
    help="Maximum share of retries among all attempts, in percent (GEP-3388). Default: no limit.",
)
@click.option(
    "--drain",
    type=DURATION,
    default="10s",
    show_default=True,
    help="Time for open calls to finish when the gateway stops.",
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
    backend_tls_files = TLSFiles(backend_tls_cert, backend_tls_key, backend_tls_ca, backend_tls_server_name)
    flags = GatewayFlags(
        routes,
        name,
        listen,
        diag_listen,
        dict(backends),
        tls,
        backend_tls_files if backend_tls or backend_tls_files.enabled else None,
        streams=frozenset(streams).union(*descriptors),
        **limits,
    )
    if not (limits["probe_interval"] > 0 and limits["probe_timeout"] > 0 and limits["dial_timeout"] > 0):
        raise click.UsageError("--probe-interval, --probe-timeout and --dial-timeout must be greater than 0")
    lifecycle.run(lambda: lifecycle.run_on_loop(serve(flags)))
