"""What auths and proxies have in common: one gRPC port with health, one diag port, heartbeats.

RFD 226: an instance is unhealthy when it cannot heartbeat, and then says so on both ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Never, Protocol

import grpc
import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp
from prometheus_client import Counter, Histogram

from fleet import __version__
from fleet.nodes.shared import addresses, http_site, lifecycle, loop_lag
from fleet.nodes.shared.instance_admin import InstanceAdminServicer
from fleet.nodes.shared.refusals import Refusals
from fleet.processes import background
from fleet.protocol import durations, text_limits
from fleet.protocol.instance_labels import DIAG_LABEL, DRAINING_LABEL, REGION_LABEL, TTL_LABEL
from fleet.protocol.recovery import announce
from fleet.transport import channels, diag
from fleet.transport.backend import Backend, BackendUnavailableError, Kind, BackendTimeoutError
from fleet.transport.declared_status import DeclaredStatus
from fleet.transport.health import HealthServicer
from fleet.transport.process import ProcessHealth
from fleet.transport.tls import TLSError, TLSFiles
from fleet.wire import types_pb2

log = logging.getLogger(__name__)

#: An agent's id is a UUID; what is much longer is no id.
LONGEST_ID = text_limits.LONGEST_ID

#: How long calls under way may take at the end, seconds.
_GRACE = 0.5
#: So often a node that starts asks a backend again that did not answer.
_MAX_BACKEND_RETRIES = 4
#: Between the first heartbeats of a node that waits for an auth, seconds.
_FIRST_PAUSE = 0.25


@dataclass(frozen=True, slots=True)
class InstanceFlags:
    """How one instance is configured."""

    name: str
    id: str
    backend: str
    cluster: str = "default"
    backend_prefix: str = "nodes"
    backend_password_file: Path | None = None
    listen: tuple[str, int] = ("127.0.0.1", 0)
    diag_listen: tuple[str, int] = ("127.0.0.1", 0)
    advertise: tuple[str, int] | None = None
    advertise_diag: tuple[str, int] | None = None
    announce_ttl: float = announce.DEFAULT_TTL
    labels: dict[str, str] = field(default_factory=dict)
    #: Where it runs, for people and for alerts; None: nobody said.
    region: str | None = None
    #: It says that it is degraded when its event loop is this late, seconds; 0: never.
    degrade_when_late: float = 0.0
    tls: TLSFiles = field(default_factory=TLSFiles)
    #: Off loopback, without certificates of clients: everybody who reaches an auth may change the cluster.
    anybody: bool = False


class AuthsUnavailable(BackendUnavailableError):
    """No auth took a heartbeat; the sentence says what the last one answered."""


class Presence(Protocol):
    """Where an instance has its resource, and how it writes it there."""

    #: How long the first heartbeat may wait for an auth, seconds.
    patience: float

    async def put(self, server: types_pb2.ServerV2) -> None:
        """Write the resource. Raises BackendUnavailable."""

    async def delete(self) -> None:
        """Delete the resource. Raises BackendUnavailable."""

    async def close(self) -> None:
        """Close the connections that are kept for it."""


class Instance:
    """One auth or proxy, less the services of its role: add those to `server` before `start`."""

    def __init__(self, kind: Kind, flags: InstanceFlags) -> None:
        """Make it. Raises StartError when the backend's address is none."""
        self.kind: Kind = kind
        self.flags = flags
        self.schedule = announce.schedule(flags.announce_ttl, random.random())
        self.process = ProcessHealth(self.schedule.tick)
        self.process.register(kind)
        self.registry = diag.new_registry(self.process)
        #: What it could not use, of its peers and of the backend.
        self.refusals = Refusals(self.registry)
        try:
            self.backend = Backend(
                flags.backend,
                flags.cluster,
                prefix=flags.backend_prefix,
                password=_password(flags.backend_password_file),
                on_unreadable=self.refuse_resource,
            )
        except ValueError as error:
            raise lifecycle.NodeStartError(f"--backend {flags.backend!r}: {error}") from None
        self._writes = Counter(
            "backend_write_requests", "Writes to the backend", ["component"], registry=self.registry
        )
        self._failed_writes = Counter(
            "backend_write_requests_failed",
            "Failed writes to the backend",
            ["component"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "backend_write_seconds",
            "Duration of writes to the backend",
            ["component"],
            registry=self.registry,
        )
        #: Proxies replace it before `start`.
        self.presence: Presence = _BackendPresence(self)
        self.server = grpc.aio.server(options=channels.server_options())
        self.declared_status = DeclaredStatus()
        HealthServicer(self.process, self.declared_status).add_to(self.server)
        InstanceAdminServicer(flags.id, self.declared_status, flags.listen[0]).add_to(self.server)
        #: Of its resource; what is known only once it listens may be added before `start`.
        self.labels = dict(flags.labels)
        self._stack = AsyncExitStack()
        self._heartbeats: asyncio.Task[None] | None = None
        # What its resource says has changed: others are to know before the next heartbeat.
        self._announce_soon = asyncio.Event()
        self.declared_status.listen(self._announce_soon.set)
        self.grpc_address = ""
        self.diag_address = ""

    async def start(self, prepare: Callable[[], Awaitable[None]] | None = None) -> None:
        """Listen on both ports and heartbeat once. Raises StartError, and leaves nothing running then.

        `prepare` runs in between: it may add labels, and raise StartError.
        """
        try:
            await self._listen()
            if prepare is not None:
                await prepare()
            await self._send_first_heartbeat()
        except BackendUnavailableError as error:
            await self.stop()
            raise lifecycle.NodeStartError(f"{error} ({_hint_for(error)})") from error
        except lifecycle.NodeStartError:
            await self.stop()
            raise
        self._heartbeats = background.start(self._run_heartbeats(), name=f"heartbeats of {self.flags.name}")
        if self.flags.degrade_when_late:
            await self._stack.enter_async_context(
                loop_lag.watch_lateness(self.declared_status, self.flags.degrade_when_late)
            )

    def ready_fields(self) -> dict[str, object]:
        """What the ready line says."""
        return {
            "role": self.kind,
            "id": self.flags.id,
            "name": self.flags.name,
            "grpc": self.grpc_address,
            "diag": self.diag_address,
        }

    def listen_flags(self) -> list[str]:
        """Flags with which another run listens where this one does."""
        return ["--listen", self.grpc_address, "--diag-listen", self.diag_address]

    async def deregister(self) -> None:
        """Say NOT_SERVING, stop heartbeating and delete the resource: nobody new is to come."""
        self.process.leave()
        if self._heartbeats is None:
            return
        await background.stop([self._heartbeats])
        self._heartbeats = None
        try:
            await self.presence.delete()
        except BackendUnavailableError as error:
            log.warning("resource.left: it stays until it expires: %s", error)

    async def stop(self) -> None:
        """End all of it, in half a second or so."""
        await self.deregister()
        await self.server.stop(_GRACE)
        await self._stack.aclose()
        await self.presence.close()
        await self.backend.close()

    def refuse_resource(self, name: str, reason: str) -> None:
        """Count a resource of the backend that cannot be used, and tell of it once a name."""
        self.refusals.refuse("resource", name, name, reason)

    def address_in(self, server: types_pb2.ServerV2, text: str) -> tuple[str, int] | None:
        """An address of a resource; None, counted and told, when it is none: that must not stop the others."""
        try:
            return addresses.parse(text)
        except ValueError as error:
            kind = "auth" if server.kind == "auth_server" else "proxy"
            self.refuse_resource(f"{kind} {server.metadata.name}", str(error))
            return None

    @contextlib.contextmanager
    def measure_write(self, component: str) -> Iterator[None]:
        """Count and time a write to the backend."""
        self._writes.labels(component).inc()
        started_at = time.perf_counter()
        try:
            yield
        except BackendUnavailableError:
            self._failed_writes.labels(component).inc()
            raise
        finally:
            self._seconds.labels(component).observe(time.perf_counter() - started_at)

    async def _listen(self) -> None:
        flags = self.flags
        listen_address = addresses.join(*flags.listen)
        try:
            port = channels.add_port(self.server, listen_address, flags.tls)
        except RuntimeError:
            raise lifecycle.NodeStartError(f"cannot listen on {listen_address}: the port is in use or not ours") from None
        except TLSError as error:
            raise lifecycle.NodeStartError(str(error)) from None
        self.grpc_address = addresses.join(flags.listen[0], port)
        app = diag.diag_app(self.process, self.registry, self.declared_status)
        self.diag_address = await self._stack.enter_async_context(http_site.serve(app, flags.diag_listen))
        await self.server.start()

    async def _run_heartbeats(self) -> None:
        wait = self.schedule.interval
        while True:
            await background.wait_for(self._announce_soon, wait)
            self._announce_soon.clear()
            try:
                await self._send_heartbeat()
                wait = self.schedule.interval
            except BackendUnavailableError as error:
                log.warning("heartbeat.failed: %s", error)
                self.process.record_failure(self.kind)
                wait = self.schedule.retry
            except Exception:
                log.exception("heartbeat.failed: by a fault of ours")
                self.process.record_failure(self.kind)
                wait = self.schedule.retry

    async def _send_first_heartbeat(self) -> None:
        deadline, silent_count = time.monotonic() + self.presence.patience, 0
        while True:
            try:
                return await self._send_heartbeat()
            except AuthsUnavailable:
                # Programs of a fleet start in any order.
                if time.monotonic() >= deadline:
                    raise
                await asyncio.sleep(_FIRST_PAUSE)
            except BackendTimeoutError:
                # A host on which a whole fleet starts holds its backend up for a moment: that is no wrong address.
                silent_count += 1
                if silent_count > _MAX_BACKEND_RETRIES and time.monotonic() >= deadline:
                    raise

    async def _send_heartbeat(self) -> None:
        await self.presence.put(self._resource(time.time()))
        self.process.record_success(self.kind, time.monotonic())

    def _resource(self, now: float) -> types_pb2.ServerV2:
        flags = self.flags
        expires = Timestamp()
        expires.FromNanoseconds(durations.to_nanoseconds(now + flags.announce_ttl))
        diag_address = addresses.join(*flags.advertise_diag) if flags.advertise_diag else self.diag_address
        drain = self.declared_status.drain_declaration
        return types_pb2.ServerV2(
            kind="auth_server" if self.kind == "auth" else "proxy",
            version="v2",
            metadata=types_pb2.Metadata(
                name=flags.id,
                namespace="default",
                expires=expires,
                labels={
                    DIAG_LABEL: diag_address,
                    TTL_LABEL: durations.format_seconds(flags.announce_ttl),
                    **({REGION_LABEL: flags.region} if flags.region else {}),
                    **self.labels,
                    **({} if drain is None else {DRAINING_LABEL: drain.reason}),
                },
            ),
            spec=types_pb2.ServerSpecV2(
                addr=addresses.join(*flags.advertise) if flags.advertise else self.grpc_address,
                hostname=flags.name,
                version=__version__,
            ),
        )


class _BackendPresence:
    """The instance writes its resource to the backend itself."""

    patience = 0.0

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    async def put(self, server: types_pb2.ServerV2) -> None:
        """Write the resource. Raises BackendUnavailable."""
        instance = self._instance
        with instance.measure_write("heartbeat"):
            await instance.backend.put_instance(instance.kind, server, instance.flags.announce_ttl)

    async def delete(self) -> None:
        """Delete the resource. Raises BackendUnavailable."""
        await self._instance.backend.delete_instance(self._instance.kind, self._instance.flags.id)

    async def close(self) -> None:
        """Do nothing: the connections are the backend's."""


def _hint_for(error: BackendUnavailableError) -> str:
    if isinstance(error, AuthsUnavailable):
        return "does an auth run, and is --auth-http right? --heartbeat-to backend does without auths"
    return "is --backend right, and does it run?"


def _password(path: Path | None) -> str | None:
    """Read a password from its file. Raises StartError."""
    try:
        return None if path is None else path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise lifecycle.NodeStartError(f"--backend-password-file {path} cannot be read: {error}") from None


async def abort_unavailable(context: grpc.aio.ServicerContext[object, object], error: BackendUnavailableError) -> Never:
    """Answer a call that needed the backend."""
    await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
