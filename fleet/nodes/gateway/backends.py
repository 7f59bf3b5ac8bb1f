"""The backends of a gateway: their addresses, health checks (grpc.health.v1) and connections.

docs/reference/gateway.md
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from fleet.nodes.gateway import heads
from fleet.nodes.gateway.error_containment import contain_errors
from fleet.nodes.gateway.heads import ResponseHead
from fleet.nodes.shared import addresses
from fleet.protocol.destination import instance_status, probe_schedule
from fleet.protocol.destination.health import RECOMMENDED_SETTINGS, HealthSettings, ProbeOutcome
from fleet.protocol.destination.instance_status import InstanceStatus
from fleet.protocol.retry import grpc_http2
from fleet.protocol.retry.grpc_http2 import Status
from fleet.protocol.retry.grpc_route import BackendRef
from fleet.transport.destinations import Destinations, ProbeResult
from fleet.transport.http2.backend_dialer import BackendDialer, DialError
from fleet.transport.http2.fields import HeaderBlockCache, encode, plain
from fleet.transport.http2.frames import ErrorCode
from fleet.transport.http2.options import ConnectionOptions

log = logging.getLogger(__name__)

#: What a rule refers to: `backendRefs[].name` and `.port`.
Ref = tuple[str, int]

#: Seconds between two DNS lookups of a name; the second value is for names without an address.
_RESOLVE_INTERVAL, _RESOLVE_RETRY_INTERVAL = 30.0, 2.0
_CHECK_PATH = b"/grpc.health.v1.Health/Check"
#: An empty request: the health of the whole server.
_CHECK_REQUEST = b"\0\0\0\0\0"


class Backends:
    """Addresses of all backends, with their connections and health."""

    def __init__(
        self,
        *,
        fixed_addresses: Mapping[Ref, Sequence[tuple[str, int]]],
        probes: probe_schedule.ProbeSettings,
        options: ConnectionOptions,
        dial_within: float,
        tls: ssl.SSLContext | None,
        server_name: str,
        on_resolved: Callable[[], None],
        health: HealthSettings = RECOMMENDED_SETTINGS,
    ) -> None:
        """Start without backends. `on_resolved` is called when the addresses of a name have changed."""
        self._fixed_addresses = fixed_addresses
        self._options = options
        self._dial_within = dial_within
        self._tls = tls
        self._server_name = server_name
        self._on_resolved = on_resolved
        self._head_cache: HeaderBlockCache[ResponseHead] = HeaderBlockCache(heads.read_response_head)
        self._refs: frozenset[Ref] = frozenset()
        self._addresses: dict[Ref, tuple[tuple[str, int], ...]] = {}
        #: Errors of lookups, each logged once.
        self._lookup_errors: dict[Ref, str] = {}
        self._dialers: dict[str, BackendDialer] = {}
        self._wakeup = asyncio.Event()
        self.destinations = Destinations(self._probe, health_settings=health, probe_settings=probes)

    async def use(self, refs: Iterable[Ref]) -> None:
        """Use these backends and no others. Return after the first lookup of all names."""
        self._refs = frozenset(refs)
        await self._resolve_all()
        self._wakeup.set()

    async def keep_resolving(self) -> None:
        """Look up all names again at intervals, forever."""
        while True:
            wait = (
                _RESOLVE_INTERVAL
                if all(self._addresses.get(ref) for ref in self._refs)
                else _RESOLVE_RETRY_INTERVAL
            )
            self._wakeup.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._wakeup.wait()
            except TimeoutError:
                try:
                    if await self._resolve_all():
                        self._on_resolved()
                except Exception:
                    log.exception("internal error while looking up backends")

    def weights_of(self, backends: Iterable[BackendRef]) -> dict[str, float]:
        """Return the weight of each address of a rule: a backend's weight is divided among its addresses."""
        weights: dict[str, float] = {}
        for backend in backends:
            backend_addresses = self._addresses.get((backend.name, backend.port), ())
            for address in backend_addresses:
                name = addresses.join(*address)
                weights[name] = weights.get(name, 0.0) + backend.weight / len(backend_addresses)
        return weights

    def use_tls(self, tls: ssl.SSLContext) -> None:
        """Use this TLS context for new connections to backends."""
        self._tls = tls
        for dialer in self._dialers.values():
            dialer.use_tls(tls)

    def dialer_of(self, address: str) -> BackendDialer:
        """Return the connections to an address."""
        return self._dialers[address]

    async def close(self) -> None:
        """Stop health checks and close connections."""
        await self.destinations.close()
        await asyncio.gather(*(dialer.close() for dialer in self._dialers.values()))

    def describe(self) -> list[dict[str, Any]]:
        """Return the content of `GET /destinations`."""
        backends_by_destination: dict[str, list[str]] = {}
        for ref, backend_addresses in sorted(self._addresses.items()):
            for address in backend_addresses:
                backends_by_destination.setdefault(addresses.join(*address), []).append(f"{ref[0]}:{ref[1]}")
        return [
            {
                "address": destination.name,
                "backends": backends_by_destination.get(destination.name, []),
                "health": destination.verdict.health.value,
                "reason": destination.verdict.reason.value,
                "since": destination.verdict.changed_at,
                "active": destination.verdict.active.health.value,
                "passive": destination.verdict.passive.health.value,
                "declared": destination.verdict.declaration.health.value,
                "draining": destination.verdict.drain_request is not None,
                "probed_at": destination.probed_at,
                "error": destination.error,
                "connections": self._dialers[destination.name].connection_count,
            }
            for destination in self.destinations
        ]

    def list_unresolved(self) -> list[str]:
        """Return the names without an address."""
        return sorted(f"{name}:{port}" for name, port in self._refs if not self._addresses.get((name, port)))

    async def _resolve_all(self) -> bool:
        requested_refs = self._refs
        refs = sorted(requested_refs)
        resolved_addresses = dict(zip(refs, await asyncio.gather(*map(self._resolve, refs)), strict=True))
        # If the backends changed during the lookup, the change has its own lookup.
        if resolved_addresses == self._addresses or self._refs is not requested_refs:
            return False
        self._addresses = resolved_addresses
        backends_by_destination = {
            addresses.join(*address): (ref[0], address)
            for ref in refs
            for address in resolved_addresses.get(ref, ())
        }
        self.destinations.set_destinations(backends_by_destination)
        # An address that belongs to another name now must show a certificate for that name.
        kept_destinations = {
            name
            for name, dialer in self._dialers.items()
            if name in backends_by_destination
            and dialer.server_name == self._certificate_name_of(backends_by_destination[name][0])
        }
        for name in self._dialers.keys() - kept_destinations:
            self._dialers.pop(name).retire()
        for name, (backend, address) in backends_by_destination.items():
            if name not in self._dialers:
                self._dialers[name] = BackendDialer(
                    address,
                    self._head_cache,
                    self._options,
                    within=self._dial_within,
                    tls=self._tls,
                    server_name=self._certificate_name_of(backend),
                )
        return True

    def _certificate_name_of(self, backend: str) -> str:
        """Return the name that a backend's certificate must be valid for."""
        return self._server_name or backend

    async def _resolve(self, ref: Ref) -> tuple[tuple[str, int], ...]:
        if ref in self._fixed_addresses:
            return tuple(self._fixed_addresses[ref])
        try:
            address_infos = await asyncio.get_running_loop().getaddrinfo(*ref, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            # A failed lookup does not make the previous addresses wrong.
            reason = str(error if isinstance(error, UnicodeError) else error.strerror or error)
            if self._lookup_errors.get(ref) != reason:
                log.warning("cannot look up backend %s:%d: %s", *ref, reason)
            self._lookup_errors[ref] = reason
            return self._addresses.get(ref, ())
        if self._lookup_errors.pop(ref, None) is not None:
            log.info("backend %s:%d can be looked up again", *ref)
        return tuple(sorted({(str(address[0]), int(address[1])) for *_, address in address_infos}))

    async def _probe(self, name: str) -> ProbeResult:
        try:
            connection = await self._dialers[name].dial()
        except DialError as error:
            return ProbeResult(ProbeOutcome.FAILURE, str(error))
        check = _HealthCheck()
        stream = connection.open(self._check_head(name))
        stream.listener = check
        stream.send_data(_CHECK_REQUEST, end=True)
        try:
            return await check.response
        finally:
            stream.reset(ErrorCode.CANCEL)

    def _check_head(self, name: str) -> bytes:
        return encode(
            plain(
                (b":method", b"POST"),
                (b":scheme", b"http" if self._tls is None else b"https"),
                (b":path", _CHECK_PATH),
                (b":authority", (self._server_name or name).encode()),
                (b"content-type", b"application/grpc"),
                (b"te", b"trailers"),
                (b"user-agent", b"refloat-gateway"),
            )
        )


class _HealthCheck:
    """Receives the response to one health check."""

    def __init__(self) -> None:
        self.response: asyncio.Future[ProbeResult] = asyncio.get_running_loop().create_future()
        self._body = b""
        self._status = instance_status.EMPTY_STATUS

    @contain_errors
    def on_headers(self, head: ResponseHead, *, end: bool) -> None:
        """Handle headers or trailers."""
        previous_status = self._status
        self._status = InstanceStatus(
            "" if head.is_degraded else previous_status.degraded_reason,
            head.draining_reason
            if previous_status.draining_reason is None
            else previous_status.draining_reason,
        )
        if head.http_status not in {None, 200}:
            self._set_response(
                ProbeResult(ProbeOutcome.FAILURE, f"the health check returned HTTP {head.http_status}")
            )
        elif end:
            self._set_response(replace(self._response_of(head), status=self._status))

    @contain_errors
    def on_data(self, data: bytes, *, end: bool) -> None:
        """Handle message bytes."""
        self._body += data[:1024]
        if end:
            self._set_response(ProbeResult(ProbeOutcome.FAILURE, "the health check ended without a status"))

    @contain_errors
    def on_reset(self, code: ErrorCode, reason: str) -> None:
        """Handle a reset by the backend."""
        self._set_response(
            ProbeResult(ProbeOutcome.FAILURE, reason or f"the backend reset the health check: {code.name}")
        )

    @contain_errors
    def on_lost(self, reason: str) -> None:
        """Handle the loss of the connection."""
        self._set_response(ProbeResult(ProbeOutcome.FAILURE, f"the connection was lost: {reason}"))

    def abort(self) -> None:
        """End this check after an internal error. Calls on the connection continue."""
        self._set_response(
            ProbeResult(ProbeOutcome.FAILURE, "the response to the health check could not be processed")
        )

    def _response_of(self, head: ResponseHead) -> ProbeResult:
        if head.status is Status.UNIMPLEMENTED:
            # The backend has no health service. That it responds has to be enough.
            return self._make_serving_response()
        if head.status is not Status.OK:
            details = grpc_http2.read_message(head.message)
            return ProbeResult(
                ProbeOutcome.FAILURE,
                f"the health check returned {head.status.name if head.status else 'no status'}: {details}",
            )
        try:
            status = health_pb2.HealthCheckResponse.FromString(self._body[grpc_http2.PREFIX_LENGTH :]).status
        except DecodeError:
            return ProbeResult(ProbeOutcome.FAILURE, "the response to the health check is not valid")
        if status != health_pb2.HealthCheckResponse.SERVING:
            return ProbeResult(ProbeOutcome.FAILURE, f"the backend reported {_status_name(status)}")
        return self._make_serving_response()

    def _make_serving_response(self) -> ProbeResult:
        if self._status.degraded_reason is None:
            return ProbeResult(ProbeOutcome.SUCCESS)
        return ProbeResult(ProbeOutcome.DEGRADED, "the backend reported degraded")

    def _set_response(self, response: ProbeResult) -> None:
        if not self.response.done():
            self.response.set_result(response)


def _status_name(status: int) -> str:
    """Return the name of a serving status, or its number if it is unknown."""
    statuses = health_pb2.HealthCheckResponse.ServingStatus
    return str(statuses.Name(status)) if status in statuses.values() else f"status {status}"


def parse_flag(text: str) -> tuple[Ref, tuple[tuple[str, int], ...]]:
    """Read `NAME:PORT=HOST:PORT[,HOST:PORT]`. Raises ValueError."""
    name, equals, rest = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not NAME:PORT=HOST:PORT[,HOST:PORT]")
    try:
        backend_ref = addresses.parse(name)
    except ValueError as error:
        raise ValueError(f"{name!r} is not NAME:PORT, the name and port of a backendRef") from error
    return backend_ref, tuple(addresses.parse(part.strip()) for part in rest.split(","))
