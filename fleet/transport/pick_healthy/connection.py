"""One connection of a grpc.aio channel: a gRPC channel, and tasks that watch its state, policy and health."""

from __future__ import annotations

import asyncio
import logging
import random
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from fleet.processes import background
from fleet.protocol.recovery.pick_healthy import ServerHealth
from fleet.transport.pick_healthy import connect_slots
from fleet.transport.pick_healthy.connect_slots import ConnectSlot
from fleet.transport.pick_healthy.events import (
    ConfigUpdate,
    ConnectivityChange,
    Event,
    HealthUpdate,
    event_of_status,
    seconds_before_retry,
)
from fleet.transport.service_config import ConfigResponse, request_service_config

log = logging.getLogger(__name__)

#: Seconds within which the loss of a connection is reported; a stream that breaks with it says nothing about health.
_LOSS_SHOWS_WITHIN = 0.05

_WATCH = "/grpc.health.v1.Health/Watch"


class AioConnection:
    """A channel that is kept connected and reports its events."""

    def __init__(
        self,
        number: int,
        open_channel: Callable[[], grpc.aio.Channel],
        report: Callable[[AioConnection, Event], None],
        close: Callable[[grpc.aio.Channel], Awaitable[None]],
    ) -> None:
        """`open_channel` is called when it is the connection's turn, or when an RPC needs it before."""
        self.number = number
        self._open_channel = open_channel
        self._channel: grpc.aio.Channel | None = None
        self._report = report
        self._close = close
        #: Count of its TCP connections.
        self.life = 0
        #: Policy that its server sent, and when, by the monotonic clock.
        self.config_response: ConfigResponse | None = None
        self.policy_received_at: float | None = None
        #: RPCs on the connection; ended ones disappear on their own.
        self.calls: weakref.WeakSet[grpc.aio.Call] = weakref.WeakSet()
        self._connect_slots = connect_slots.of_this_loop()
        self._connect_slot: ConnectSlot | None = None
        # True: a caller waits for the end, so the connection closes without waiting for quiet.
        self._skips_quiet = False
        self._quiet_future: asyncio.Future[None] | None = None
        self._follow_task = background.start(self._follow(), name="state of a connection")
        self._config_task: asyncio.Task[None] | None = None
        self._health_task: asyncio.Task[None] | None = None

    @property
    def channel(self) -> grpc.aio.Channel:
        """The gRPC channel of the connection. Raises what `open_channel` raises, the first time."""
        if self._channel is None:
            self._channel = self._open_channel()
        return self._channel

    def request_config(self, life: int) -> None:
        """Request the service config, until there is a response or the connection is lost."""
        self.life = life
        self._config_task = background.start(self._request_config(life), name="policy of a connection")

    def watch_health(self, life: int, service: str | None) -> None:
        """Watch the health of one service, until the connection is lost; None: watch none."""
        if self._health_task is not None:
            self._health_task.cancel()
        self._health_task = None
        if service is not None:
            self._health_task = background.start(
                self._watch_health(life, service), name="health of a connection"
            )

    def release_slot(self) -> None:
        """Free the connect slot, because the health of the connection is known."""
        if self._connect_slot is not None:
            self._connect_slot.end()
            self._connect_slot = None

    async def retire(self, within: float | None) -> None:
        """Close the connection when its RPCs have ended; end them after `within` seconds unless that is None."""
        self._follow_task.cancel()
        self.release_slot()
        pending_calls = [call for call in self.calls if not call.done()]
        if not pending_calls and not self._skips_quiet:
            # No caller waits for the end, and others wait for a connection.
            self._quiet_future = self._connect_slots.quiet_future()
            await self._quiet_future
        self._cancel_tasks()
        end_tasks = [asyncio.create_task(_wait_for_end(call)) for call in pending_calls]
        if end_tasks:
            await asyncio.wait(end_tasks, timeout=within)
        cancelled_count = sum(call.cancel() for call in pending_calls)
        if cancelled_count:
            log.info(
                "balancer.drained: ended %d RPCs %.1f s after their connection was retired",
                cancelled_count,
                within,
            )
        if self._channel is not None:
            await self._close(self._channel)
        if end_tasks:
            await asyncio.wait(end_tasks)

    def end_calls(self) -> None:
        """End all RPCs on the connection; if it is retired, it then closes."""
        self._skips_quiet = True
        if self._quiet_future is not None and not self._quiet_future.done():
            self._quiet_future.set_result(None)
        for call in list(self.calls):
            call.cancel()

    async def _follow(self) -> None:
        # An RPC on this connection makes it connect before its turn.
        self._connect_slot = await self._connect_slots.take()
        last_state = grpc.ChannelConnectivity.IDLE
        while True:
            state = self.channel.get_state(try_to_connect=True)
            # READY after READY: it was lost and made again before this check.
            if state is not last_state or state is grpc.ChannelConnectivity.READY:
                self._cancel_tasks()
                if self._connect_slot is not None and state is grpc.ChannelConnectivity.READY:
                    self._connect_slot.extend()
                self._report(self, ConnectivityChange(state))
            last_state = state
            await self.channel.wait_for_state_change(state)

    def _cancel_tasks(self) -> None:
        for task in (self._config_task, self._health_task):
            if task is not None:
                task.cancel()
        self._config_task = self._health_task = None

    async def _request_config(self, life: int) -> None:
        try_count = 0
        while True:
            response = await request_service_config(self.channel)
            self._report(self, ConfigUpdate(life, response))
            if response is not None:
                return
            await asyncio.sleep(seconds_before_retry(try_count, random.random()))
            try_count += 1

    async def _watch_health(self, life: int, service: str) -> None:
        """Watch health as https://github.com/grpc/grpc/blob/master/doc/health-checking.md says for clients: no health
        service means healthy; a broken watch means unhealthy and is started again."""
        # A stub would create three methods, and each costs as much as a call.
        watch: Any = self.channel.unary_stream(
            _WATCH,
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try_count = 0
        while True:
            try:
                async for response in watch(health_pb2.HealthCheckRequest(service=service)):
                    self._report(self, event_of_status(life, service, response.status))
                    try_count = 0
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    self._report(
                        self, HealthUpdate(life, service, ServerHealth.HEALTHY, has_health_service=False)
                    )
                    return
            await asyncio.sleep(_LOSS_SHOWS_WITHIN)
            self._report(self, HealthUpdate(life, service, ServerHealth.UNHEALTHY))
            await asyncio.sleep(seconds_before_retry(try_count, random.random()))
            try_count += 1


async def _wait_for_end(call: grpc.aio.Call) -> None:
    await call.code()
