"""The channel for grpc.aio. An RPC that waits for a connection to be made stays with it."""

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
    Ask,
    Balancer,
    Command,
    Open,
    Retire,
    Settings,
    Watch,
    Why,
)
from fleet.transport.pick_healthy.calls import StreamStream, StreamUnary, UnaryStream, UnaryUnary
from fleet.transport.pick_healthy.connection import Connection
from fleet.transport.pick_healthy.events import (
    Configured,
    Event,
    Left,
    Policy,
    ServiceUnknown,
    call_back,
    connectivity_of,
    decide,
    is_answer,
    log_left,
    log_refused,
    log_unknown_service,
    policy_of,
)


class PickHealthyChannel(grpc.aio.Channel):
    """Connections that are left when they are unhealthy. To be made in the event loop that uses it."""

    def __init__(
        self,
        open_connection: Callable[[bool], grpc.aio.Channel],
        settings: Settings = DEFAULTS,
        *,
        name: str = "channel",
        changed: Callable[[], None] = lambda: None,
        left: Left = lambda why: None,
        refused: Callable[[], None] = lambda: None,
    ) -> None:
        """Make it; `connect`, or the first RPC, opens the first connection.

        `open_connection` makes a channel with a connection of its own, and shuffles its addresses if told so.
        `changed` is called when RPCs go over another connection, and when another policy is run with; `left` for
        every connection that the balancer leaves, `refused` for every answer that says no policy one can read.
        """
        self._open_connection = open_connection
        self._balancer = Balancer(settings)
        self._name = name
        self._changed = changed
        self._left = left
        self._refused = refused
        # Ids of auths of whose answers it was said that they cannot be read.
        self._told: set[str] = set()
        # Health services of which it was said that servers do not know them.
        self._unknown_services: set[str] = set()
        self._connections: dict[int, Connection] = {}
        self._retiring: dict[asyncio.Task[None], Connection] = {}
        self._timer: asyncio.TimerHandle | None = None
        #: What the timer is for, by the monotonic clock.
        self._timed: float | None = None
        self._closed = False
        # Whoever waits for a change wakes up and looks.
        self._waiting: set[asyncio.Future[None]] = set()
        self._seen: object = None
        #: A connection was asked for its policy and has answered, or failed to.
        self.asked = asyncio.Event()
        #: How often it moved to another connection.
        self.moves = 0

    @property
    def policy(self) -> Policy | None:
        """What it runs with; None while nobody has told it."""
        connection = self._connections.get(self._balancer.active)
        if connection is None:
            return None
        return policy_of(self._balancer, connection.found, connection.read_at)

    @property
    def connection(self) -> tuple[int, int]:
        """Names the TCP connection that carries new RPCs."""
        picked = self._connections.get(self._balancer.picked)
        return self._balancer.picked, 0 if picked is None else picked.life

    @property
    def carrier(self) -> grpc.aio.Channel | None:
        """The real channel that carries new RPCs; None before the first."""
        picked = self._connections.get(self._balancer.picked)
        return None if picked is None else picked.channel

    @property
    def via(self) -> str:
        """Id of the proxy that new RPCs go through; empty when they go directly."""
        return ""

    async def close_connection(self, channel: grpc.aio.Channel) -> None:
        """Close a real channel nothing runs over any more, and what it stands on."""
        await channel.close()

    def connect(self) -> None:
        """Open the first connection, unless that is done. Raises what `open_connection` raises."""
        if not self._connections and not self._closed:
            self._do(self._balancer.start())

    def pick(self) -> Connection:
        """The connection for an RPC that begins now. Raises UsageError when the channel is closed."""
        if self._closed:
            raise grpc.aio.UsageError("Channel is closed.")
        self.connect()
        return self._connections[self._balancer.picked]

    @override
    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """The state; an unhealthy connection counts as TRANSIENT_FAILURE, and yet carries RPCs."""
        if self._closed:
            return grpc.ChannelConnectivity.SHUTDOWN
        if try_to_connect:
            self.connect()
        return connectivity_of(self._balancer)

    @override
    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the state is another."""
        while self.get_state() is last_observed_state:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(waiting)
            try:
                await waiting
            finally:
                self._waiting.discard(waiting)

    @override
    async def channel_ready(self) -> None:
        """Wait until the state is READY: connected, and healthy if the policy has health checked."""
        while (state := self.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
            if state is grpc.ChannelConnectivity.SHUTDOWN:
                raise grpc.aio.UsageError("Channel is closed.")
            await self.wait_for_state_change(state)

    @override
    async def close(self, grace: float | None = None) -> None:
        """Close all connections; RPCs end now, or within `grace` seconds."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._tell_waiting()
        for number in list(self._connections):
            self._retire(number, None)
        if self._retiring and grace:
            await asyncio.wait(self._retiring, timeout=grace)
        for connection in self._retiring.values():
            connection.end_calls()
        if self._retiring:
            await asyncio.wait(self._retiring)

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

    def _hear(self, connection: Connection, event: Event) -> None:
        if self._closed:
            return  # it was popped, and what follows it has not been cancelled yet
        now = time.monotonic()
        if isinstance(event, ServiceUnknown):
            log_unknown_service(self._name, event, self._unknown_services)
        if isinstance(event, Configured):
            if is_answer(event) or connection.found is None:
                connection.found, connection.read_at = event.found, now
            self.asked.set()
            if log_refused(self._name, event.found, self._told):
                call_back(self._refused)
        self._do(decide(self._balancer, connection.number, event, now, random.random()))
        if not self._balancer.awaits(connection.number):
            connection.settled()

    def _wake(self) -> None:
        self._timer = self._timed = None
        self._do(self._balancer.wake(time.monotonic(), random.random()))

    def _do(self, commands: list[Command]) -> None:
        """Do what was decided."""
        for command in commands:
            if isinstance(command, Open):
                opened = self._open_connection(command.shuffled)
                connection = Connection(command.connection, opened, self._hear, self.close_connection)
                active = self._connections.get(self._balancer.active)
                if active is not None:  # its policy is in force until the server answers
                    connection.found, connection.read_at = active.found, active.read_at
                self._connections[command.connection] = connection
            elif isinstance(command, Ask):
                self._connections[command.connection].ask(command.life)
            elif isinstance(command, Watch):
                self._connections[command.connection].watch(command.life, command.service)
            else:
                self._leave(command)
        self._arm()
        self._tell()

    def _leave(self, command: Retire) -> None:
        self.moves += command.why in {Why.MOVED, Why.RENEWED}
        log_left(self._name, command.why)
        call_back(self._left, command.why)
        self._retire(command.connection, command.within)

    def _retire(self, number: int, within: float | None) -> None:
        left = self._connections.pop(number)
        task = asyncio.create_task(left.retire(within), name=f"{self._name}: an old connection")
        self._retiring[task] = left
        task.add_done_callback(self._retiring.pop)

    def _arm(self) -> None:
        at = None if self._closed else self._balancer.wake_at
        if at == self._timed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timed = at
        if at is not None:
            delay = max(at - time.monotonic(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(delay, self._wake)

    def _tell(self) -> None:
        """Tell those who wait that something is different."""
        active = self._connections.get(self._balancer.active)
        policy = None if active is None else (active.found, active.read_at)
        before, self._seen = (
            self._seen,
            (self.connection, policy, self._balancer.mode, self._balancer.health_check),
        )
        if before != self._seen:
            call_back(self._changed)
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
