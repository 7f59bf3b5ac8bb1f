"""An agent's reverse tunnels: dialed one at a time through the proxies' load balancer, claimed, kept alive, closed.

A tunnel is let go for two reasons: its proxy's advice to reconnect, and graceful closing. In both cases the other
tunnels must have responded since. The tunnel then accepts no new sessions and closes after its last one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from fleet.nodes.agent.auth_connection import Identity
from fleet.nodes.agent.auth_moves import SendReply
from fleet.nodes.agent.metrics import AgentMetrics
from fleet.nodes.agent.services import AgentServices
from fleet.nodes.agent.tunnel import Tunnel, TunnelDialError
from fleet.processes import background
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery import discovery
from fleet.protocol.recovery.agent_pool import AgentPool
from fleet.protocol.recovery.discovery import DiscoveryError
from fleet.protocol.recovery.graceful_closing import GracefulClosing, TunnelState
from fleet.protocol.recovery.tracker import ClaimError, TunnelLease
from fleet.protocol.recovery.tunnel_settings import TunnelSettings
from fleet.protocol.tunnel.messages import WireVersion
from fleet.wire import fleet_pb2

log = logging.getLogger(__name__)

#: Seconds that the next dial waits for the first discovery message: until then the tracker knows no proxy, and its
#: bootstrap rule would open a second tunnel at once.
_DISCOVERY_WITHIN = 1.0


class AgentTunnels:
    """All tunnels of one agent, as many as its tracker and pool require."""

    def __init__(
        self,
        identity: Identity,
        pool: AgentPool,
        settings: TunnelSettings,
        open_channel: Callable[[], grpc.aio.Channel],
        services: AgentServices,
        metrics: AgentMetrics,
        on_change: Callable[[], None],
        on_networking_config_notice: Callable[[str, float], None],
        drain_timeout: float | None = None,
        on_dial: Callable[[bool], None] = lambda _: None,
        on_auth_advisory: Callable[
            [fleet_pb2.AuthReconnectAdvisory, SendReply], None
        ] = lambda advisory, reply: None,
        wire: WireVersion = WireVersion.V0_2,
    ) -> None:
        """Start without tunnels.

        `on_change` is called when tunnels open or close, `on_networking_config_notice` with what proxies say about the
        networking config. Sessions on a tunnel that was let go may last `drain_timeout` seconds; None: no limit.
        `on_dial` receives for each dial whether a proxy responded, `on_auth_advisory` the proxies' advice to connect to
        another auth and the function to reply with.
        """
        self._identity = identity
        self._pool = pool
        self._keep_alive = settings.keep_alive
        self._closing = GracefulClosing(settings.closing_policy)
        self._open_channel = open_channel
        self._services = services
        self._metrics = metrics
        self._on_change = on_change
        self._on_networking_config_notice = on_networking_config_notice
        self._drain_timeout = drain_timeout
        self._on_dial = on_dial
        self._on_auth_advisory = on_auth_advisory
        self._wire = wire
        self._wakeup = asyncio.Event()
        self._tunnels: dict[Tunnel, asyncio.Task[None]] = {}
        self._leases: dict[Tunnel, TunnelLease] = {}
        self._ping_tasks: set[asyncio.Task[None]] = set()
        #: Tasks of closed tunnels whose last sessions still receive bytes.
        self._closing_tasks: set[asyncio.Task[Any]] = set()
        self._swept_at: float | None = None
        self._logged_refusals: set[str] = set()

    @property
    def proxy_ids(self) -> tuple[str, ...]:
        """Ids of the proxies that the agent has tunnels to."""
        return tuple(sorted(tunnel.proxy_id for tunnel in self._tunnels))

    @property
    def tunnels(self) -> tuple[Tunnel, ...]:
        """All open tunnels, including replaced ones that still have sessions."""
        return tuple(self._tunnels)

    @property
    def keep_alive(self) -> KeepAlive:
        """Keep-alive settings of the tunnels."""
        return self._keep_alive

    def apply_settings(self, settings: TunnelSettings, now: float) -> None:
        """Apply new settings."""
        if self._pool.tracker.set_connection_count(settings.connection_count):
            self._pool.reset_backoff()
        self._closing.set_policy(settings.closing_policy)
        if settings.keep_alive != self._keep_alive:
            self._keep_alive = settings.keep_alive
            for tunnel in self._tunnels:
                tunnel.set_keep_alive(settings.keep_alive, now)
        self._wakeup.set()

    async def run(self) -> None:
        """Dial whenever the pool requires it, forever."""
        while True:
            now = time.monotonic()
            lease = self._pool.next_dial(now)
            if lease is not None:
                is_duplicate = await self._dial(lease)
                self._pool.on_dial_end(time.monotonic(), random.random(), is_duplicate=is_duplicate)
                continue
            wake_at = self._pool.wake_at(now)
            # Expiry is strict: look a little after it.
            wait = None if wake_at is None else max(wake_at - now, 0.0) + 0.005
            await background.wait_for(self._wakeup, wait)
            self._wakeup.clear()

    def sweep(self, now: float, tick: float) -> None:
        """Send due pings, close dead tunnels and let unneeded ones go. Called every `tick` seconds."""
        lag_seconds = 0.0 if self._swept_at is None else now - self._swept_at - tick
        self._swept_at = now
        for tunnel in self._tunnels:
            if lag_seconds > tick:
                tunnel.ignore_silence(lag_seconds, now)  # this process was not running
            if tunnel.is_dead(now):
                tunnel.end_reason = "the proxy does not respond"
                tunnel.cancel()
            elif tunnel.is_ping_due(now):
                self._ping(tunnel, now)
            if tunnel.retired_at is not None and self._drain_timeout is not None:
                self._close_after_drain_timeout(tunnel, now - tunnel.retired_at - self._drain_timeout)
        self._retire_advised(now)
        self._close_gracefully(now)

    def _close_after_drain_timeout(self, tunnel: Tunnel, overdue_seconds: float) -> None:
        """Close a tunnel that has been draining for too long. Later calls do nothing."""
        if overdue_seconds <= 0 or tunnel.has_outlasted_drain:
            return
        tunnel.has_outlasted_drain = True
        log.warning(
            "tunnel.drain-timeout: %s: proxy %s: terminated %d sessions that outlasted the drain time",
            self._identity.name,
            tunnel.proxy_id,
            tunnel.session_count,
        )
        self._metrics.terminated_sessions.inc(tunnel.session_count)
        tunnel.cancel()

    def _ping(self, tunnel: Tunnel, now: float) -> None:
        ping = asyncio.create_task(tunnel.ping(now))
        self._ping_tasks.add(ping)
        ping.add_done_callback(self._ping_tasks.discard)

    async def close(self) -> None:
        await background.stop({*self._tunnels.values(), *self._closing_tasks})

    async def _dial(self, lease: TunnelLease) -> bool:
        """Dial once. Return whether the dial led to a proxy that this agent already has a tunnel to."""
        tunnel = Tunnel(self._open_channel(), self._identity, self._keep_alive, self._services, self._wire)
        try:
            if self._pool.tracker.is_claimed(await tunnel.exchange_hellos()):
                raise ClaimError(
                    f"this agent already has a tunnel to proxy {tunnel.proxy_id}", is_duplicate=True
                )
            await tunnel.register()
            lease.claim(tunnel.proxy_id)
        except (TunnelDialError, ClaimError) as error:
            self._on_dial(isinstance(error, ClaimError) or error.is_refused)
            # Through a load balancer, dials also reach proxies that the agent already has: this is how it finds the
            # others.
            self._metrics.dials.labels(_outcome_of(error)).inc()
            is_new_refusal = (
                isinstance(error, TunnelDialError)
                and error.is_refused
                and str(error) not in self._logged_refusals
            )
            log.log(
                logging.WARNING if is_new_refusal else logging.DEBUG,
                "%s: cannot open a tunnel: %s",
                self._identity.name,
                error,
            )
            if is_new_refusal:
                self._logged_refusals.add(str(error))
            lease.release()
            await tunnel.close()
            return isinstance(error, ClaimError) and error.is_duplicate
        except asyncio.CancelledError:
            lease.release()
            await tunnel.close()
            raise
        self._on_dial(True)
        self._metrics.dials.labels("succeeded").inc()
        log.info("tunnel.opened: %s: proxy %s", self._identity.name, tunnel.proxy_id)
        self._leases[tunnel] = lease
        name = f"tunnel of {self._identity.name}"
        self._tunnels[tunnel] = background.start(self._serve(tunnel, lease), name=name)
        self._retire_advised(time.monotonic())
        self._on_change()
        await background.wait_for(tunnel.discovery_received, _DISCOVERY_WITHIN)
        return False

    async def _serve(self, tunnel: Tunnel, lease: TunnelLease) -> None:
        reason, wait_for_sessions = "closed by the proxy", True
        try:
            while (frame := await tunnel.read()) is not None:
                await self._handle_frame(frame, tunnel)
        except grpc.aio.AioRpcError as error:
            reason = error.details() or error.code().name
        except asyncio.InvalidStateError:
            reason = "the connection broke during a write"
        except asyncio.CancelledError:
            reason, wait_for_sessions = "this agent is shutting down", False
            raise
        finally:
            tunnel.discovery_received.set()
            lease.release()
            self._tunnels.pop(tunnel, None)
            self._leases.pop(tunnel, None)
            self._wakeup.set()
            self._on_change()
            self._metrics.closed_tunnels.labels(tunnel.retire_reason or "lost").inc()
            log.info(
                "tunnel.closed: %s: proxy %s: %s",
                self._identity.name,
                tunnel.proxy_id,
                tunnel.retire_reason or tunnel.end_reason or reason,
            )
            await self._close_tunnel(tunnel, wait_for_sessions=wait_for_sessions)

    async def _close_tunnel(self, tunnel: Tunnel, *, wait_for_sessions: bool) -> None:
        """Close a tunnel.

        The task must be a local of this frame only. A frame of `_serve` that a CancelledError keeps alive would keep
        the task, and so the tunnel and its connection, until the next garbage collection.
        """
        task = asyncio.current_task()
        assert task is not None, "a tunnel is held by a task"
        self._closing_tasks.add(task)
        try:
            await tunnel.close(wait_for_sessions=wait_for_sessions)
        finally:
            self._closing_tasks.discard(task)

    async def _handle_frame(self, frame: fleet_pb2.ProxyFrame, tunnel: Tunnel) -> None:
        if frame.HasField("discovery"):
            self._handle_discovery(frame.discovery.request, tunnel)
        elif frame.HasField("reconnect_advisory"):
            is_accepted = self._handle_advisory(frame.reconnect_advisory, tunnel, time.monotonic())
            await tunnel.send_advisory_reply(frame.reconnect_advisory.advisory_id, is_accepted=is_accepted)
        elif frame.HasField("auth_reconnect_advisory"):
            self._on_auth_advisory(frame.auth_reconnect_advisory, tunnel.send_auth_advisory_reply)
        elif frame.HasField("pong"):
            self._retire_advised(time.monotonic())
        elif frame.HasField("networking_config_notice"):
            self._on_networking_config_notice(
                frame.networking_config_notice.revision, frame.networking_config_notice.spread_ms / 1000
            )

    def _handle_advisory(self, advisory: fleet_pb2.ReconnectAdvisory, tunnel: Tunnel, now: float) -> bool:
        """Prepare to leave for another proxy. Return whether there is one, or may be."""
        if tunnel.is_retired:
            return True
        is_accepted = self._pool.tracker.mark_leaving(
            self._proxy_of(tunnel), now, is_departing=advisory.leaving
        )
        if is_accepted and tunnel.advised_at is None:
            tunnel.advised_at = now
            self._pool.reset_backoff()
            for other_tunnel in self._tunnels:
                if other_tunnel is not tunnel and other_tunnel.is_ping_due(math.inf):
                    self._ping(other_tunnel, now)
        self._metrics.advisories.labels("accepted" if is_accepted else "no-proxy").inc()
        log.info(
            "tunnel.%s: %s: proxy %s: %s",
            "advised" if is_accepted else "no-proxy",
            self._identity.name,
            tunnel.proxy_id,
            advisory.reason,
        )
        self._wakeup.set()
        return is_accepted

    def _retire_advised(self, now: float) -> None:
        """Let advised tunnels go, each once enough others have responded since the advice: make before break."""
        for tunnel in self._tunnels:
            advised_at = tunnel.advised_at
            if advised_at is None or tunnel.is_retired:
                continue
            live_proxies = {
                self._proxy_of(other_tunnel)
                for other_tunnel in self._tunnels
                if not other_tunnel.is_retired
                and other_tunnel.advised_at is None
                and other_tunnel.last_seen_at > advised_at
            }
            if self._pool.tracker.can_close(self._proxy_of(tunnel), live_proxies, now):
                self._retire(tunnel, "advised")

    def _close_gracefully(self, now: float) -> None:
        """Let at most one tunnel go that is no longer needed."""
        if not self._closing.policy.is_active or len(self._tunnels) < 2:
            return
        tunnels = [self._tunnel_state_of(tunnel) for tunnel in self._tunnels]
        decision = self._closing.decide(tunnels, self._pool.tracker.snapshot(now), now, random.random())
        for tunnel in self._tunnels:
            if decision is not None and not tunnel.is_retired and self._proxy_of(tunnel) == decision.proxy:
                self._retire(tunnel, decision.reason)
            elif self._closing.pings_requested_at == now:
                tunnel.ping_soon(now)

    def _tunnel_state_of(self, tunnel: Tunnel) -> TunnelState:
        return TunnelState(
            proxy=self._proxy_of(tunnel),
            opened_at=tunnel.opened_at,
            is_draining=tunnel.is_retired,
            session_count=tunnel.session_count,
            rtt=tunnel.rtt,
            last_seen_at=tunnel.last_seen_at,
        )

    def _proxy_of(self, tunnel: Tunnel) -> str:
        """Return the proxy of a tunnel, as the tracker names it."""
        return self._leases[tunnel].claimed_proxy or tunnel.proxy_id

    def _retire(self, tunnel: Tunnel, reason: str) -> None:
        log.info(
            "tunnel.closing: %s: proxy %s: %s, %d open sessions",
            self._identity.name,
            tunnel.proxy_id,
            reason,
            tunnel.session_count,
        )
        # Free its claim, so that the proxy can be dialed again while old sessions last.
        self._leases[tunnel].release()
        tunnel.retire(reason)
        self._wakeup.set()
        self._on_change()

    def _handle_discovery(self, request: bytes, tunnel: Tunnel) -> None:
        self._metrics.discovery_messages.inc()
        self._metrics.discovery_bytes.inc(len(request))
        try:
            content = discovery.decode(request)
        except DiscoveryError as error:
            self._record_refusal("discovery", tunnel, str(error))
            return
        for reason in content.skip_reasons:
            self._record_refusal("discovery-entry", tunnel, reason)
        tunnel.discovery_received.set()
        if self._pool.tracker.track_expected(content.proxies, time.monotonic()):
            self._wakeup.set()

    def _record_refusal(self, kind: str, tunnel: Tunnel, reason: str) -> None:
        """Count an unreadable message of a proxy, and log it once per proxy and kind."""
        self._metrics.refused_messages.labels(kind).inc()
        if (key := f"{kind} {tunnel.proxy_id}") not in self._logged_refusals:
            self._logged_refusals.add(key)
            log.warning(
                "discovery.refused: %s: message of proxy %s: %s", self._identity.name, tunnel.proxy_id, reason
            )


def _outcome_of(error: TunnelDialError | ClaimError) -> str:
    if isinstance(error, ClaimError):
        return "duplicate" if error.is_duplicate else "failed"
    return "refused" if error.is_refused else "failed"
