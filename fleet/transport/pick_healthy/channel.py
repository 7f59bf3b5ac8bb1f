"""The channel for grpc.aio. An RPC that waits for a connection to be made stays with that connection."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio
from typing_extensions import override

from fleet.protocol.recovery.pick_healthy import (
    DEFAULTS,
    Balancer,
    BalancerSettings,
    Command,
    OpenConnection,
    RequestConfig,
    RetireConnection,
    RetireReason,
    WatchHealth,
)
from fleet.transport.pick_healthy.calls import StreamStream, StreamUnary, UnaryStream, UnaryUnary
from fleet.transport.pick_healthy.connection import AioConnection
from fleet.transport.pick_healthy.events import (
    ChannelPolicy,
    ConfigUpdate,
    Event,
    OnRetire,
    ServiceUnknown,
    call_back,
    connectivity_of,
    decide,
    is_answer,
    log_retired,
    log_unknown_service,
    log_unreadable_policy,
    policy_of,
)


class PickHealthyChannel(grpc.aio.Channel):
    """A channel that moves away from unhealthy connections. Create it in the event loop that uses it."""

    def __init__(
        self,
        open_connection: Callable[[bool], grpc.aio.Channel],
        settings: BalancerSettings = DEFAULTS,
        *,
        name: str = "channel",
        on_change: Callable[[], None] = lambda: None,
        on_retire: OnRetire = lambda reason: None,
        on_unreadable_policy: Callable[[], None] = lambda: None,
    ) -> None:
        """Create the channel; `connect`, or the first RPC, opens the first connection.

        `open_connection` creates a channel with its own connection; True shuffles its addresses. `on_change` is called
        when new RPCs use another connection or another policy is in force, `on_retire` for every connection that the
        balancer retires, and `on_unreadable_policy` for every unreadable policy of a server.
        """
        self._open_connection = open_connection
        self._balancer = Balancer(settings)
        self._name = name
        self._on_change = on_change
        self._on_retire = on_retire
        self._on_unreadable_policy = on_unreadable_policy
        # Ids of auths whose unreadable policy was logged.
        self._logged_auth_ids: set[str] = set()
        # Unknown health services that were logged.
        self._logged_services: set[str] = set()
        self._connections: dict[int, AioConnection] = {}
        self._retiring_connections: dict[asyncio.Task[None], AioConnection] = {}
        self._timer: asyncio.TimerHandle | None = None
        #: Time that the timer is set to, by the monotonic clock.
        self._timer_at: float | None = None
        self._is_closed = False
        # Futures of tasks that wait for a state change.
        self._waiters: set[asyncio.Future[None]] = set()
        self._last_notified_state: object = None
        #: Set once a request for a policy was answered or failed.
        self.config_response_event = asyncio.Event()
        #: Number of moves to another connection.
        self.move_count = 0

    @property
    def policy(self) -> ChannelPolicy | None:
        """The policy in force; None before a server has sent one."""
        connection = self._connections.get(self._balancer.active_id)
        if connection is None:
            return None
        return policy_of(self._balancer, connection.config_response, connection.policy_received_at)

    @property
    def connection_id(self) -> tuple[int, int]:
        """Identifier of the TCP connection that carries new RPCs."""
        picked_connection = self._connections.get(self._balancer.picked_id)
        return self._balancer.picked_id, 0 if picked_connection is None else picked_connection.life

    @property
    def picked_channel(self) -> grpc.aio.Channel | None:
        """The gRPC channel that carries new RPCs; None before the first one."""
        picked_connection = self._connections.get(self._balancer.picked_id)
        return None if picked_connection is None else picked_connection.channel

    @property
    def proxy_id(self) -> str:
        """Id of the proxy that new RPCs go through; empty without a proxy."""
        return ""

    async def close_channel(self, channel: grpc.aio.Channel) -> None:
        """Close a gRPC channel without RPCs, and what it depends on."""
        await channel.close()

    def connect(self) -> None:
        """Open the first connection unless there is one. Raises what `open_connection` raises."""
        if not self._connections and not self._is_closed:
            self._execute(self._balancer.start())

    def pick(self) -> AioConnection:
        """Return the connection for a new RPC. Raises UsageError when the channel is closed."""
        if self._is_closed:
            raise grpc.aio.UsageError("Channel is closed.")
        self.connect()
        return self._connections[self._balancer.picked_id]

    @override
    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the state; an unhealthy connection counts as TRANSIENT_FAILURE, but carries RPCs."""
        if self._is_closed:
            return grpc.ChannelConnectivity.SHUTDOWN
        if try_to_connect:
            self.connect()
        return connectivity_of(self._balancer)

    @override
    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the state differs from `last_observed_state`."""
        while self.get_state() is last_observed_state:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)

    @override
    async def channel_ready(self) -> None:
        """Wait until the state is READY: connected, and healthy if the policy checks health."""
        while (state := self.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
            if state is grpc.ChannelConnectivity.SHUTDOWN:
                raise grpc.aio.UsageError("Channel is closed.")
            await self.wait_for_state_change(state)

    @override
    async def close(self, grace: float | None = None) -> None:
        """Close all connections; RPCs are ended now, or after `grace` seconds."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._wake_waiters()
        for number in list(self._connections):
            self._retire(number, None)
        if self._retiring_connections and grace:
            await asyncio.wait(self._retiring_connections, timeout=grace)
        for connection in self._retiring_connections.values():
            connection.end_calls()
        if self._retiring_connections:
            await asyncio.wait(self._retiring_connections)

    @override
    async def __aenter__(self) -> Self:
        return self

    @override
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.close()

    @override
    def unary_unary(self, *args: Any, **kwargs: Any) -> UnaryUnary:
        return UnaryUnary(self.pick, *args, **kwargs)

    @override
    def unary_stream(self, *args: Any, **kwargs: Any) -> UnaryStream:
        return UnaryStream(self.pick, *args, **kwargs)

    @override
    def stream_unary(self, *args: Any, **kwargs: Any) -> StreamUnary:
        return StreamUnary(self.pick, *args, **kwargs)

    @override
    def stream_stream(self, *args: Any, **kwargs: Any) -> StreamStream:
        return StreamStream(self.pick, *args, **kwargs)

    def _on_event(self, connection: AioConnection, event: Event) -> None:
        if self._is_closed:
            return  # the connection was removed, but its tasks are not cancelled yet
        now = time.monotonic()
        if isinstance(event, ServiceUnknown):
            log_unknown_service(self._name, event, self._logged_services)
        if isinstance(event, ConfigUpdate):
            if is_answer(event) or connection.config_response is None:
                connection.config_response, connection.policy_received_at = event.response, now
            self.config_response_event.set()
            if log_unreadable_policy(self._name, event.response, self._logged_auth_ids):
                call_back(self._on_unreadable_policy)
        self._execute(decide(self._balancer, connection.number, event, now, random.random()))
        if not self._balancer.is_undecided(connection.number):
            connection.release_slot()

    def _wake(self) -> None:
        self._timer = self._timer_at = None
        self._execute(self._balancer.wake(time.monotonic(), random.random()))

    def _execute(self, commands: list[Command]) -> None:
        """Execute the balancer's commands."""
        for command in commands:
            if isinstance(command, OpenConnection):
                self._open_by_command(command)
            elif isinstance(command, RequestConfig):
                self._connections[command.connection_id].request_config(command.life)
            elif isinstance(command, WatchHealth):
                self._connections[command.connection_id].watch_health(command.life, command.service)
            else:
                self._retire_by_command(command)
        self._set_timer()
        self._notify()

    def _open_by_command(self, command: OpenConnection) -> None:
        active = self._connections.get(self._balancer.active_id)
        # The first one is created now, so that `connect` raises; a backup when it is its turn.
        channel = self._open_connection(command.should_shuffle) if active is None else None

        def open_channel() -> grpc.aio.Channel:
            return self._open_connection(command.should_shuffle) if channel is None else channel

        connection = AioConnection(command.connection_id, open_channel, self._on_event, self.close_channel)
        if active is not None:  # its policy is in force until the server sends its own
            connection.config_response = active.config_response
            connection.policy_received_at = active.policy_received_at
        self._connections[command.connection_id] = connection

    def _retire_by_command(self, command: RetireConnection) -> None:
        self.move_count += command.reason in {RetireReason.MOVED, RetireReason.RENEWED}
        log_retired(self._name, command.reason)
        call_back(self._on_retire, command.reason)
        self._retire(command.connection_id, command.drain_timeout)

    def _retire(self, number: int, within: float | None) -> None:
        connection = self._connections.pop(number)
        task = asyncio.create_task(connection.retire(within), name=f"{self._name}: an old connection")
        self._retiring_connections[task] = connection
        task.add_done_callback(self._retiring_connections.pop)

    def _set_timer(self) -> None:
        at = None if self._is_closed else self._balancer.wake_at
        if at == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = at
        if at is not None:
            delay = max(at - time.monotonic(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(delay, self._wake)

    def _notify(self) -> None:
        """Notify the user of the channel of a change, and all tasks that wait."""
        active = self._connections.get(self._balancer.active_id)
        policy = None if active is None else (active.config_response, active.policy_received_at)
        before, self._last_notified_state = (
            self._last_notified_state,
            (self.connection_id, policy, self._balancer.mode, self._balancer.health_check),
        )
        if before != self._last_notified_state:
            call_back(self._on_change)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
