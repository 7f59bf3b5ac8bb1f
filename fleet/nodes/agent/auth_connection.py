"""The auth connection of an agent, and the heartbeats over it.

The channel is balanced by `teleport_pick_healthy` (RFD 226, "Auth Reconnects") as the auth's policy requires.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import grpc
import grpc.aio

from fleet import __version__
from fleet.processes import background
from fleet.protocol.recovery import announce
from fleet.protocol.recovery.agent_pool import LinearBackoff
from fleet.protocol.recovery.tracker import TrackerSnapshot
from fleet.transport.pick_healthy.channel import PickHealthyChannel
from fleet.transport.pick_healthy.events import ChannelPolicy
from fleet.transport.retry.aio import RetriedMethod
from fleet.transport.retry.read_retries import HEARTBEAT_RETRIES
from fleet.wire import fleet_pb2, fleet_pb2_grpc

log = logging.getLogger(__name__)

#: Timeout of a heartbeat, seconds. The auth itself responds within one second even without its backend.
_RPC_TIMEOUT = 5.0
_DEREGISTER_TIMEOUT = 1.0


@dataclass(frozen=True, slots=True)
class Identity:
    """How an agent identifies and describes itself."""

    id: str
    name: str
    version: str = __version__
    labels: Mapping[str, str] = field(default_factory=dict)


class Heartbeats:
    """Keeps an agent registered, through its auth connection."""

    def __init__(
        self,
        identity: Identity,
        channel: PickHealthyChannel,
        ttl: float,
        take_snapshot: Callable[[], TrackerSnapshot],
        on_response: Callable[[fleet_pb2.HeartbeatResponse], None],
    ) -> None:
        self.identity = identity
        self._channel = channel
        # What every heartbeat has in common.
        self._description = fleet_pb2.AgentResource(
            agent_id=identity.id,
            name=identity.name,
            version=identity.version,
            labels=identity.labels,
            ttl_ms=int(ttl * 1000),
        )
        self._schedule = announce.draw_schedule(ttl, random.random())
        self._take_snapshot = take_snapshot
        self._on_response = on_response
        self._stub = fleet_pb2_grpc.HeartbeatServiceStub(channel)
        self._heartbeat = _heartbeat_method(channel)
        self._backoff = LinearBackoff(ceiling=min(8.0, self._schedule.interval))
        self._report_requested = asyncio.Event()
        # Set when heartbeats go over another connection than the last one did.
        self._connection_changed = asyncio.Event()
        self._connection = channel.connection_id
        self._is_failing = False
        # Set while no heartbeat is in progress.
        self._idle = asyncio.Event()
        self._idle.set()
        # Even a heartbeat without a response may have been written.
        self._may_be_registered = False
        #: Id of the auth that wrote the last heartbeat; empty before the first.
        self.last_auth_id = ""
        #: Revision of the networking config that the agent runs with.
        self.networking_revision = ""

    @property
    def policy(self) -> ChannelPolicy | None:
        """Load balancing policy of the auth connection; None before it is known."""
        return self._channel.policy

    @property
    def channel(self) -> PickHealthyChannel:
        """Channel of the heartbeats."""
        return self._channel

    @property
    def auth_id(self) -> str:
        """Id of the auth at the other end, as reported by that auth; else of the one that wrote the last heartbeat."""
        policy = self.policy
        return self.last_auth_id if policy is None or not policy.auth_id else policy.auth_id

    @property
    def interval(self) -> float:
        """Seconds between two heartbeats without news."""
        return self._schedule.interval

    async def send_heartbeat_over(self, channel: PickHealthyChannel) -> fleet_pb2.HeartbeatResponse:
        """Send one heartbeat over another channel. Raises AioRpcError."""
        self._may_be_registered = True
        request = self._build_request(channel, time.monotonic())
        response: fleet_pb2.HeartbeatResponse = await _heartbeat_method(channel)(
            request, timeout=self._rpc_timeout
        )
        return response

    def switch_channel(self, channel: PickHealthyChannel, auth_id: str) -> PickHealthyChannel:
        """Send heartbeats over another channel from now on, whose auth has accepted one. Return the old channel."""
        old_channel, self._channel = self._channel, channel
        self._stub = fleet_pb2_grpc.HeartbeatServiceStub(channel)
        self._heartbeat = _heartbeat_method(channel)
        self._connection = channel.connection_id
        self.last_auth_id = auth_id
        self._connection_changed.set()
        self.send_heartbeat_soon()
        return old_channel

    async def wait_until_idle(self) -> None:
        """Wait until no heartbeat is in progress."""
        await self._idle.wait()

    def send_heartbeat_soon(self) -> None:
        """Send a heartbeat soon, because something that it reports has changed."""
        self._report_requested.set()

    def on_connection_change(self) -> None:
        """Send a heartbeat soon, because the channel has another connection or another policy."""
        if self._channel.connection_id != self._connection:
            self._connection = self._channel.connection_id
            self._connection_changed.set()
        self.send_heartbeat_soon()

    async def run(self) -> None:
        """Send heartbeats forever."""
        self._channel.connect()
        # The first heartbeat should report the policy of the connection.
        await background.wait_for(self._channel.config_response_event, _RPC_TIMEOUT)
        self._report_requested.clear()
        while True:
            self._connection_changed.clear()
            await self._wait(await self._send_heartbeat())

    async def deregister(self) -> None:
        """Deregister if the agent may be registered. Waits at most a second, because the agent stops in any case."""
        if not self._may_be_registered:
            return
        request = fleet_pb2.DeregisterRequest(agent_id=self.identity.id)
        with contextlib.suppress(grpc.aio.AioRpcError):
            await self._stub.Deregister(request, timeout=_DEREGISTER_TIMEOUT)

    async def _wait(self, seconds: float) -> None:
        """Wait until the next heartbeat is due, or another connection carries it; after a success, also for news."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if not self._is_failing:
                    await self._report_requested.wait()
                    # More news may follow at once.
                    seconds = announce.NEWS_DELAY * (1 + random.random())
                await background.wait_for(self._connection_changed, seconds)
        self._report_requested.clear()

    async def _send_heartbeat(self) -> float:
        """Send one heartbeat, and return the seconds until the next."""
        channel = self._channel
        request = self._build_request(channel, time.monotonic())
        self._may_be_registered = True
        self._idle.clear()
        try:
            response = await self._heartbeat(request, timeout=self._rpc_timeout)
        except grpc.aio.AioRpcError as error:
            if channel is not self._channel:
                return 0.0  # another auth accepted one meanwhile, so this failure does not matter
            if not self._is_failing:
                log.warning(
                    "heartbeat.failed: %s: %s: %s", self.identity.name, error.code().name, error.details()
                )
            self._is_failing = True
            return max(self._backoff.next_pause(time.monotonic(), random.random()), 0.25)
        finally:
            self._idle.set()
        if channel is not self._channel:
            return 0.0
        if self._is_failing:
            log.info("heartbeat.recovered: %s", self.identity.name)
        self._is_failing = False
        self._backoff.reset()
        self.last_auth_id = response.auth_id
        self._on_response(response)
        return self._schedule.interval

    @property
    def _rpc_timeout(self) -> float:
        return min(_RPC_TIMEOUT, self._schedule.interval)

    def _build_request(self, channel: PickHealthyChannel, now: float) -> fleet_pb2.HeartbeatRequest:
        # Field by field: a constructor for each message takes almost three times as long.
        snapshot, policy = self._take_snapshot(), channel.policy
        request = fleet_pb2.HeartbeatRequest()
        resource = request.agent
        resource.CopyFrom(self._description)
        resource.via_proxy_id, resource.networking_revision = channel.proxy_id, self.networking_revision
        tracker = resource.tracker
        tracker.desired_count = snapshot.connection_count
        tracker.claimed.extend(snapshot.claimed_proxies)
        tracker.tracked = len(snapshot.tracked_proxies)
        tracker.ttl_seen_ms = int(snapshot.last_announce_ttl * 1000)
        tracker.desired_tunnel_count = snapshot.desired_tunnel_count
        if policy is not None:
            resource.policy.mode = policy.mode
            resource.policy.health_check = policy.health_check
            resource.policy.auth_id = policy.auth_id
            resource.policy.read_age_ms = int((now - policy.received_at) * 1000)
        return request


def _heartbeat_method(channel: PickHealthyChannel) -> RetriedMethod:
    return RetriedMethod(fleet_pb2_grpc.HeartbeatServiceStub(channel).Heartbeat, HEARTBEAT_RETRIES)
