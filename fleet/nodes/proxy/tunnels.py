"""A proxy's reverse tunnels: who holds one, what is to be sent on it, and how long nothing was heard.

A tunnel is two streams of one connection, Control and Register, and counts while both are open. It outlives neither.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Hashable

from fleet.nodes.proxy.metrics import ProxyMetrics
from fleet.protocol.networking.keep_alive import KeepAlive, TunnelLiveness
from fleet.protocol.recovery import discovery
from fleet.protocol.recovery.discovery import Publisher, Subscriber
from fleet.protocol.recovery.feed import RevisionFeed, FeedPage
from fleet.protocol.tunnel.messages import WireVersion
from fleet.protocol.tunnel.server_state import ClientConnection
from fleet.transport.tunnel.stream import TunnelStream
from fleet.wire import fleet_pb2

#: A tunnel told to end that does not is blocked in a write: its call is cancelled after this, seconds.
_END_WITHIN = 1.0
#: A ping that is later than this is missing, seconds.
_PING_LATE = 1.0
#: Frames that wait for an agent that does not read; with so many nothing more is read of what it sends.
_MOST_UNREAD = 64
#: An agent that said hello must have registered within this, seconds.
_REGISTER_WITHIN = 10.0

_SILENT = "nothing was heard for too long"
_NOT_REGISTERED = "the agent said hello and did not register"
_DISPLACED = "displaced by a newer tunnel of the same agent"
SHUTTING_DOWN = "this proxy is shutting down"
#: What metrics call them; whatever else ends a tunnel is the agent's doing, or its network's.
_REASONS = {
    _SILENT: "silent",
    _NOT_REGISTERED: "not-registered",
    _DISPLACED: "displaced",
    SHUTTING_DOWN: "shutdown",
}

Clock = Callable[[], float]


class Tunnel:
    """One agent's tunnel, as the proxy holds it. `now` is of a monotonic clock."""

    def __init__(
        self,
        hello: fleet_pb2.AgentHello,
        key: Hashable,
        subscriber: Subscriber,
        metrics: ProxyMetrics,
        now: float,
        wire: WireVersion = WireVersion.V0_2,
    ) -> None:
        self.metrics = metrics
        #: The version of TCP over gRPC that its Register stream speaks.
        self.wire = wire
        self.agent_id = hello.agent_id
        self.agent_name = hello.name
        #: Names the connection that both streams ride.
        self.key = key
        self.opened_at = now
        self.last_seen_at = now
        #: The task that serves the Control call.
        self.task: asyncio.Task[object] | None = None
        #: The Register stream; None before and after it.
        self.register: ClientConnection | None = None
        #: Both streams were open at a time: until then the tunnel does not count.
        self.is_joined = False
        #: A newer tunnel of the agent counts. This one stays for the sessions it has.
        self.is_displaced = False
        #: Users' sessions.
        self.sessions: set[TunnelStream] = set()
        #: How many the feed was told of.
        self.reported_session_count = 0
        self.ended_at: float | None = None
        self.end_reason = ""
        #: The last advice to reconnect; empty when there was none.
        self.advisory_id = ""
        #: What the agent answered to it; None before it did.
        self.is_advice_accepted: bool | None = None
        #: The last advice to connect to another auth, and what came of it; empty and None before there was any.
        self.auth_advisory_id = ""
        self.auth_reply: fleet_pb2.AuthAdvisoryReply | None = None
        #: How often the agent says it pings, seconds.
        self.interval = hello.keep_alive_interval_ms / 1000
        self._subscriber = subscriber
        self._frames: deque[fleet_pb2.ProxyFrame] = deque()
        self._wakeup = asyncio.Event()
        #: Few enough frames wait.
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def full_at(self) -> float | None:
        """When its next full discovery list is due."""
        return self._subscriber.full_at

    def send(self, frame: fleet_pb2.ProxyFrame) -> None:
        """Queue a frame."""
        self._frames.append(frame)
        if len(self._frames) >= _MOST_UNREAD:
            self._has_room.clear()
        self._wakeup.set()

    async def wait_for_room(self) -> None:
        """Wait until the agent has read enough of what it was sent: else each ping would cost memory for ever."""
        await self._has_room.wait()

    def wake(self) -> None:
        """There may be proxies to tell of: what gathers until the next write goes in one message."""
        self._wakeup.set()

    def end(self, reason: str, now: float) -> None:
        """Let the call end after what is being written."""
        if self.ended_at is None:
            self.ended_at, self.end_reason = now, reason
            self._wakeup.set()

    async def next_frame(self, clock: Clock) -> fleet_pb2.ProxyFrame | None:
        """Wait for the next frame to write; None when the tunnel is to end."""
        while True:
            self._wakeup.clear()
            if self.ended_at is not None:
                return None
            if self._frames:
                frame = self._frames.popleft()
                if len(self._frames) < _MOST_UNREAD:
                    self._has_room.set()
                return frame
            proxies = self._subscriber.read(clock())
            if proxies:
                request = discovery.encode(proxies)
                self.metrics.discovery_messages.inc()
                self.metrics.discovery_bytes.inc(len(request))
                return fleet_pb2.ProxyFrame(discovery=fleet_pb2.Discovery(request=request))
            await self._wakeup.wait()


class TunnelTable:
    """All tunnels of a proxy, and the feed of the live ones. One epoch is one run of the proxy."""

    def __init__(
        self,
        publisher: Publisher,
        keep_alive: KeepAlive,
        metrics: ProxyMetrics,
        on_closed: Callable[[Tunnel], None] | None = None,
    ) -> None:
        """Begin with none; `closed` hears of each tunnel whose Control call is over."""
        self._publisher = publisher
        #: How often agents ping, if they do not say otherwise, and how many pings may be missing.
        self.keep_alive = keep_alive
        self._metrics = metrics
        self._on_closed = on_closed
        # By connection: all whose Control call is open. By agent: the one that counts.
        self._open: dict[Hashable, Tunnel] = {}
        self._current: dict[str, Tunnel] = {}
        # Names are no ids: two agents may have one. In lower case, as hosts are named.
        self._ids_by_name: dict[str, set[str]] = {}
        self._feed: RevisionFeed[Tunnel] = RevisionFeed(secrets.token_hex(8))
        self._swept_at: float | None = None
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def __len__(self) -> int:
        """Live tunnels."""
        return len(self._feed)

    @property
    def offered_tunnels(self) -> tuple[Tunnel, ...]:
        """Those offered to users, the longest open first."""
        return tuple(tunnel for tunnel in self._current.values() if self._feed.get(tunnel.agent_id) is tunnel)

    @property
    def sessions(self) -> int:
        """Sessions that are open."""
        return sum(len(tunnel.sessions) for tunnel in self._open.values())

    def states(self) -> dict[str, int]:
        """How many tunnels are live, offline, joining (no Register stream yet) and retiring (displaced, in use)."""
        counts = dict.fromkeys(("live", "offline", "joining", "retiring"), 0)
        for tunnel in self._open.values():
            if tunnel.is_displaced:
                counts["retiring"] += 1
            elif not tunnel.is_joined:
                counts["joining"] += 1
            else:
                counts["live" if self._feed.get(tunnel.agent_id) is tunnel else "offline"] += 1
        return counts

    def find_by_connection(self, key: Hashable) -> Tunnel | None:
        """The tunnel of a connection, whether it counts or not."""
        return self._open.get(key)

    def is_silent(self, key: Hashable, now: float) -> bool:
        """Whether the agent of a connection let one of its pings go by, and what a busy host takes besides."""
        tunnel = self._open.get(key)
        if tunnel is None:
            return False
        return now - tunnel.last_seen_at > self.keep_alive.for_peer(tunnel.interval).interval + _PING_LATE

    def find_current(self, agent_id: str) -> Tunnel | None:
        """The tunnel of an agent that counts, live or offline."""
        return self._current.get(agent_id)

    def find_live(self, agent_id: str) -> Tunnel | None:
        """The tunnel of an agent, if it is live."""
        return self._feed.get(agent_id)

    def find(self, agent: str) -> list[Tunnel]:
        """Live tunnels of the agents with that id, or that name in any case."""
        ids = {agent} if agent in self._current else self._ids_by_name.get(agent.lower(), set())
        return [tunnel for agent_id in sorted(ids) if (tunnel := self._feed.get(agent_id)) is not None]

    def open(self, hello: fleet_pb2.AgentHello, key: Hashable, now: float, wire: WireVersion = WireVersion.V0_2) -> Tunnel:
        """An agent said hello: its tunnel counts when it is joined by a Register stream."""
        tunnel = Tunnel(hello, key, Subscriber(self._publisher), self._metrics, now, wire)
        self._open[key] = tunnel
        self._is_empty.clear()
        return tunnel

    def join(self, tunnel: Tunnel, now: float) -> None:
        """Both streams are open. An older tunnel of the same agent is displaced: dead, or left for this one."""
        if tunnel.is_joined or tunnel.ended_at is not None:
            return
        tunnel.is_joined = True
        old = self._current.pop(tunnel.agent_id, None)
        if old is not None:
            self._forget_name(old)
            old.is_displaced = True
            self._end_if_idle(old, now)
        self._current[tunnel.agent_id] = tunnel
        self._ids_by_name.setdefault(tunnel.agent_name.lower(), set()).add(tunnel.agent_id)
        self._feed.put(tunnel.agent_id, tunnel)

    def retire(self, tunnel: Tunnel) -> None:
        """The agent lets it go: it stays for the sessions it has, and is not offered to users any more."""
        tunnel.is_displaced = True
        self._forget(tunnel)

    def close(self, tunnel: Tunnel) -> None:
        """A tunnel's Control call is over, and so are the sessions it still had."""
        del self._open[tunnel.key]
        self._forget(tunnel)
        self._metrics.closed_tunnels.labels(_REASONS.get(tunnel.end_reason, "agent")).inc()
        if not self._open:
            self._is_empty.set()
        if self._on_closed is not None:
            self._on_closed(tunnel)
        for stream in list(tunnel.sessions):
            stream.abort(tunnel.end_reason or "the agent went away")

    def begin_session(self, tunnel: Tunnel, stream: TunnelStream) -> None:
        """A user's session is open."""
        tunnel.sessions.add(stream)

    def end_session(self, tunnel: Tunnel, stream: TunnelStream, now: float) -> None:
        """It is over."""
        tunnel.sessions.discard(stream)
        if tunnel.is_displaced:
            self._end_if_idle(tunnel, now)

    async def wait_until_empty(self) -> None:
        """Wait until no agent holds a tunnel here."""
        await self._is_empty.wait()

    def record_frame(self, tunnel: Tunnel, now: float) -> None:
        """The agent said something: a tunnel that was offline is back."""
        tunnel.last_seen_at = now
        if self._current.get(tunnel.agent_id) is tunnel and self._feed.get(tunnel.agent_id) is None:
            self._feed.put(tunnel.agent_id, tunnel)

    def since(self, epoch: str, revision: int, limit: int) -> FeedPage[Tunnel]:
        """What changed among live tunnels."""
        return self._feed.since(epoch, revision, limit)

    def wake_all(self) -> None:
        """News of proxies: wake all."""
        for tunnel in self._open.values():
            tunnel.wake()

    def send_all(self, frame: Callable[[Tunnel], fleet_pb2.ProxyFrame]) -> None:
        """Queue a frame on every tunnel."""
        for tunnel in self._open.values():
            tunnel.send(frame(tunnel))

    def end_all(self, reason: str, now: float) -> None:
        """End every tunnel."""
        for tunnel in self._open.values():
            tunnel.end(reason, now)

    def sweep(self, now: float, tick: float) -> None:
        """Look for half-open tunnels and due full lists; called every `tick` seconds."""
        lag_seconds = 0.0 if self._swept_at is None else now - self._swept_at - tick
        self._swept_at = now
        for tunnel in list(self._open.values()):
            if lag_seconds > tick:
                # We were frozen, so it is us who did not listen: what agents sent meanwhile is still in the sockets.
                tunnel.last_seen_at = min(tunnel.last_seen_at + lag_seconds, now)
                if not tunnel.is_joined:
                    tunnel.opened_at = min(tunnel.opened_at + lag_seconds, now)
            self._check_liveness(tunnel, now)
            if tunnel.full_at is not None and now >= tunnel.full_at:
                tunnel.wake()
            self._report_sessions(tunnel)
            ended_at = tunnel.ended_at
            if ended_at is not None and now - ended_at > _END_WITHIN and tunnel.task is not None:
                tunnel.task.cancel()

    def _check_liveness(self, tunnel: Tunnel, now: float) -> None:
        # By the agent's own interval: ours may have changed before the agent was told.
        liveness = self.keep_alive.for_peer(tunnel.interval).liveness(tunnel.last_seen_at, now)
        is_current = self._current.get(tunnel.agent_id) is tunnel
        if is_current and liveness is not TunnelLiveness.LIVE:
            self._feed.remove(tunnel.agent_id)
        # A displaced tunnel will not be asked for any more: nothing is to be hoped from one that is offline.
        if liveness is TunnelLiveness.DEAD or (tunnel.is_displaced and liveness is not TunnelLiveness.LIVE):
            tunnel.end(_SILENT, now)
        elif not tunnel.is_joined and now - tunnel.opened_at > _REGISTER_WITHIN:
            tunnel.end(_NOT_REGISTERED, now)

    def _forget(self, tunnel: Tunnel) -> None:
        if self._current.get(tunnel.agent_id) is tunnel:
            del self._current[tunnel.agent_id]
            self._feed.remove(tunnel.agent_id)
            self._forget_name(tunnel)

    def _forget_name(self, tunnel: Tunnel) -> None:
        name = tunnel.agent_name.lower()
        self._ids_by_name[name].discard(tunnel.agent_id)
        if not self._ids_by_name[name]:
            del self._ids_by_name[name]

    def _end_if_idle(self, tunnel: Tunnel, now: float) -> None:
        if not tunnel.sessions:
            tunnel.end(_DISPLACED, now)

    def _report_sessions(self, tunnel: Tunnel) -> None:
        """Put a changed count into the feed: here and not at once, as sessions may come by the thousand."""
        if tunnel.reported_session_count != len(tunnel.sessions) and self._feed.get(tunnel.agent_id) is tunnel:
            tunnel.reported_session_count = len(tunnel.sessions)
            self._feed.put(tunnel.agent_id, tunnel)
