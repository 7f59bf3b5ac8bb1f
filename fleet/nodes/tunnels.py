"""A proxy's reverse tunnels: who holds one, what is to be sent on it, and how long nothing was heard."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable

from fleet.protocol import discovery
from fleet.protocol.discovery import Publisher, Subscriber
from fleet.protocol.feed import Feed, Page
from fleet.protocol.keep_alive import KeepAlive, Liveness
from fleet.wire import fleet_pb2

#: A tunnel told to end that does not is blocked in a write: its call is cancelled after this, seconds.
_END_WITHIN = 1.0

Clock = Callable[[], float]


class Tunnel:
    """One agent's control stream, as the proxy holds it. `now` is of a monotonic clock."""

    def __init__(self, hello: fleet_pb2.AgentHello, subscriber: Subscriber, now: float) -> None:
        self.agent_id = hello.agent_id
        self.agent_name = hello.name
        self.opened_at = now
        self.heard_at = now
        #: The task that serves the call.
        self.task: asyncio.Task[object] | None = None
        self.ended_at: float | None = None
        self.why_ended = ""
        self._subscriber = subscriber
        self._frames: deque[fleet_pb2.ProxyFrame] = deque()
        self._woken = asyncio.Event()

    @property
    def full_at(self) -> float | None:
        """When its next full discovery list is due."""
        return self._subscriber.full_at

    def send(self, frame: fleet_pb2.ProxyFrame) -> None:
        """Queue a frame."""
        self._frames.append(frame)
        self._woken.set()

    def poke(self) -> None:
        """There may be proxies to tell of: what gathers until the next write goes in one message."""
        self._woken.set()

    def end(self, why: str, now: float) -> None:
        """Let the call end after what is being written."""
        if self.ended_at is None:
            self.ended_at, self.why_ended = now, why
            self._woken.set()

    async def next_frame(self, clock: Clock) -> fleet_pb2.ProxyFrame | None:
        """Wait for the next frame to write; None when the tunnel is to end."""
        while True:
            self._woken.clear()
            if self.ended_at is not None:
                return None
            if self._frames:
                return self._frames.popleft()
            proxies = self._subscriber.read(clock())
            if proxies:
                request = discovery.encode(proxies)
                return fleet_pb2.ProxyFrame(discovery=fleet_pb2.Discovery(request=request))
            await self._woken.wait()


class TunnelTable:
    """All tunnels of a proxy, and the feed of the live ones. One epoch is one run of the proxy."""

    def __init__(self, publisher: Publisher, keep_alive: KeepAlive) -> None:
        self._publisher = publisher
        self._keep_alive = keep_alive
        # By agent: the stream that counts. Displaced ones live on in `_ending` until their calls are over.
        self._current: dict[str, Tunnel] = {}
        self._ending: set[Tunnel] = set()
        self._feed: Feed[Tunnel] = Feed(secrets.token_hex(8))
        self._swept_at: float | None = None
        self._emptied = asyncio.Event()
        self._emptied.set()

    def __len__(self) -> int:
        """Live tunnels."""
        return len(self._feed)

    def open(self, hello: fleet_pb2.AgentHello, now: float) -> Tunnel:
        """Take a tunnel in; an older one of the same agent is displaced: its connection is dead, or soon will be."""
        tunnel = Tunnel(hello, Subscriber(self._publisher), now)
        old = self._current.get(tunnel.agent_id)
        if old is not None:
            self._ending.add(old)
            old.end("displaced by a newer tunnel of the same agent", now)
        self._current[tunnel.agent_id] = tunnel
        self._emptied.clear()
        self._feed.put(tunnel.agent_id, tunnel)
        return tunnel

    def close(self, tunnel: Tunnel) -> None:
        """A tunnel's call is over."""
        self._ending.discard(tunnel)
        if self._current.get(tunnel.agent_id) is tunnel:
            del self._current[tunnel.agent_id]
            self._feed.remove(tunnel.agent_id)
            if not self._current:
                self._emptied.set()

    async def empty(self) -> None:
        """Wait until no agent holds a tunnel here."""
        await self._emptied.wait()

    def heard(self, tunnel: Tunnel, now: float) -> None:
        """The agent said something: a tunnel that was offline is back."""
        tunnel.heard_at = now
        if self._current.get(tunnel.agent_id) is tunnel and self._feed.get(tunnel.agent_id) is None:
            self._feed.put(tunnel.agent_id, tunnel)

    def since(self, epoch: str, revision: int, limit: int) -> Page[Tunnel]:
        """What changed among live tunnels."""
        return self._feed.since(epoch, revision, limit)

    def poke(self) -> None:
        """News of proxies: wake all."""
        for tunnel in self._current.values():
            tunnel.poke()

    def send_all(self, frame: Callable[[Tunnel], fleet_pb2.ProxyFrame]) -> None:
        """Queue a frame on every tunnel."""
        for tunnel in self._current.values():
            tunnel.send(frame(tunnel))

    def end_all(self, why: str, now: float) -> None:
        """End every tunnel."""
        for tunnel in self._current.values():
            tunnel.end(why, now)

    def sweep(self, now: float, tick: float) -> None:
        """Look for half-open tunnels and due full lists; called every `tick` seconds."""
        overslept = 0.0 if self._swept_at is None else now - self._swept_at - tick
        self._swept_at = now
        for tunnel in list(self._current.values()):
            if overslept > tick:
                # We were frozen, so it is us who did not listen: what agents sent meanwhile is still in the sockets.
                tunnel.heard_at = min(tunnel.heard_at + overslept, now)
            self._judge(tunnel, now)
            if tunnel.full_at is not None and now >= tunnel.full_at:
                tunnel.poke()
        for tunnel in [*self._ending, *self._current.values()]:
            ended_at = tunnel.ended_at
            if ended_at is not None and now - ended_at > _END_WITHIN and tunnel.task is not None:
                tunnel.task.cancel()

    def _judge(self, tunnel: Tunnel, now: float) -> None:
        liveness = self._keep_alive.liveness(tunnel.heard_at, now)
        if liveness is not Liveness.LIVE:
            self._feed.remove(tunnel.agent_id)
        if liveness is Liveness.DEAD:
            tunnel.end("nothing was heard for too long", now)
