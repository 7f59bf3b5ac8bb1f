"""An agent's reverse tunnels: dialled one at a time through the proxies' balancer, claimed, kept alive."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable

import grpc
import grpc.aio

from fleet.nodes.agent_connection import Identity
from fleet.nodes.agent_services import AgentServices
from fleet.nodes.agent_tunnel import DialError, Tunnel
from fleet.protocol import discovery
from fleet.protocol.agent_pool import AgentPool
from fleet.protocol.discovery import DiscoveryError
from fleet.protocol.keep_alive import KeepAlive
from fleet.protocol.tracker import ClaimError, Lease
from fleet.wire import fleet_pb2

log = logging.getLogger(__name__)

#: The next dial waits this long for the first discovery, seconds: until then the tracker knows no proxy at all, and
#: its bootstrap rule would open a second tunnel at once.
_DISCOVERY_WITHIN = 1.0


class AgentTunnels:
    """All tunnels of one agent, as its tracker and pool want them."""

    def __init__(
        self,
        identity: Identity,
        pool: AgentPool,
        keep_alive: KeepAlive,
        open_channel: Callable[[], grpc.aio.Channel],
        changed: Callable[[], None],
        services: AgentServices,
    ) -> None:
        self._identity = identity
        self._pool = pool
        self._keep_alive = keep_alive
        self._open_channel = open_channel
        self._changed = changed
        self._services = services
        self._event = asyncio.Event()
        self._tunnels: dict[Tunnel, asyncio.Task[None]] = {}
        self._pings: set[asyncio.Task[None]] = set()
        self._swept_at: float | None = None
        self._refused: set[str] = set()

    @property
    def proxies(self) -> tuple[str, ...]:
        """Ids of the proxies it holds tunnels to."""
        return tuple(sorted(tunnel.proxy_id for tunnel in self._tunnels))

    @property
    def tunnels(self) -> tuple[Tunnel, ...]:
        """All that are open, those among them that were replaced and still have sessions."""
        return tuple(self._tunnels)

    async def run(self) -> None:
        """Dial whenever the pool says so, for ever."""
        while True:
            now = time.monotonic()
            lease = self._pool.next_dial(now)
            if lease is not None:
                await self._dial(lease)
                self._pool.dial_ended(time.monotonic(), random.random())
                continue
            wake_at = self._pool.wake_at(now)
            with contextlib.suppress(TimeoutError):
                # An expiry is strict: look a little after it, not at it.
                async with asyncio.timeout(None if wake_at is None else max(wake_at - now, 0.0) + 0.005):
                    await self._event.wait()
            self._event.clear()

    def sweep(self, now: float, tick: float) -> None:
        """Ping what is due and end what is dead; called every `tick` seconds."""
        overslept = 0.0 if self._swept_at is None else now - self._swept_at - tick
        self._swept_at = now
        for tunnel in self._tunnels:
            if overslept > tick:
                tunnel.heard_at = min(tunnel.heard_at + overslept, now)  # it was us who did not listen
            if tunnel.is_dead(now):
                log.info("%s: proxy %s does not answer", self._identity.name, tunnel.proxy_id)
                tunnel.cancel()
            elif tunnel.wants_ping(now):
                ping = asyncio.create_task(tunnel.ping(now))
                self._pings.add(ping)
                ping.add_done_callback(self._pings.discard)

    async def close(self) -> None:
        """End all tunnels."""
        tasks = list(self._tunnels.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _dial(self, lease: Lease) -> None:
        tunnel = Tunnel(self._open_channel(), self._identity, self._keep_alive, self._services)
        try:
            if self._pool.tracker.is_claimed(await tunnel.hello()):
                raise DialError(f"proxy {tunnel.proxy_id} has a tunnel of ours")
            await tunnel.register()
            lease.claim(tunnel.proxy_id)
        except (DialError, ClaimError) as error:
            # Through a balancer an agent lands on proxies it has already: that is how it finds the others.
            known = str(error) in self._refused or not (isinstance(error, DialError) and error.refused)
            log.log(logging.DEBUG if known else logging.WARNING, "%s: dial: %s", self._identity.name, error)
            if not known:
                self._refused.add(str(error))
            lease.release()
            await tunnel.close()
            return
        except asyncio.CancelledError:
            lease.release()
            await tunnel.close()
            raise
        log.info("%s: tunnel to %s", self._identity.name, tunnel.proxy_id)
        for old in self._tunnels:
            if old.advised:
                old.retire()  # make before break: this one is made
        self._tunnels[tunnel] = asyncio.create_task(self._hold(tunnel, lease))
        self._changed()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DISCOVERY_WITHIN):
                await tunnel.discovered.wait()

    async def _hold(self, tunnel: Tunnel, lease: Lease) -> None:
        why = "it was closed"
        try:
            while (frame := await tunnel.read()) is not None:
                await self._take(frame, tunnel, lease)
        except grpc.aio.AioRpcError as error:
            why = error.details() or error.code().name
        except asyncio.InvalidStateError:
            why = "it broke while written to"
        except asyncio.CancelledError:
            why = "this agent ends"
            raise
        finally:
            tunnel.discovered.set()
            lease.release()
            self._tunnels.pop(tunnel, None)
            self._event.set()
            self._changed()
            log.info("%s: tunnel to %s ended: %s", self._identity.name, tunnel.proxy_id, tunnel.why or why)
            await tunnel.close()

    async def _take(self, frame: fleet_pb2.ProxyFrame, tunnel: Tunnel, lease: Lease) -> None:
        if frame.HasField("discovery"):
            self._track(frame.discovery.request, tunnel)
        elif frame.HasField("reconnect_advisory"):
            tunnel.advised = True
            # Given back at once: the pool may dial the replacement while this tunnel still serves.
            lease.release()
            self._event.set()
            await tunnel.reply(frame.reconnect_advisory.advisory_id, accepted=True)

    def _track(self, request: bytes, tunnel: Tunnel) -> None:
        try:
            proxies = discovery.decode(request)
        except DiscoveryError as error:
            if tunnel.proxy_id not in self._refused:
                self._refused.add(tunnel.proxy_id)
                log.warning(
                    "%s: refused discovery of proxy %s: %s", self._identity.name, tunnel.proxy_id, error
                )
            return
        tunnel.discovered.set()
        if self._pool.tracker.track_expected(proxies, time.monotonic()):
            self._event.set()
