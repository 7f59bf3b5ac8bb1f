"""The reverse tunnels of a proxy: which agents have one, the frames to send, and the silence of agents.

A tunnel is two streams of one connection, Control and Register. It counts while both are open.
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
from fleet.protocol.recovery.feed import FeedPage, RevisionFeed
from fleet.protocol.tunnel.messages import WireVersion
from fleet.protocol.tunnel.server_state import ClientConnection
from fleet.transport.tunnel.stream import TunnelStream
from fleet.wire import fleet_pb2

#: Seconds after which the RPC of an ended tunnel is cancelled: it is blocked in a write then.
_END_WITHIN = 1.0
#: Seconds by which a ping may be late before it counts as missing.
_PING_TOLERANCE = 1.0
#: Most unread frames of an agent. At this number, the proxy stops reading from the agent.
_MOST_UNREAD = 64
#: Seconds within which an agent must register after its hello.
_REGISTER_WITHIN = 10.0

_SILENT = "no message from the agent for too long"
_NOT_REGISTERED = "the agent sent a hello but did not register"
_DISPLACED = "replaced by a newer tunnel of the same agent"
SHUTTING_DOWN = "this proxy is shutting down"
#: Labels of the metric. Other ends of a tunnel are caused by the agent or its network.
_REASONS = {
    _SILENT: "keep-alive-timeout",
    _NOT_REGISTERED: "not-registered",
    _DISPLACED: "replaced",
    SHUTTING_DOWN: "shutdown",
}

Clock = Callable[[], float]


class Tunnel:
    """The proxy's end of a tunnel to one agent. `now` is a time of the monotonic clock."""

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
        #: Protocol version of TCP over gRPC on the Register stream.
        self.wire = wire
        self.agent_id = hello.agent_id
        self.agent_name = hello.name
        #: Key of the connection that both streams use.
        self.key = key
        self.opened_at = now
        self.last_seen_at = now
        #: The task that serves the Control RPC.
        self.task: asyncio.Task[object] | None = None
        #: The Register stream; None before it opens and after it ends.
        self.register_client: ClientConnection | None = None
        #: Both streams have been open together. Until then the tunnel does not count.
        self.is_joined = False
        #: The agent has a newer tunnel that counts. This one stays open for its sessions.
        self.is_displaced = False
        #: Users' sessions.
        self.sessions: set[TunnelStream] = set()
        #: Number of sessions last reported in the feed.
        self.reported_session_count = 0
        self.ended_at: float | None = None
        self.end_reason = ""
        #: Id of the last advice to reconnect; empty if there was none.
        self.advisory_id = ""
        #: The agent's reply to that advice; None before it replied.
        self.is_advice_accepted: bool | None = None
        #: Id of the last advice to connect to another auth, and the agent's reply; empty and None if there was none.
        self.auth_advisory_id = ""
        self.auth_reply: fleet_pb2.AuthAdvisoryReply | None = None
        #: Seconds between the agent's pings, as the agent reports.
        self.ping_interval = hello.keep_alive_interval_ms / 1000
        self._subscriber = subscriber
        self._frames: deque[fleet_pb2.ProxyFrame] = deque()
        self._wakeup = asyncio.Event()
        #: Set while few enough frames wait.
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def full_list_due_at(self) -> float | None:
        """When the next full discovery list is due."""
        return self._subscriber.next_full_at

    def send(self, frame: fleet_pb2.ProxyFrame) -> None:
        """Queue a frame."""
        self._frames.append(frame)
        if len(self._frames) >= _MOST_UNREAD:
            self._has_room.clear()
        self._wakeup.set()

    async def wait_for_room(self) -> None:
        """Wait until the agent has read enough frames. Otherwise its pings could use up memory without limit."""
        await self._has_room.wait()

    def wake(self) -> None:
        """Wake the writer, because proxies may have changed. Changes until the next write go into one message."""
        self._wakeup.set()

    def end(self, reason: str, now: float) -> None:
        """End the RPC after the current write."""
        if self.ended_at is None:
            self.ended_at, self.end_reason = now, reason
            self._wakeup.set()

    async def next_frame(self, clock: Clock) -> fleet_pb2.ProxyFrame | None:
        """Wait for the next frame to write; None if the tunnel must end."""
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
    """All tunnels of a proxy, and the feed of the live ones. An epoch is one run of the proxy."""

    def __init__(
        self,
        publisher: Publisher,
        keep_alive: KeepAlive,
        metrics: ProxyMetrics,
        on_closed: Callable[[Tunnel], None] | None = None,
    ) -> None:
        """Start without tunnels. `on_closed` is called with each tunnel whose Control RPC has ended."""
        self._publisher = publisher
        #: Default ping interval of agents, and how many pings may be missing.
        self.keep_alive = keep_alive
        self._metrics = metrics
        self._on_closed = on_closed
        # By connection: tunnels with an open Control RPC. By agent: the tunnel that counts.
        self._tunnels_by_connection: dict[Hashable, Tunnel] = {}
        self._current_by_agent: dict[str, Tunnel] = {}
        # Agent ids by name in lower case. Several agents may have the same name.
        self._ids_by_name: dict[str, set[str]] = {}
        self._feed: RevisionFeed[Tunnel] = RevisionFeed(secrets.token_hex(8))
        self._swept_at: float | None = None
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def __len__(self) -> int:
        """Return the number of live tunnels."""
        return len(self._feed)

    @property
    def offered_tunnels(self) -> tuple[Tunnel, ...]:
        """Tunnels that users can connect through, the oldest first."""
        return tuple(
            tunnel for tunnel in self._current_by_agent.values() if self._feed.get(tunnel.agent_id) is tunnel
        )

    @property
    def session_count(self) -> int:
        """Number of open sessions."""
        return sum(len(tunnel.sessions) for tunnel in self._tunnels_by_connection.values())

    def count_by_state(self) -> dict[str, int]:
        """Return the number of tunnels that are live, offline, registering and draining (replaced)."""
        counts = dict.fromkeys(("live", "offline", "registering", "draining"), 0)
        for tunnel in self._tunnels_by_connection.values():
            if tunnel.is_displaced:
                counts["draining"] += 1
            elif not tunnel.is_joined:
                counts["registering"] += 1
            else:
                counts["live" if self._feed.get(tunnel.agent_id) is tunnel else "offline"] += 1
        return counts

    def find_by_connection(self, key: Hashable) -> Tunnel | None:
        """Return the tunnel of a connection, whether it counts or not."""
        return self._tunnels_by_connection.get(key)

    def is_silent(self, key: Hashable, now: float) -> bool:
        """Return whether the agent of a connection has missed a ping, with some tolerance for busy hosts."""
        tunnel = self._tunnels_by_connection.get(key)
        if tunnel is None:
            return False
        return (
            now - tunnel.last_seen_at
            > self.keep_alive.for_peer(tunnel.ping_interval).interval + _PING_TOLERANCE
        )

    def find_current(self, agent_id: str) -> Tunnel | None:
        """Return the tunnel of an agent that counts, live or offline."""
        return self._current_by_agent.get(agent_id)

    def find_live(self, agent_id: str) -> Tunnel | None:
        """Return the live tunnel of an agent; None if there is none."""
        return self._feed.get(agent_id)

    def find_by_id_or_name(self, agent: str) -> list[Tunnel]:
        """Return the live tunnels of the agents with this id, or with this name in any case."""
        ids = {agent} if agent in self._current_by_agent else self._ids_by_name.get(agent.lower(), set())
        return [tunnel for agent_id in sorted(ids) if (tunnel := self._feed.get(agent_id)) is not None]

    def open(
        self, hello: fleet_pb2.AgentHello, key: Hashable, now: float, wire: WireVersion = WireVersion.V0_2
    ) -> Tunnel:
        """Add a tunnel after an agent's hello. It counts once a Register stream joins it."""
        tunnel = Tunnel(hello, key, Subscriber(self._publisher), self._metrics, now, wire)
        self._tunnels_by_connection[key] = tunnel
        self._is_empty.clear()
        return tunnel

    def join(self, tunnel: Tunnel, now: float) -> None:
        """Count a tunnel whose two streams are open. An older tunnel of the same agent is displaced."""
        if tunnel.is_joined or tunnel.ended_at is not None:
            return
        tunnel.is_joined = True
        old = self._current_by_agent.pop(tunnel.agent_id, None)
        if old is not None:
            self._forget_name(old)
            old.is_displaced = True
            self._end_if_idle(old, now)
        self._current_by_agent[tunnel.agent_id] = tunnel
        self._ids_by_name.setdefault(tunnel.agent_name.lower(), set()).add(tunnel.agent_id)
        self._feed.put(tunnel.agent_id, tunnel)

    def retire(self, tunnel: Tunnel) -> None:
        """Offer a tunnel to users no longer, because its agent lets it go. Its sessions continue."""
        tunnel.is_displaced = True
        self._forget(tunnel)

    def close(self, tunnel: Tunnel) -> None:
        """Remove a tunnel whose Control RPC has ended, and end its sessions."""
        del self._tunnels_by_connection[tunnel.key]
        self._forget(tunnel)
        self._metrics.closed_tunnels.labels(_REASONS.get(tunnel.end_reason, "closed-by-agent")).inc()
        if not self._tunnels_by_connection:
            self._is_empty.set()
        if self._on_closed is not None:
            self._on_closed(tunnel)
        for stream in list(tunnel.sessions):
            stream.abort(tunnel.end_reason or "the agent has disconnected")

    def begin_session(self, tunnel: Tunnel, stream: TunnelStream) -> None:
        """Add a user's session."""
        tunnel.sessions.add(stream)

    def end_session(self, tunnel: Tunnel, stream: TunnelStream, now: float) -> None:
        """Remove a user's session."""
        tunnel.sessions.discard(stream)
        if tunnel.is_displaced:
            self._end_if_idle(tunnel, now)

    async def wait_until_empty(self) -> None:
        """Wait until no agent has a tunnel here."""
        await self._is_empty.wait()

    def record_frame(self, tunnel: Tunnel, now: float) -> None:
        """Record a message of the agent. An offline tunnel becomes live again."""
        tunnel.last_seen_at = now
        if self._current_by_agent.get(tunnel.agent_id) is tunnel and self._feed.get(tunnel.agent_id) is None:
            self._feed.put(tunnel.agent_id, tunnel)

    def since(self, epoch: str, revision: int, limit: int) -> FeedPage[Tunnel]:
        """Return the changes of live tunnels since a revision."""
        return self._feed.since(epoch, revision, limit)

    def wake_all(self) -> None:
        """Wake all tunnels, because proxies have changed."""
        for tunnel in self._tunnels_by_connection.values():
            tunnel.wake()

    def send_all(self, make_frame: Callable[[Tunnel], fleet_pb2.ProxyFrame]) -> None:
        """Queue a frame on every tunnel."""
        for tunnel in self._tunnels_by_connection.values():
            tunnel.send(make_frame(tunnel))

    def end_all(self, reason: str, now: float) -> None:
        for tunnel in self._tunnels_by_connection.values():
            tunnel.end(reason, now)

    def sweep(self, now: float, tick: float) -> None:
        """End dead tunnels and send full lists that are due. Called every `tick` seconds."""
        lag_seconds = 0.0 if self._swept_at is None else now - self._swept_at - tick
        self._swept_at = now
        for tunnel in list(self._tunnels_by_connection.values()):
            if lag_seconds > tick:
                # This process was frozen and did not listen: what agents sent meanwhile is still in the sockets.
                tunnel.last_seen_at = min(tunnel.last_seen_at + lag_seconds, now)
                if not tunnel.is_joined:
                    tunnel.opened_at = min(tunnel.opened_at + lag_seconds, now)
            self._check_liveness(tunnel, now)
            if tunnel.full_list_due_at is not None and now >= tunnel.full_list_due_at:
                tunnel.wake()
            self._report_sessions(tunnel)
            ended_at = tunnel.ended_at
            if ended_at is not None and now - ended_at > _END_WITHIN and tunnel.task is not None:
                tunnel.task.cancel()

    def _check_liveness(self, tunnel: Tunnel, now: float) -> None:
        # By the agent's own interval: this proxy's may have changed before the agent knew.
        liveness = self.keep_alive.for_peer(tunnel.ping_interval).liveness(tunnel.last_seen_at, now)
        is_current = self._current_by_agent.get(tunnel.agent_id) is tunnel
        if is_current and liveness is not TunnelLiveness.LIVE:
            self._feed.remove(tunnel.agent_id)
        # A displaced tunnel gets no new sessions, so an offline one is not worth keeping.
        if liveness is TunnelLiveness.DEAD or (tunnel.is_displaced and liveness is not TunnelLiveness.LIVE):
            tunnel.end(_SILENT, now)
        elif not tunnel.is_joined and now - tunnel.opened_at > _REGISTER_WITHIN:
            tunnel.end(_NOT_REGISTERED, now)

    def _forget(self, tunnel: Tunnel) -> None:
        if self._current_by_agent.get(tunnel.agent_id) is tunnel:
            del self._current_by_agent[tunnel.agent_id]
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
        """Report a changed number of sessions in the feed. Not at every change, because there may be thousands."""
        if (
            tunnel.reported_session_count != len(tunnel.sessions)
            and self._feed.get(tunnel.agent_id) is tunnel
        ):
            tunnel.reported_session_count = len(tunnel.sessions)
            self._feed.put(tunnel.agent_id, tunnel)
