"""The agent's end of a reverse tunnel: a connection of its own with Control, Register and users' sessions.

If one of the two streams ends, so does the other. Sessions end with their tunnel. A tunnel that was replaced (make
before break) accepts no new sessions, and stays open with both streams until its last session ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
import weakref

import grpc
import grpc.aio
from typing_extensions import override

from fleet.nodes.agent.auth_connection import Identity
from fleet.nodes.agent.services import AgentServices
from fleet.processes import background
from fleet.protocol.networking.keep_alive import KeepAlive, smooth_rtt
from fleet.protocol.tunnel.messages import Target, TunnelError, WireVersion
from fleet.transport.tunnel.client import TunnelClient
from fleet.transport.tunnel.handlers import AcceptedSession, SessionHandler
from fleet.transport.tunnel.stream import TunnelStream, end_reason
from fleet.wire import fleet_pb2, fleet_pb2_grpc

log = logging.getLogger(__name__)

#: Seconds within which the proxy learns a new keep-alive interval.
_MAX_KEEP_ALIVE_CHANGE_DELAY = 5.0
#: Seconds for sessions to receive their last bytes when the proxy closes a tunnel.
_FINISH_TIMEOUT = 5.0
#: Seconds from dialing to the proxy's hello, and from there to the registration of targets: a load balancer may lead to
#: a frozen proxy.
_RESPONSE_TIMEOUT = 5.0


class Generations:
    """Increasing numbers, larger than those of earlier runs and unaffected by changes of the clock in this process.

    If the clock was set back before this run, they may be smaller. A proxy then accepts the new tunnel only once the
    old one has missed a ping.
    """

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last = max(self._last + 1, time.time_ns())
        return self._last


_generations = Generations()


class TunnelDialError(Exception):
    """A dial failed. The message says why."""

    def __init__(self, sentence: str, *, is_refused: bool = False) -> None:
        super().__init__(sentence)
        #: The proxy does not admit this agent, and only an operator can fix that.
        self.is_refused = is_refused


class Tunnel:
    """One tunnel to one proxy. Only one write runs at a time: grpc ends an RPC on two."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        identity: Identity,
        keep_alive: KeepAlive,
        services: AgentServices,
        wire: WireVersion = WireVersion.V0_2,
    ) -> None:
        self._channel = channel
        self._wire = wire
        self._identity = identity
        self._keep_alive = keep_alive
        self._services = services
        self._call = fleet_pb2_grpc.TunnelControlStub(channel).Control()
        # A proxy may still hold a dead tunnel of this agent: the higher generation is the live one.
        self._client = TunnelClient(
            channel, wire, handler=_handler_of(self), name=identity.id, generation=_generations.next()
        )
        self._register_task: asyncio.Task[None] | None = None
        self._write_lock = asyncio.Lock()
        self._sequence = 0
        self.proxy_id = ""
        self.opened_at = self.last_seen_at = time.monotonic()
        # Silence before this time does not count, because the interval was different.
        self._silence_counts_from = self.last_seen_at
        # Spread over the interval, so that agents do not all ping at once.
        self.next_ping_at = self.last_seen_at + random.random() * keep_alive.interval
        self._pinged_at: float | None = None
        #: Smoothed round-trip time of pings, seconds; None before the first response.
        self.rtt: float | None = None
        #: When the proxy advised this agent to reconnect elsewhere; None if not, or if there was no other proxy.
        self.advised_at: float | None = None
        #: Why the tunnel accepts no new sessions and closes after its last one; empty while it serves.
        self.retire_reason = ""
        #: The tunnel outlasted the drain time and was closed.
        self.has_outlasted_drain = False
        #: When the tunnel stopped accepting sessions.
        self.retired_at: float | None = None
        self._retiring_task: asyncio.Task[None] | None = None
        #: Number of users' sessions.
        self.session_count = 0
        #: The agent closed the tunnel, because it is dead or outlasted the drain time.
        self._is_cancelled = False
        self._is_closing = False
        #: Sessions that broke while the tunnel was closing.
        self._broken_session_count = 0
        #: Why the tunnel ended, where that is better known here than from Control.
        self.end_reason = ""
        #: Set when the tunnel has received a discovery message or has ended.
        self.discovery_received = asyncio.Event()

    async def exchange_hellos(self) -> str:
        """Exchange hellos and return the proxy's id. Raises TunnelDialError."""
        identity = self._identity
        hello = fleet_pb2.AgentHello(
            agent_id=identity.id,
            name=identity.name,
            version=identity.version,
            keep_alive_interval_ms=int(self._keep_alive.interval * 1000),
        )
        try:
            async with asyncio.timeout(_RESPONSE_TIMEOUT):
                await self._write(fleet_pb2.AgentFrame(hello=hello))
                frame = await self.read()
        except TimeoutError:
            raise TunnelDialError("no proxy responded in time") from None
        except grpc.aio.AioRpcError as error:
            is_refused = error.code() is grpc.StatusCode.PERMISSION_DENIED
            raise TunnelDialError(end_reason(error.code(), error.details()), is_refused=is_refused) from None
        except asyncio.InvalidStateError:
            raise TunnelDialError("the connection broke") from None
        if frame is None or not frame.hello.proxy_id:
            raise TunnelDialError("the peer did not identify itself as a proxy")
        self.proxy_id = frame.hello.proxy_id
        return self.proxy_id

    async def register(self) -> None:
        """Register on the same connection. From then on the tunnel counts. Raises TunnelDialError."""
        self._register_task = asyncio.create_task(self._client.run(), name="register of a tunnel")
        self._register_task.add_done_callback(self._on_register_ended)
        await asyncio.sleep(0)  # run up to its first wait, so that targets can be added
        try:
            async with asyncio.timeout(_RESPONSE_TIMEOUT):
                if (
                    self._wire is WireVersion.V0_1
                ):  # it has no targets: the proxy opens sessions by their names
                    await self._client.wait_until_up()
                    if not self._client.is_up:
                        await asyncio.wait((self._register_task,))
                        raise TunnelDialError(self.end_reason)
                else:
                    for target in self._services.targets:  # the status first
                        await self._client.add_target(target)
        except TimeoutError:
            raise TunnelDialError("the proxy did not respond to Register in time") from None
        except TunnelError as error:
            raise TunnelDialError(self.end_reason or str(error)) from None

    async def read(self) -> fleet_pb2.ProxyFrame | None:
        """Return the next frame of Control; None if the proxy closed the stream. Raises AioRpcError."""
        frame = await self._call.read()
        if frame is grpc.aio.EOF:
            return None
        self.last_seen_at = time.monotonic()
        assert isinstance(frame, fleet_pb2.ProxyFrame)
        if frame.pong.sequence == self._sequence and self._pinged_at is not None:
            self.rtt = smooth_rtt(self.rtt, self.last_seen_at - self._pinged_at)
            self._pinged_at = None
        return frame

    async def send_advisory_reply(self, advisory_id: str, *, is_accepted: bool) -> None:
        """Tell the proxy whether the agent follows its advice. Raises as `send_auth_advisory_reply` does."""
        reply = fleet_pb2.AdvisoryReply(advisory_id=advisory_id, accepted=is_accepted)
        await self._write(fleet_pb2.AgentFrame(advisory_reply=reply))

    async def send_auth_advisory_reply(self, reply: fleet_pb2.AuthAdvisoryReply) -> None:
        """Reply to the advice to connect to another auth. Raises AioRpcError, InvalidStateError on a broken tunnel."""
        await self._write(fleet_pb2.AgentFrame(auth_advisory_reply=reply))

    def is_dead(self, now: float) -> bool:
        """Return whether the proxy has not responded for longer than the keep-alive timeout."""
        return now - max(self.last_seen_at, self._silence_counts_from) > self._keep_alive.timeout

    def set_keep_alive(self, keep_alive: KeepAlive, now: float) -> None:
        """Change the keep-alive interval, and tell the proxy with the next ping."""
        self._keep_alive = keep_alive
        self._silence_counts_from = now
        self.next_ping_at = min(
            self.next_ping_at, now + random.random() * min(keep_alive.interval, _MAX_KEEP_ALIVE_CHANGE_DELAY)
        )

    def ignore_silence(self, seconds: float, now: float) -> None:
        """Ignore `seconds` of the proxy's silence, because this process was not running then."""
        self._silence_counts_from = min(max(self._silence_counts_from, self.last_seen_at) + seconds, now)

    def ping_soon(self, now: float) -> None:
        """Send the next ping as soon as possible."""
        self.next_ping_at = min(self.next_ping_at, now)

    def is_ping_due(self, now: float) -> bool:
        """Return whether a ping is due. While a write is blocked, none is."""
        return now >= self.next_ping_at and not self._write_lock.locked()

    async def ping(self, now: float) -> None:
        """Send a ping. A broken tunnel is noticed by its reader."""
        interval = self._keep_alive.interval
        self.next_ping_at = now + interval
        self._sequence += 1
        self._pinged_at = time.monotonic()
        ping = fleet_pb2.Ping(sequence=self._sequence, keep_alive_interval_ms=int(interval * 1000))
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self._write(fleet_pb2.AgentFrame(ping=ping))

    @property
    def is_retired(self) -> bool:
        """Whether the tunnel accepts no new sessions and closes after its last one."""
        return bool(self.retire_reason)

    def retire(self, reason: str) -> None:
        """Accept no new sessions, and close after the last open one."""
        self.retire_reason = reason
        self.retired_at = time.monotonic()
        if self.session_count:
            self._retiring_task = background.start(self._send_retiring(), name="retiring of a tunnel")
        self._end_if_idle()

    def cancel(self) -> None:
        """Close the tunnel at once."""
        self._is_cancelled = True
        self._call.cancel()

    async def _send_retiring(self) -> None:
        """Tell the proxy to open no new sessions here. Sessions that it opens anyway are refused."""
        message = fleet_pb2.Retiring(reason=self.retire_reason)
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self._write(fleet_pb2.AgentFrame(retiring=message))

    async def close(self, *, wait_for_sessions: bool = False) -> None:
        """Close both streams, the sessions and the connection.

        `wait_for_sessions`: the proxy closed the tunnel. Control and sessions are separate streams, so the end of
        Control may arrive before the last bytes of a session.
        """
        self._call.cancel()
        self._is_closing, self._broken_session_count = True, 0
        try:
            if wait_for_sessions and self.session_count and not self._is_cancelled:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_FINISH_TIMEOUT):
                        await self._client.wait_drained()
        finally:
            await self._close()

    async def _close(self) -> None:
        cut_session_count = self._broken_session_count + self.session_count - self._count_finished_sessions()
        if cut_session_count > 0:
            log.warning(
                "tunnel.broken: %s: %d sessions through proxy %s were cut",
                self._identity.name,
                cut_session_count,
                self.proxy_id,
            )
        if self._retiring_task is not None:
            self._retiring_task.cancel()
        await self._client.close()
        if self._register_task is not None:
            await asyncio.wait([self._register_task])
        await self._channel.close()

    def _count_finished_sessions(self) -> int:
        """Return the number of users' sessions that have sent and received everything and wait for their RPC to end."""
        status = self._services.targets[0]
        return sum(
            stream.is_finished and stream.is_remote_finished
            for stream in self._client.streams
            if stream.target != status
        )

    async def accept_session(self, target: Target) -> AcceptedSession:
        """Accept a session to one of the agent's services. Raises TunnelError."""
        if self.is_retired:
            raise TunnelError(f"agent {self._identity.name} has moved to another proxy")
        if target == self._services.targets[0]:
            return await self._services.accept_session(target)  # the status is not a user's session
        self.session_count += 1
        try:
            return _CountedSession(await self._services.accept_session(target), self)
        except BaseException:
            self.on_session_ended()
            raise

    def on_session_broken(self) -> None:
        """Count a broken session, if it broke because the tunnel is closing."""
        self._broken_session_count += self._is_closing

    def on_session_ended(self) -> None:
        """Count the end of a session."""
        self.session_count -= 1
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self.is_retired and not self.session_count:
            self._call.cancel()

    def _on_register_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        self.end_reason = self.end_reason or f"the Register stream ended: {error or 'closed by the agent'}"
        self._call.cancel()

    async def _write(self, frame: fleet_pb2.AgentFrame) -> None:
        async with self._write_lock:
            await self._call.write(frame)


def _handler_of(tunnel: Tunnel) -> SessionHandler:
    """Return a handler of a tunnel's sessions that holds no reference to the tunnel.

    In a reference cycle with its client, a closed tunnel would keep its RPCs, and gRPC its connection, until the next
    garbage collection.
    """
    tunnel_ref = weakref.ref(tunnel)

    async def accept_session(target: Target) -> AcceptedSession:
        live_tunnel = tunnel_ref()
        if live_tunnel is None:
            raise TunnelError("the tunnel is closed")
        return await live_tunnel.accept_session(target)

    return accept_session


class _CountedSession(AcceptedSession):
    """Keeps the number of a tunnel's sessions."""

    def __init__(self, session: AcceptedSession, tunnel: Tunnel) -> None:
        self._session = session
        self._tunnel = tunnel

    @override
    async def serve(self, stream: TunnelStream) -> None:
        try:
            await self._session.serve(stream)
        except BaseException:
            self._tunnel.on_session_broken()
            raise
        finally:
            self._tunnel.on_session_ended()

    @override
    def discard(self) -> None:
        self._tunnel.on_session_ended()
        self._session.discard()
