"""An agent's one connection to some auth, and its heartbeats over it.

pick_first, as gRPC does it: the channel stays with its connection while that lives, and moves when it dies. What a
reconnecting policy adds joins here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc
import grpc.aio

from fleet import __version__
from fleet.protocol import announce
from fleet.protocol.agent_pool import LinearBackoff
from fleet.protocol.service_config import Mode
from fleet.protocol.tracker import Snapshot
from fleet.transport import service_config
from fleet.wire import fleet_pb2, fleet_pb2_grpc

log = logging.getLogger(__name__)

#: A heartbeat may take this long, seconds; the auth itself answers within one even without its backend.
_RPC_TIMEOUT = 5.0
#: News of a new connection or of other tunnels is told this soon, seconds, with as much jitter.
_SOON = 0.5
_DEREGISTER_WITHIN = 1.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Who an agent is."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Policy:
    """The load balancing policy an agent runs with: read when it connected, and kept."""

    mode: Mode
    health_check: bool
    auth_id: str
    #: By the monotonic clock.
    read_at: float


class Heartbeats:
    """Keeps an agent's resource alive through its auth connection."""

    def __init__(
        self,
        identity: Identity,
        channel: grpc.aio.Channel,
        ttl: float,
        tracker: Callable[[], Snapshot],
        heard_from: Callable[[str], None],
    ) -> None:
        self._identity = identity
        self._channel = channel
        self._ttl = ttl
        self._schedule = announce.schedule(ttl, random.random())
        self._tracker = tracker
        self._heard_from = heard_from
        self._stub = fleet_pb2_grpc.HeartbeatServiceStub(channel)
        self._backoff = LinearBackoff(ceiling=min(8.0, self._schedule.interval))
        self._news = asyncio.Event()
        # A connection that was not asked for its policy yet.
        self._fresh = True
        self._failing = False
        # An answer that did not come yet does not mean that nothing was written.
        self._attempted = False
        self.policy: Policy | None = None

    def news(self) -> None:
        """Something it reports has changed: heartbeat soon."""
        self._news.set()

    async def run(self) -> None:
        """Heartbeat for ever."""
        watch = asyncio.create_task(self._watch_connection())
        try:
            while True:
                await self._wait(await self._heartbeat())
        finally:
            watch.cancel()

    async def deregister(self) -> None:
        """Delete the resource, if there may be one and that takes no time: the agent ends in any case."""
        if not self._attempted:
            return
        request = fleet_pb2.DeregisterRequest(agent_id=self._identity.id)
        with contextlib.suppress(grpc.aio.AioRpcError):
            await self._stub.Deregister(request, timeout=_DEREGISTER_WITHIN)

    async def _wait(self, seconds: float) -> None:
        """Wait for the next heartbeat; news shorten it, but not the pause after a failure."""
        soon = _SOON * (1 + random.random())
        if self._failing or seconds <= soon:
            await asyncio.sleep(seconds)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds - soon):
                await self._news.wait()
        await asyncio.sleep(soon)
        self._news.clear()

    async def _heartbeat(self) -> float:
        """Heartbeat once and return how long to wait for the next, seconds."""
        if self._fresh:
            await self._read_policy()
        request = fleet_pb2.HeartbeatRequest(agent=self._resource(time.monotonic()))
        self._attempted = True
        try:
            answer = await self._stub.Heartbeat(request, timeout=min(_RPC_TIMEOUT, self._schedule.interval))
        except grpc.aio.AioRpcError as error:
            if not self._failing:
                log.warning(
                    "%s: heartbeat failed: %s: %s", self._identity.name, error.code().name, error.details()
                )
            self._failing = True
            return max(self._backoff.next(time.monotonic(), random.random()), 0.25)
        if self._failing:
            log.info("%s: heartbeats succeed again", self._identity.name)
        self._failing = False
        self._backoff.reset()
        self._heard_from(answer.auth_id)
        return self._schedule.interval

    async def _read_policy(self) -> None:
        found = await service_config.discover(self._channel, _RPC_TIMEOUT)
        if found is None:
            return
        self._fresh = False
        if found.config.mode is not Mode.PICK_FIRST:
            log.warning("%s: asked to %s; it runs pick_first", self._identity.name, found.config.mode)
        # What it *runs with* is reported, so that nobody predicts a move that will not happen.
        self.policy = Policy(
            Mode.PICK_FIRST, health_check=False, auth_id=found.auth_id, read_at=time.monotonic()
        )

    async def _watch_connection(self) -> None:
        """Notice each new connection: its policy is to be read, and its auth to be told of us."""
        state = self._channel.get_state(try_to_connect=True)
        lost = False
        while True:
            if state is grpc.ChannelConnectivity.READY and lost:
                lost, self._fresh = False, True
                self.news()
            elif state is not grpc.ChannelConnectivity.READY and self.policy is not None:
                lost = True
            await self._channel.wait_for_state_change(state)
            state = self._channel.get_state(try_to_connect=True)

    def _resource(self, now: float) -> fleet_pb2.AgentResource:
        snapshot, policy = self._tracker(), self.policy
        resource = fleet_pb2.AgentResource(
            agent_id=self._identity.id,
            name=self._identity.name,
            version=__version__,
            ttl_ms=int(self._ttl * 1000),
            tracker=fleet_pb2.TrackerSummary(
                desired_count=snapshot.connection_count,
                claimed=snapshot.claimed,
                tracked=len(snapshot.tracked),
                ttl_seen_ms=int(snapshot.ttl_seen * 1000),
            ),
        )
        if policy is not None:
            resource.policy.mode = policy.mode
            resource.policy.health_check = policy.health_check
            resource.policy.auth_id = policy.auth_id
            resource.policy.read_age_ms = int((now - policy.read_at) * 1000)
        return resource
