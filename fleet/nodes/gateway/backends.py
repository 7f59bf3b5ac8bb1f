"""The backends of a gateway: names become addresses, which are probed by grpc.health.v1 and dialed. docs/gateway.md"""

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
from fleet.nodes.gateway.error_containment import contained
from fleet.nodes.gateway.heads import ResponseHead
from fleet.nodes.shared import addresses
from fleet.protocol.destination import instance_status, probe_schedule
from fleet.protocol.destination.health import RECOMMENDED, Probe, Settings
from fleet.protocol.destination.instance_status import Said
from fleet.protocol.retry import grpc_http2
from fleet.protocol.retry.grpc_http2 import Status
from fleet.protocol.retry.grpc_route import Backend
from fleet.transport.destinations import Answer, Destinations
from fleet.transport.http2.backend_dialer import Dialer, DialError
from fleet.transport.http2.fields import Known, encode, plain
from fleet.transport.http2.frames import Code
from fleet.transport.http2.options import Options

log = logging.getLogger(__name__)

#: What a rule names: `backendRefs[].name` and `.port`.
Ref = tuple[str, int]

#: Names are looked up so often, seconds; those that were not found, sooner.
_RESOLVE, _RESOLVE_SOON = 30.0, 2.0
_CHECK = b"/grpc.health.v1.Health/Check"
#: An empty message: the health of the whole server.
_WHOLE_SERVER = b"\0\0\0\0\0"


class Backends:
    """Addresses of names, and whom to send calls to."""

    def __init__(
        self,
        *,
        fixed: Mapping[Ref, Sequence[tuple[str, int]]],
        probes: probe_schedule.Settings,
        options: Options,
        dial_within: float,
        tls: ssl.SSLContext | None,
        server_name: str,
        on_resolved: Callable[[], None],
        health: Settings = RECOMMENDED,
    ) -> None:
        """Know nobody yet; `on_resolved` is told when addresses of a name became others."""
        self._fixed = fixed
        self._options = options
        self._dial_within = dial_within
        self._tls = tls
        self._server_name = server_name
        self._on_resolved = on_resolved
        self._known: Known[ResponseHead] = Known(heads.read_response)
        self._refs: frozenset[Ref] = frozenset()
        self._addresses: dict[Ref, tuple[tuple[str, int], ...]] = {}
        #: Why names cannot be looked up, said once on the log.
        self._failures: dict[Ref, str] = {}
        self._dialers: dict[str, Dialer] = {}
        self._again = asyncio.Event()
        self.destinations = Destinations(self._probe, settings=health, probes=probes)

    async def use(self, refs: Iterable[Ref]) -> None:
        """Know these and no others. Returns when all names were looked up once."""
        self._refs = frozenset(refs)
        await self._resolve_all()
        self._again.set()

    async def keep_resolving(self) -> None:
        """Look names up again and again."""
        while True:
            wait = _RESOLVE if all(self._addresses.get(ref) for ref in self._refs) else _RESOLVE_SOON
            self._again.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._again.wait()
            except TimeoutError:
                try:
                    if await self._resolve_all():
                        self._on_resolved()
                except Exception:
                    log.exception("backends could not be looked up")

    def weights(self, backends: Iterable[Backend]) -> dict[str, float]:
        """What each address of a rule is to get: the weight of a backend is shared among its addresses."""
        weights: dict[str, float] = {}
        for backend in backends:
            found = self._addresses.get((backend.name, backend.port), ())
            for address in found:
                name = addresses.join(*address)
                weights[name] = weights.get(name, 0.0) + backend.weight / len(found)
        return weights

    def use_tls(self, tls: ssl.SSLContext) -> None:
        """Connect backends by this from now on."""
        self._tls = tls
        for dialer in self._dialers.values():
            dialer.use_tls(tls)

    def dialer(self, name: str) -> Dialer:
        """The connections to an address."""
        return self._dialers[name]

    async def close(self) -> None:
        """End probes and connections."""
        await self.destinations.close()
        await asyncio.gather(*(dialer.close() for dialer in self._dialers.values()))

    def describe(self) -> list[dict[str, Any]]:
        """What `GET /destinations` shows."""
        names: dict[str, list[str]] = {}
        for ref, found in sorted(self._addresses.items()):
            for address in found:
                names.setdefault(addresses.join(*address), []).append(f"{ref[0]}:{ref[1]}")
        return [
            {
                "address": one.name,
                "backends": names.get(one.name, []),
                "health": one.verdict.health.value,
                "reason": one.verdict.reason.value,
                "since": one.verdict.at,
                "active": one.verdict.active.health.value,
                "passive": one.verdict.passive.health.value,
                "declared": one.verdict.declared.health.value,
                "draining": one.verdict.draining is not None,
                "probed_at": one.probed_at,
                "error": one.error,
                "connections": self._dialers[one.name].connections,
            }
            for one in self.destinations
        ]

    def unresolved(self) -> list[str]:
        """Names without an address."""
        return sorted(f"{name}:{port}" for name, port in self._refs if not self._addresses.get((name, port)))

    async def _resolve_all(self) -> bool:
        wanted_refs = self._refs
        refs = sorted(wanted_refs)
        found = dict(zip(refs, await asyncio.gather(*map(self._resolve, refs)), strict=True))
        # While names were looked up others may have become wanted: those are looked up by whoever wants them.
        if found == self._addresses or self._refs is not wanted_refs:
            return False
        self._addresses = found
        wanted = {
            addresses.join(*address): (ref[0], address) for ref in refs for address in found.get(ref, ())
        }
        self.destinations.keep(wanted)
        # One that is known by another name now must show a certificate of that one.
        stays = {
            name
            for name, dialer in self._dialers.items()
            if name in wanted and dialer.server_name == self._name_of(wanted[name][0])
        }
        for name in self._dialers.keys() - stays:
            self._dialers.pop(name).retire()
        for name, (backend, address) in wanted.items():
            if name not in self._dialers:
                self._dialers[name] = Dialer(
                    address,
                    self._known,
                    self._options,
                    within=self._dial_within,
                    tls=self._tls,
                    server_name=self._name_of(backend),
                )
        return True

    def _name_of(self, backend: str) -> str:
        """What the certificates of a backend must be for."""
        return self._server_name or backend

    async def _resolve(self, ref: Ref) -> tuple[tuple[str, int], ...]:
        if ref in self._fixed:
            return tuple(self._fixed[ref])
        try:
            found = await asyncio.get_running_loop().getaddrinfo(*ref, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            # An answer that failed says nothing about addresses that were right before.
            why = str(error if isinstance(error, UnicodeError) else error.strerror or error)
            if self._failures.get(ref) != why:
                log.warning("backend %s:%d cannot be looked up: %s", *ref, why)
            self._failures[ref] = why
            return self._addresses.get(ref, ())
        if self._failures.pop(ref, None) is not None:
            log.info("backend %s:%d is found again", *ref)
        return tuple(sorted({(str(address[0]), int(address[1])) for *_, address in found}))

    async def _probe(self, name: str) -> Answer:
        try:
            connection = await self._dialers[name].dial()
        except DialError as error:
            return Answer(Probe.FAILURE, str(error))
        check = _Check()
        stream = connection.open(self._check_head(name))
        stream.listener = check
        stream.send_data(_WHOLE_SERVER, end=True)
        try:
            return await check.answer
        finally:
            stream.reset(Code.CANCEL)

    def _check_head(self, name: str) -> bytes:
        return encode(
            plain(
                (b":method", b"POST"),
                (b":scheme", b"http" if self._tls is None else b"https"),
                (b":path", _CHECK),
                (b":authority", (self._server_name or name).encode()),
                (b"content-type", b"application/grpc"),
                (b"te", b"trailers"),
                (b"user-agent", b"refloat-gateway"),
            )
        )


class _Check:
    """Listens to the answer of one health check."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._body = b""
        self._said = instance_status.NOTHING

    @contained
    def on_headers(self, made: ResponseHead, *, end: bool) -> None:
        """Take the head, or the end."""
        before = self._said
        self._said = Said(
            "" if made.degraded else before.degraded,
            made.draining if before.draining is None else before.draining,
        )
        if made.http not in {None, 200}:
            self._say(Answer(Probe.FAILURE, f"HTTP {made.http} to a health check"))
        elif end:
            self._say(replace(self._conclude(made), said=self._said))

    @contained
    def on_data(self, data: bytes, *, end: bool) -> None:
        """Take the message."""
        self._body += data[:1024]
        if end:
            self._say(Answer(Probe.FAILURE, "a health check ended without a status"))

    @contained
    def on_reset(self, code: Code, why: str) -> None:
        """It would not answer."""
        self._say(Answer(Probe.FAILURE, why or f"it reset a health check: {code.name}"))

    @contained
    def on_lost(self, why: str) -> None:
        """It is gone."""
        self._say(Answer(Probe.FAILURE, f"the connection was lost: {why}"))

    def break_down(self) -> None:
        """End this check after an error of ours; calls on the connection go on."""
        self._say(Answer(Probe.FAILURE, "its answer to a health check could not be taken"))

    def _conclude(self, made: ResponseHead) -> Answer:
        if made.status is Status.UNIMPLEMENTED:
            # It has no health service: that it answers is all there is to know.
            return self._well()
        if made.status is not Status.OK:
            said = grpc_http2.read_message(made.message)
            return Answer(
                Probe.FAILURE, f"{made.status.name if made.status else 'no status'} to a health check: {said}"
            )
        try:
            status = health_pb2.HealthCheckResponse.FromString(self._body[grpc_http2.PREFIX :]).status
        except DecodeError:
            return Answer(Probe.FAILURE, "its health cannot be read")
        if status != health_pb2.HealthCheckResponse.SERVING:
            return Answer(Probe.FAILURE, f"it says {_name_of(status)}")
        return self._well()

    def _well(self) -> Answer:
        if self._said.degraded is None:
            return Answer(Probe.SUCCESS)
        return Answer(Probe.DEGRADED, "it says degraded")

    def _say(self, answer: Answer) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


def _name_of(status: int) -> str:
    """The name of a serving status; a number that a later protocol may bring has none."""
    statuses = health_pb2.HealthCheckResponse.ServingStatus
    return str(statuses.Name(status)) if status in statuses.values() else f"status {status}"


def parse_flag(text: str) -> tuple[Ref, tuple[tuple[str, int], ...]]:
    """Read `NAME:PORT=HOST:PORT[,HOST:PORT]`. Raises ValueError."""
    name, equals, rest = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not NAME:PORT=HOST:PORT[,HOST:PORT]")
    return addresses.parse(name), tuple(addresses.parse(one.strip()) for one in rest.split(","))
