"""Keeps a tunnel client registered: redials with backoff, and moves to a new connection before the old one is dropped.

A server that shuts down, or limits the age of connections, sends GOAWAY: open streams continue, but new ones would use
a new connection on which our tags are unknown. So at the first sign, when the channel leaves READY, a second client
registers on its own channel, and the old one serves its sessions to their end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
import grpc.aio

from fleet.processes import background
from fleet.protocol.backoff import Backoff
from fleet.protocol.tunnel.messages import Target, TunnelError, WireVersion
from fleet.transport.tunnel.client import TunnelClient
from fleet.transport.tunnel.handlers import SessionHandler, call_back
from fleet.transport.tunnel.stream import TunnelStream

log = logging.getLogger(__name__)

#: Every gRPC server answers this, at least with UNIMPLEMENTED.
_PROBE_METHOD = "/grpc.health.v1.Health/Check"
#: Seconds within which Register of a lost connection ends after the channel left READY.
_LOST_WITHIN = 0.2


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Timing of a link. Seconds."""

    backoff: Backoff = field(default_factory=Backoff)
    #: From dialling to the answers for all targets.
    up_within: float = 20.0
    #: Between two calls that probe the connection: stock Go servers forbid HTTP/2 pings more often than every 5
    #: minutes, and any response, even an error, proves more. None: only the channel's HTTP/2 pings.
    probe_interval: float | None = 10.0
    probe_within: float = 10.0
    #: Maximum time for the sessions of a connection that was left; None: until they end.
    drain_within: float | None = None


@dataclass(frozen=True, slots=True)
class TunnelSpec:
    """Configuration of a link's client, the same on every connection."""

    wire: WireVersion = WireVersion.V0_2
    targets: tuple[Target, ...] = ()
    #: Types of other clients' targets to subscribe to; the empty type means all.
    subscribed_types: tuple[str, ...] = ()
    handler: SessionHandler | None = None
    #: Name by which a server of Refloat recognises a client that reconnects.
    name: str = ""
    on_target_change: Callable[[Target, bool], None] | None = None

    def create_client(self, channel: grpc.aio.Channel) -> TunnelClient:
        """Return the client of one connection."""
        # Of two connections of this client the younger one is valid, even if the process restarted in between.
        generation = time.time_ns()
        return TunnelClient(
            channel,
            self.wire,
            handler=self.handler,
            name=self.name,
            generation=generation,
            on_target_change=self.on_target_change,
        )


class TunnelLink:
    """A tunnel client that is registered, or about to register."""

    def __init__(
        self,
        open_channel: Callable[[], grpc.aio.Channel],
        spec: TunnelSpec,
        *,
        settings: LinkSettings | None = None,
        on_up_change: Callable[[bool, str], None] | None = None,
    ) -> None:
        """Create a link; `on_up_change` is called when it is registered (True), and when it is not (False, reason)."""
        self._open_channel = open_channel
        self._spec = spec
        self._settings = settings or LinkSettings()
        self._on_up_change = on_up_change
        self._current_connection: _LinkConnection | None = None
        self._up_event = asyncio.Event()
        self._leave_tasks: set[asyncio.Task[None]] = set()

    @property
    def registered_targets(self) -> frozenset[Target]:
        """Targets that the server has accepted."""
        return (
            frozenset()
            if self._current_connection is None
            else self._current_connection.client.registered_targets
        )

    @property
    def rejected_targets(self) -> dict[Target, str]:
        """Targets that the server currently refuses, with the reasons; each is tried again."""
        return {} if self._current_connection is None else self._current_connection.client.rejected_targets

    async def run(self) -> None:
        """Stay registered until cancelled."""
        failure_count = 0
        try:
            while True:
                connection = await self._dial()
                started_at = time.monotonic()
                if connection.is_up:
                    await self._wait_for_end(connection)
                    if connection.should_move:
                        failure_count = 0
                        continue  # make before break: the next one is dialled while this one still serves
                failure_count = self._settings.backoff.failures_after(
                    failure_count, time.monotonic() - started_at if connection.is_up else 0.0
                )
                await asyncio.sleep(self._settings.backoff.wait(failure_count, random.random()))
        finally:
            await self._end()

    async def open_session(self, target: Target, *, within: float | None = None) -> TunnelStream:
        """Request a session, once registered. Raises TunnelError; TimeoutError if not registered within `within`."""
        async with asyncio.timeout(within):
            while self._current_connection is None:  # it may be lost again before this task runs
                await self._up_event.wait()
        return await self._current_connection.client.open_session(target)

    async def _dial(self) -> _LinkConnection:
        connection = _LinkConnection(self._spec, self._open_channel())
        try:
            reason = await connection.wait_registered(self._settings.up_within)
        except asyncio.CancelledError:
            await connection.close()
            raise
        if reason:
            self._retire(connection)
            if self._current_connection is None or not self._current_connection.client.is_up:
                self._on_lost(f"cannot register: {reason}")
            return connection
        old, self._current_connection = self._current_connection, connection
        if old is not None:
            self._retire(old, connection)
        self._up_event.set()
        call_back(self._on_up_change, True, "")
        return connection

    async def _wait_for_end(self, connection: _LinkConnection) -> None:
        """Wait until the connection ends, or the server starts to close it."""
        register_task = asyncio.create_task(self._register_missing(connection.client), name="refused targets")
        try:
            connection.should_move = await connection.wait_for_end(self._settings)
        finally:
            await background.stop([register_task])
        if connection.should_move:
            log.info("the server is closing this connection: registering on a new one")
            return
        self._on_lost(connection.end_reason)

    async def _register_missing(self, client: TunnelClient) -> None:
        """Repeat the registration of refused targets, with increasing waits, until the server accepts them all.

        The reason may be temporary: usually the server has not noticed yet that an earlier connection of ours is lost.
        """
        failure_count = 0
        while missing_targets := [
            target for target in self._spec.targets if target not in client.registered_targets
        ]:
            failure_count += 1
            await asyncio.sleep(self._settings.backoff.wait(failure_count, random.random()))
            for target in missing_targets:
                with contextlib.suppress(TunnelError):  # the client logs each new reason
                    await client.add_target(target)

    def _on_lost(self, reason: str) -> None:
        if self._current_connection is not None:
            self._retire(self._current_connection)
        self._current_connection = None
        self._up_event.clear()
        call_back(self._on_up_change, False, reason)

    def _retire(self, old: _LinkConnection, new: _LinkConnection | None = None) -> None:
        task = asyncio.create_task(self._leave(old, new), name="tunnel that is left")
        self._leave_tasks.add(task)
        task.add_done_callback(self._leave_tasks.discard)

    async def _leave(self, old: _LinkConnection, new: _LinkConnection | None) -> None:
        try:
            if new is not None:
                await _move_targets(old.client, new.client)
                await old.client.finish()
            old.client.stop()
            if old.is_dead:
                return
            async with asyncio.timeout(self._settings.drain_within):
                await old.client.wait_drained()
        except TimeoutError:
            log.warning(
                "aborting %d sessions of a connection that was left: their time is over",
                len(old.client.streams),
            )
        finally:
            await old.close()

    async def _end(self) -> None:
        await background.stop(self._leave_tasks)
        if self._current_connection is not None:
            await self._current_connection.close()


class _LinkConnection:
    """One connection with its client."""

    def __init__(self, spec: TunnelSpec, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.client = spec.create_client(channel)
        self._run_task = asyncio.create_task(
            self.client.run(spec.targets, spec.subscribed_types), name="tunnel client"
        )
        self.is_up = False
        self.should_move = False
        #: The server does not answer: sessions would hang until TCP gives up.
        self.is_dead = False
        self.end_reason = ""

    async def wait_registered(self, within: float) -> str:
        """Wait until the client is registered; return the reason if it is not."""
        await asyncio.sleep(0)  # let the client begin
        up_task = asyncio.create_task(self.client.wait_until_up())
        try:
            await asyncio.wait((up_task, self._run_task), timeout=within, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up_task.cancel()
        if self._run_task.done():
            return self._register_end_reason()
        self.is_up = self.client.is_up
        return "" if self.is_up else f"no answer within {within:g} s"

    async def wait_for_end(self, settings: LinkSettings) -> bool:
        """Wait for the end; return whether the connection must be left although Register is still open."""
        goaway_task = asyncio.create_task(_wait_for_goaway(self.channel))
        probe_task = asyncio.create_task(_probe(self.channel, self.client, settings))
        try:
            await asyncio.wait((goaway_task, probe_task, self._run_task), return_when=asyncio.FIRST_COMPLETED)
            if goaway_task.done() and not probe_task.done():
                self.client.on_goaway()
                # A lost connection also leaves READY: then Register ends at once.
                await asyncio.wait((self._run_task,), timeout=_LOST_WITHIN)
            if not self._run_task.done() and probe_task.done():
                self.end_reason = probe_task.result()
                self.is_dead = True
                return False
            if self._run_task.done():
                self.end_reason = self._register_end_reason()
                return False
            return True
        finally:
            for task in (goaway_task, probe_task):
                task.cancel()

    async def close(self) -> None:
        """Close the connection with everything on it."""
        await self.client.close()
        await self.channel.close()
        await background.stop([self._run_task])

    def _register_end_reason(self) -> str:
        if self._run_task.cancelled():
            return "the tunnel client was stopped"
        return str(self._run_task.exception() or "the server ended the Register stream")


async def _wait_for_goaway(channel: grpc.aio.Channel) -> None:
    while (state := channel.get_state()) is not grpc.ChannelConnectivity.READY:
        await channel.wait_for_state_change(state)
    await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)


async def _probe(channel: grpc.aio.Channel, client: TunnelClient, settings: LinkSettings) -> str:
    """Probe the connection repeatedly; return the problem once there is no response."""
    if settings.probe_interval is None:
        await asyncio.Event().wait()
    check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_PROBE_METHOD)
    while True:
        await asyncio.sleep(settings.probe_interval or 0)
        requested_at = asyncio.get_running_loop().time()
        call = check(b"", timeout=settings.probe_within)
        if await call.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            continue
        # A slow connection may be busy with session data: while that arrives, the server is alive.
        if not any(stream.last_seen_at >= requested_at for stream in client.streams):
            return f"the server did not answer within {settings.probe_within:g} s"


async def _move_targets(old: TunnelClient, new: TunnelClient) -> None:
    """Move targets to the new client that the server refused because the old one has them (not with our servers)."""
    for target in new.rejected_targets:
        try:
            await old.remove_target(target)
            await new.add_target(target)
        except TunnelError as error:
            log.warning("target %s could not be moved to the new connection: %s", target, error)
