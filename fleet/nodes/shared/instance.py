"""The common part of auths and proxies: a gRPC port with health checks, a diag port, and heartbeats.

RFD 226: an instance that cannot send heartbeats is unhealthy, and reports so on both ports.
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
from fleet.transport.backend import AuthOrProxy, Backend, BackendTimeoutError, BackendUnavailableError
from fleet.transport.declared_status import DeclaredStatus
from fleet.transport.health import HealthServicer
from fleet.transport.process import ProcessHealth
from fleet.transport.tls import TLSError, TLSFiles
from fleet.wire import types_pb2

log = logging.getLogger(__name__)

#: Longest id of an agent, in characters. Ids are UUIDs.
LONGEST_ID = text_limits.LONGEST_ID

#: Seconds that RPCs in progress may take when the instance stops.
_GRACE_SECONDS = 0.5
#: How often a starting instance tries again if the backend does not respond.
_MAX_BACKEND_RETRIES = 4
#: Seconds between the first heartbeats of an instance that waits for an auth.
_FIRST_HEARTBEAT_PAUSE = 0.25


@dataclass(frozen=True, slots=True)
class InstanceFlags:
    """Configuration of one instance."""

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
    #: Region, for people and for alerts; None: not set.
    region: str | None = None
    #: Lateness of the event loop at which the instance reports degraded, seconds; 0: never.
    degrade_when_late: float = 0.0
    tls: TLSFiles = field(default_factory=TLSFiles)
    #: Off loopback, without client certificates: everybody who reaches an auth may change the cluster.
    allow_anonymous: bool = False


class AuthsUnavailableError(BackendUnavailableError):
    """No auth accepted a heartbeat. The message is the error of the last one."""


class Presence(Protocol):
    """Where an instance registers, and how it writes its resource."""

    #: Seconds that the first heartbeat may wait for an auth.
    first_heartbeat_timeout: float

    async def put(self, server: types_pb2.ServerV2) -> None:
        """Write the resource. Raises BackendUnavailableError."""

    async def delete(self) -> None:
        """Delete the resource. Raises BackendUnavailableError."""

    async def close(self) -> None:
        """Close the connections."""


class Instance:
    """An auth or proxy without the services of its role: add those to `server` before `start`."""

    def __init__(self, kind: AuthOrProxy, flags: InstanceFlags) -> None:
        """Raises NodeStartError if the backend address is invalid."""
        self.kind: AuthOrProxy = kind
        self.flags = flags
        self.schedule = announce.draw_schedule(flags.announce_ttl, random.random())
        self.process = ProcessHealth(self.schedule.check_interval)
        self.process.register(kind)
        self.registry = diag.create_registry(self.process)
        #: Counts messages and resources of peers and of the backend that could not be used.
        self.refusals = Refusals(self.registry)
        try:
            self.backend = Backend(
                flags.backend,
                flags.cluster,
                prefix=flags.backend_prefix,
                password=_read_password(flags.backend_password_file),
                on_unreadable_resource=self.refuse_resource,
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
        self._write_seconds = Histogram(
            "backend_write_seconds",
            "Duration of writes to the backend, in seconds",
            ["component"],
            registry=self.registry,
        )
        #: Proxies replace it before `start`.
        self.presence: Presence = _BackendPresence(self)
        self.server = grpc.aio.server(options=channels.server_options())
        self.declared_status = DeclaredStatus()
        HealthServicer(self.process, self.declared_status).add_to(self.server)
        InstanceAdminServicer(flags.id, self.declared_status, flags.listen[0]).add_to(self.server)
        #: Labels of the resource. Addresses that are known only after listening can be added before `start`.
        self.labels = dict(flags.labels)
        self._stack = AsyncExitStack()
        self._heartbeat_task: asyncio.Task[None] | None = None
        # Set when the resource has changed, so that a heartbeat follows at once.
        self._resource_changed = asyncio.Event()
        self.declared_status.add_listener(self._resource_changed.set)
        self.grpc_address = ""
        self.diag_address = ""

    async def start(self, prepare: Callable[[], Awaitable[None]] | None = None) -> None:
        """Listen on both ports and send the first heartbeat. Raises NodeStartError, after stopping everything.

        `prepare` runs in between. It may add labels, and raise NodeStartError.
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
        self._heartbeat_task = background.start(
            self._run_heartbeats(), name=f"heartbeats of {self.flags.name}"
        )
        if self.flags.degrade_when_late:
            await self._stack.enter_async_context(
                loop_lag.watch_lateness(self.declared_status, self.flags.degrade_when_late)
            )

    def ready_fields(self) -> dict[str, object]:
        """Return the content of the ready line."""
        return {
            "role": self.kind,
            "id": self.flags.id,
            "name": self.flags.name,
            "grpc": self.grpc_address,
            "diag": self.diag_address,
        }

    def listen_flags(self) -> list[str]:
        """Return the flags with which the next run listens on the same addresses."""
        return ["--listen", self.grpc_address, "--diag-listen", self.diag_address]

    async def deregister(self) -> None:
        """Report NOT_SERVING, stop sending heartbeats and deregister."""
        self.process.leave()
        if self._heartbeat_task is None:
            return
        await background.stop([self._heartbeat_task])
        self._heartbeat_task = None
        try:
            await self.presence.delete()
        except BackendUnavailableError as error:
            log.warning(
                "deregistration.failed: cannot deregister; the registration expires by itself: %s", error
            )

    async def stop(self) -> None:
        """Deregister and stop. It takes about half a second."""
        await self.deregister()
        await self.server.stop(_GRACE_SECONDS)
        await self._stack.aclose()
        await self.presence.close()
        await self.backend.close()

    def refuse_resource(self, name: str, reason: str) -> None:
        """Count a resource of the backend that cannot be used, and log it once per name."""
        self.refusals.record("resource", name, name, reason)

    def parse_resource_address(self, server: types_pb2.ServerV2, text: str) -> tuple[str, int] | None:
        """Return an address of a resource. An invalid one is counted and logged, and None is returned."""
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
            self._write_seconds.labels(component).observe(time.perf_counter() - started_at)

    async def _listen(self) -> None:
        flags = self.flags
        listen_address = addresses.join(*flags.listen)
        try:
            port = channels.add_port(self.server, listen_address, flags.tls)
        except RuntimeError:
            raise lifecycle.NodeStartError(
                f"cannot listen on {listen_address}: the port is in use, or this user may not use it"
            ) from None
        except TLSError as error:
            raise lifecycle.NodeStartError(str(error)) from None
        self.grpc_address = addresses.join(flags.listen[0], port)
        app = diag.create_app(self.process, self.registry, self.declared_status)
        self.diag_address = await self._stack.enter_async_context(http_site.serve(app, flags.diag_listen))
        await self.server.start()

    async def _run_heartbeats(self) -> None:
        wait = self.schedule.interval
        while True:
            await background.wait_for(self._resource_changed, wait)
            self._resource_changed.clear()
            try:
                await self._send_heartbeat()
                wait = self.schedule.interval
            except BackendUnavailableError as error:
                log.warning("heartbeat.failed: %s", error)
                self.process.record_failure(self.kind)
                wait = self.schedule.retry_interval
            except Exception:
                log.exception("heartbeat.failed: internal error")
                self.process.record_failure(self.kind)
                wait = self.schedule.retry_interval

    async def _send_first_heartbeat(self) -> None:
        deadline, timeout_count = time.monotonic() + self.presence.first_heartbeat_timeout, 0
        while True:
            try:
                return await self._send_heartbeat()
            except AuthsUnavailableError:
                # Programs of a fleet start in any order.
                if time.monotonic() >= deadline:
                    raise
                await asyncio.sleep(_FIRST_HEARTBEAT_PAUSE)
            except BackendTimeoutError:
                # While a whole fleet starts on one host, its backend may not respond for a moment. The address is right
                # then.
                timeout_count += 1
                if timeout_count > _MAX_BACKEND_RETRIES and time.monotonic() >= deadline:
                    raise

    async def _send_heartbeat(self) -> None:
        await self.presence.put(self._make_resource(time.time()))
        self.process.record_success(self.kind, time.monotonic())

    def _make_resource(self, now: float) -> types_pb2.ServerV2:
        flags = self.flags
        expires = Timestamp()
        expires.FromNanoseconds(durations.to_nanoseconds(now + flags.announce_ttl))
        diag_address = addresses.join(*flags.advertise_diag) if flags.advertise_diag else self.diag_address
        drain = self.declared_status.draining_declaration
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
    """Writes the instance's resource to the backend directly."""

    first_heartbeat_timeout = 0.0

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    async def put(self, server: types_pb2.ServerV2) -> None:
        """Write the resource. Raises BackendUnavailableError."""
        instance = self._instance
        with instance.measure_write("heartbeat"):
            await instance.backend.put_instance(instance.kind, server, instance.flags.announce_ttl)

    async def delete(self) -> None:
        """Delete the resource. Raises BackendUnavailableError."""
        await self._instance.backend.delete_instance(self._instance.kind, self._instance.flags.id)

    async def close(self) -> None:
        """Do nothing: the backend owns the connections."""


def _hint_for(error: BackendUnavailableError) -> str:
    if isinstance(error, AuthsUnavailableError):
        return (
            "check that an auth is running and that --auth-http is right; with --heartbeat-to backend the proxy "
            "needs no auth"
        )
    return "check that --backend is right and that the backend is running"


def _read_password(path: Path | None) -> str | None:
    """Return the password in a file. Raises NodeStartError."""
    try:
        return None if path is None else path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise lifecycle.NodeStartError(f"cannot read --backend-password-file {path}: {error}") from None


async def abort_unavailable(
    context: grpc.aio.ServicerContext[object, object], error: BackendUnavailableError
) -> Never:
    """End an RPC that needs the backend with UNAVAILABLE."""
    await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
