"""One reverse tunnel as the agent has it: a connection of its own with Control, Register, and users' sessions.

Whichever stream ends, the other does. Sessions end with their tunnel; a tunnel that another has replaced (make before
break) takes no new ones and stays, with both streams, until those it has are over.
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

from fleet import __version__
from fleet.nodes.agent.auth_connection import Identity
from fleet.nodes.agent.services import AgentServices
from fleet.processes import background
from fleet.protocol.networking.keep_alive import KeepAlive, smoothed_rtt
from fleet.protocol.tunnel.messages import Target, TunnelError, WireVersion
from fleet.transport.tunnel.client import TunnelClient
from fleet.transport.tunnel.handlers import Handler, AcceptedSession
from fleet.transport.tunnel.stream import TunnelStream, end_reason
from fleet.wire import fleet_pb2, fleet_pb2_grpc

log = logging.getLogger(__name__)

#: A new keep-alive interval is told to the proxy within this, seconds.
_KEEP_ALIVE_CHANGE_WITHIN = 5.0
#: When a proxy ends a tunnel, sessions that it ended before may take so long to have their last bytes, seconds.
_FINISH_WITHIN = 5.0
#: From dialling to the proxy's hello, and from there to its taking our targets, seconds: a balancer may give us a
#: frozen proxy.
_ANSWER_WITHIN = 5.0


class Generations:
    """Numbers that grow within this process whatever is done to its clock, and past those of earlier runs.

    Not past those of a run before the clock was set back: a proxy then takes us when our old tunnel let a ping go by.
    """

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """The next one."""
        self._last = max(self._last + 1, time.time_ns())
        return self._last


_generations = Generations()


class TunnelDialError(Exception):
    """A dial that came to nothing; the sentence says why."""

    def __init__(self, sentence: str, *, is_refused: bool = False) -> None:
        super().__init__(sentence)
        #: The proxy does not let us in, and it is the operator who can mend that.
        self.is_refused = is_refused


class Tunnel:
    """One tunnel to one proxy. Only one write runs at a time: grpc ends a call on two."""

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
        # A proxy may still hold a tunnel of ours that is dead: the later generation is the one that is not.
        self._client = TunnelClient(
            channel, wire, handler=_handler_of(self), name=identity.id, generation=_generations.next()
        )
        self._register_task: asyncio.Task[None] | None = None
        self._write_lock = asyncio.Lock()
        self._sequence = 0
        self.proxy_id = ""
        self.opened_at = self.last_seen_at = time.monotonic()
        # Silence from before this does not count: the interval was another.
        self._silence_counts_from = self.last_seen_at
        # Spread over the interval, so that a group of agents does not ping as one.
        self.ping_at = self.last_seen_at + random.random() * keep_alive.interval
        self._pinged_at: float | None = None
        #: Smoothed round-trip time of pings, seconds; None before the first answer.
        self.rtt: float | None = None
        #: When the proxy asked us to go elsewhere; None when it did not, or we had nowhere to go.
        self.advised_at: float | None = None
        #: Why it takes nobody new and ends with its last session; empty while it serves.
        self.retire_reason = ""
        #: It lasted longer than it may after that.
        self.is_cut = False
        #: Since when.
        self.retired_at: float | None = None
        self._retiring_task: asyncio.Task[None] | None = None
        #: Sessions of users.
        self.sessions = 0
        #: We ended it, because it is dead or lasted too long.
        self._is_cancelled = False
        self._closing = False
        #: Sessions that broke while it was closed.
        self._broken_count = 0
        #: Why it ended, where we know better than Control.
        self.end_reason = ""
        #: It told us of proxies, or ended.
        self.discovery_received = asyncio.Event()

    async def hello(self) -> str:
        """Exchange hellos and return the proxy's id. Raises DialError."""
        identity = self._identity
        hello = fleet_pb2.AgentHello(
            agent_id=identity.id,
            name=identity.name,
            version=__version__,
            keep_alive_interval_ms=int(self._keep_alive.interval * 1000),
        )
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                await self._write(fleet_pb2.AgentFrame(hello=hello))
                frame = await self.read()
        except TimeoutError:
            raise TunnelDialError("no proxy answered in time") from None
        except grpc.aio.AioRpcError as error:
            is_refused = error.code() is grpc.StatusCode.PERMISSION_DENIED
            raise TunnelDialError(end_reason(error.code(), error.details()), is_refused=is_refused) from None
        except asyncio.InvalidStateError:
            raise TunnelDialError("the connection broke") from None
        if frame is None or not frame.hello.proxy_id:
            raise TunnelDialError("who answered is no proxy of ours")
        self.proxy_id = frame.hello.proxy_id
        return self.proxy_id

    async def register(self) -> None:
        """Register on the same connection: then the tunnel counts. Raises DialError."""
        self._register_task = asyncio.create_task(self._client.run(), name="register of a tunnel")
        self._register_task.add_done_callback(self._on_register_ended)
        await asyncio.sleep(0)  # it runs up to its first wait: targets may be added
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                if self._wire is WireVersion.V0_1:  # it has no targets: the proxy asks for sessions by their names
                    await self._client.wait_until_up()
                    if not self._client.is_up:
                        await asyncio.wait((self._register_task,))
                        raise TunnelDialError(self.end_reason)
                else:
                    for target in self._services.targets:  # the status first
                        await self._client.add_target(target)
        except TimeoutError:
            raise TunnelDialError("the proxy did not answer Register in time") from None
        except TunnelError as error:
            raise TunnelDialError(self.end_reason or str(error)) from None

    async def read(self) -> fleet_pb2.ProxyFrame | None:
        """The next frame of Control; None when the proxy closed. Raises AioRpcError."""
        frame = await self._call.read()
        if frame is grpc.aio.EOF:
            return None
        self.last_seen_at = time.monotonic()
        assert isinstance(frame, fleet_pb2.ProxyFrame)
        if frame.pong.sequence == self._sequence and self._pinged_at is not None:
            self.rtt = smoothed_rtt(self.rtt, self.last_seen_at - self._pinged_at)
            self._pinged_at = None
        return frame

    async def send_advisory_reply(self, advisory_id: str, *, is_accepted: bool) -> None:
        """Answer an advisory."""
        reply = fleet_pb2.AdvisoryReply(advisory_id=advisory_id, accepted=is_accepted)
        await self._write(fleet_pb2.AgentFrame(advisory_reply=reply))

    async def send_auth_advisory_reply(self, reply: fleet_pb2.AuthAdvisoryReply) -> None:
        """Answer the advice to connect to another auth. Raises AioRpcError, InvalidStateError when it is gone."""
        await self._write(fleet_pb2.AgentFrame(auth_advisory_reply=reply))

    def is_dead(self, now: float) -> bool:
        """Whether the proxy answered nothing for too long."""
        return now - max(self.last_seen_at, self._silence_counts_from) > self._keep_alive.timeout

    def set_keep_alive(self, keep_alive: KeepAlive, now: float) -> None:
        """Ping in another interval from now on, and let the proxy know."""
        self._keep_alive = keep_alive
        self._silence_counts_from = now
        self.ping_at = min(self.ping_at, now + random.random() * min(keep_alive.interval, _KEEP_ALIVE_CHANGE_WITHIN))

    def forgive_silence(self, seconds: float, now: float) -> None:
        """Blame the proxy less for its silence, by so much."""
        self._silence_counts_from = min(max(self._silence_counts_from, self.last_seen_at) + seconds, now)

    def ping_soon(self, now: float) -> None:
        """Ping at the next opportunity."""
        self.ping_at = min(self.ping_at, now)

    def is_ping_due(self, now: float) -> bool:
        """Whether a ping is due; a blocked one is not doubled."""
        return now >= self.ping_at and not self._write_lock.locked()

    async def ping(self, now: float) -> None:
        """Send a ping; a broken tunnel is noticed by who reads."""
        interval = self._keep_alive.interval
        self.ping_at = now + interval
        self._sequence += 1
        self._pinged_at = time.monotonic()
        ping = fleet_pb2.Ping(sequence=self._sequence, keep_alive_interval_ms=int(interval * 1000))
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self._write(fleet_pb2.AgentFrame(ping=ping))

    @property
    def is_retired(self) -> bool:
        """Whether it takes nobody new and ends with its last session."""
        return bool(self.retire_reason)

    def retire(self, reason: str) -> None:
        """Take no new sessions, and end after the last of those there are."""
        self.retire_reason = reason
        self.retired_at = time.monotonic()
        if self.sessions:
            self._retiring_task = background.start(self._send_retiring(), name="retiring of a tunnel")
        self._end_if_idle()

    def cancel(self) -> None:
        """End it at once."""
        self._is_cancelled = True
        self._call.cancel()

    async def _send_retiring(self) -> None:
        """Let the proxy send nobody here any more; whoever comes all the same is refused."""
        message = fleet_pb2.Retiring(reason=self.retire_reason)
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await self._write(fleet_pb2.AgentFrame(retiring=message))

    async def close(self, *, finish: bool = False) -> None:
        """End both streams, the sessions and the connection.

        With `finish` the proxy ended it. Control and sessions are streams of their own: a proxy that lets a tunnel end
        after its last session may be heard of that before the last bytes of the session are.
        """
        self._call.cancel()
        self._closing, self._broken_count = True, 0
        try:
            if finish and self.sessions and not self._is_cancelled:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_FINISH_WITHIN):
                        await self._client.wait_drained()
        finally:
            await self._close()

    async def _close(self) -> None:
        cut = self._broken_count + self.sessions - self._count_finished_sessions()
        if cut > 0:
            log.warning(
                "tunnel.broken: %s: %d sessions through proxy %s are cut",
                self._identity.name,
                cut,
                self.proxy_id,
            )
        if self._retiring_task is not None:
            self._retiring_task.cancel()
        await self._client.close()
        if self._register_task is not None:
            await asyncio.wait([self._register_task])
        await self._channel.close()

    def _count_finished_sessions(self) -> int:
        """Return how many sessions of users have sent and received everything, and wait for the end of their call."""
        status = self._services.targets[0]
        return sum(
            stream.is_finished and stream.is_remote_finished
            for stream in self._client.streams
            if stream.target != status
        )

    async def accept_session(self, target: Target) -> AcceptedSession:
        """Take a session to one of the agent's services. Raises TunnelError."""
        if self.is_retired:
            raise TunnelError(f"agent {self._identity.name} has moved to another proxy")
        if target == self._services.targets[0]:
            return await self._services.accept_session(target)  # the status is nobody's session
        self.sessions += 1
        try:
            return _Session(await self._services.accept_session(target), self)
        except BaseException:
            self.on_session_ended()
            raise

    def on_session_broken(self) -> None:
        """One of its sessions ended badly: through no fault of the tunnel unless that is being closed."""
        self._broken_count += self._closing

    def on_session_ended(self) -> None:
        """One of its sessions is over."""
        self.sessions -= 1
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self.is_retired and not self.sessions:
            self._call.cancel()

    def _on_register_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        self.end_reason = self.end_reason or f"its Register stream ended: {error or 'by us'}"
        self._call.cancel()

    async def _write(self, frame: fleet_pb2.AgentFrame) -> None:
        async with self._write_lock:
            await self._call.write(frame)


def _handler_of(tunnel: Tunnel) -> Handler:
    """What takes sessions for a tunnel, without holding it.

    In a cycle with its client a closed tunnel would keep its calls, and gRPC with them the connection, until somebody
    looks for garbage.
    """
    tunnel_ref = weakref.ref(tunnel)

    async def accept_session(target: Target) -> AcceptedSession:
        live_tunnel = tunnel_ref()
        if live_tunnel is None:
            raise TunnelError("the tunnel is closed")
        return await live_tunnel.accept_session(target)

    return accept_session


class _Session(AcceptedSession):
    """Lets a tunnel know how many of its sessions there are."""

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
