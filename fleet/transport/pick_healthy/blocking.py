"""The channel for grpc's blocking API. One thread decides; threads of grpc and of the connections send it events."""

from __future__ import annotations

import contextlib
import queue
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import grpc
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
from fleet.transport.pick_healthy.blocking_calls import (
    BlockingStreamStream,
    BlockingStreamUnary,
    BlockingUnaryStream,
    BlockingUnaryUnary,
)
from fleet.transport.pick_healthy.blocking_connection import BlockingConnection
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

Subscriber = Callable[[grpc.ChannelConnectivity], None]


class BlockingPickHealthyChannel(grpc.Channel):
    """A channel that moves away from unhealthy connections. Create it after a fork, not before."""

    def __init__(
        self,
        open_connection: Callable[[bool], grpc.Channel],
        settings: BalancerSettings = DEFAULTS,
        *,
        name: str = "channel",
        on_retire: OnRetire = lambda reason: None,
        on_unreadable_policy: Callable[[], None] = lambda: None,
    ) -> None:
        """Create the channel; the first RPC or subscription opens the first connection.

        `open_connection` creates a channel with its own connection; True shuffles its addresses. `on_retire` is called,
        from the deciding thread, for every connection that the balancer retires, and `on_unreadable_policy` for every
        unreadable policy of a server.
        """
        self._name = name
        self._on_retire = on_retire
        self._on_unreadable_policy = on_unreadable_policy
        # Ids of auths whose unreadable policy was logged.
        self._logged_auth_ids: set[str] = set()
        # Unknown health services that were logged.
        self._logged_services: set[str] = set()
        #: Number of moves to another connection.
        self.move_count = 0
        self._open_connection = open_connection
        self._balancer = Balancer(settings)
        self._connections: dict[int, BlockingConnection] = {}
        self._events: queue.SimpleQueue[tuple[BlockingConnection, Event] | None] = queue.SimpleQueue()
        #: Retired connections, and the times at which their RPCs are ended.
        self._retiring_connections: list[tuple[float | None, BlockingConnection]] = []
        self._lock = threading.Lock()
        self._picked_connection: BlockingConnection | None = None
        self._thread: threading.Thread | None = None
        self._subscribers: list[Subscriber] = []
        self._state = grpc.ChannelConnectivity.IDLE
        self._policy: ChannelPolicy | None = None
        self._is_closed = False

    @property
    def policy(self) -> ChannelPolicy | None:
        """The policy in force; None before a server has sent one."""
        return self._policy

    def pick(self) -> BlockingConnection:
        """Return the connection for a new RPC; call its `end_rpc` afterwards. Raises ValueError on a closed channel."""
        self._start()
        while True:
            with self._lock:
                connection = self._picked_connection
            if self._is_closed or connection is None:
                raise ValueError("Cannot invoke RPC on closed channel!")
            if connection.begin_rpc():
                return connection

    @override
    def subscribe(self, callback: Subscriber, try_to_connect: bool = False) -> None:
        """Call `callback` with the state now and after each change, from the deciding thread."""
        if try_to_connect:
            self._start()
        with self._lock:
            self._subscribers.append(callback)
            state = self._state
        call_back(callback, state)

    @override
    def unsubscribe(self, callback: Subscriber) -> None:
        """Stop calling a subscribed callback."""
        with self._lock, contextlib.suppress(ValueError):
            self._subscribers.remove(callback)

    @override
    def close(self) -> None:
        """Close all connections and end all RPCs."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        self._events.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    @override
    def unary_unary(self, *args: Any, **kwargs: Any) -> BlockingUnaryUnary:
        return BlockingUnaryUnary(self.pick, *args, **kwargs)

    @override
    def unary_stream(self, *args: Any, **kwargs: Any) -> BlockingUnaryStream:
        return BlockingUnaryStream(self.pick, *args, **kwargs)

    @override
    def stream_unary(self, *args: Any, **kwargs: Any) -> BlockingStreamUnary:
        return BlockingStreamUnary(self.pick, *args, **kwargs)

    @override
    def stream_stream(self, *args: Any, **kwargs: Any) -> BlockingStreamStream:
        return BlockingStreamStream(self.pick, *args, **kwargs)

    @override
    def __enter__(self) -> Self:
        return self

    @override
    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None or self._is_closed:
                return
            self._execute(self._balancer.start())
            self._picked_connection = self._connections[self._balancer.picked_id]
            self._thread = threading.Thread(target=self._run, daemon=True, name="pick-healthy channel")
            self._thread.start()

    def _run(self) -> None:
        while True:
            now = time.monotonic()
            event: tuple[BlockingConnection, Event] | None = None
            try:
                event = self._events.get(timeout=self._seconds_until_next(now))
                if event is None:
                    break
                commands = self._on_event(*event)
            except queue.Empty:
                commands = self._balancer.wake(time.monotonic(), random.random())
            self._execute(commands)
            self._drain(time.monotonic())
            self._notify()
        connections = [
            *self._connections.values(),
            *(connection for _, connection in self._retiring_connections),
        ]
        for connection in connections:
            connection.retire()
            connection.close()
        for connection in connections:
            connection.join()

    def _seconds_until_next(self, now: float) -> float | None:
        times = [
            at
            for at in (self._balancer.wake_at, *(at for at, _ in self._retiring_connections))
            if at is not None
        ]
        return max(min(times) - now, 0.0) if times else None

    def _on_event(self, connection: BlockingConnection, event: Event) -> list[Command]:
        now = time.monotonic()
        if isinstance(event, ServiceUnknown):
            log_unknown_service(self._name, event, self._logged_services)
        if isinstance(event, ConfigUpdate) and event.life == connection.life:
            if is_answer(event) or connection.config_response is None:
                connection.config_response, connection.policy_received_at = event.response, now
            if log_unreadable_policy(self._name, event.response, self._logged_auth_ids):
                call_back(self._on_unreadable_policy)
        return decide(self._balancer, connection.number, event, now, random.random())

    def _execute(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, OpenConnection):
                channel = self._open_connection(command.should_shuffle)
                connection = BlockingConnection(
                    command.connection_id, channel, lambda *report: self._events.put(report)
                )
                active = self._connections.get(self._balancer.active_id)
                if active is not None:  # its policy is in force until the server sends its own
                    connection.config_response, connection.policy_received_at = (
                        active.config_response,
                        active.policy_received_at,
                    )
                self._connections[command.connection_id] = connection
            elif isinstance(command, RequestConfig):
                self._connections[command.connection_id].request_config(command.life)
            elif isinstance(command, WatchHealth):
                self._connections[command.connection_id].watch_health(command.life, command.service)
            else:
                self._retire_by_command(command)

    def _retire_by_command(self, command: RetireConnection) -> None:
        self.move_count += command.reason in {RetireReason.MOVED, RetireReason.RENEWED}
        log_retired(self._name, command.reason)
        call_back(self._on_retire, command.reason)
        connection = self._connections.pop(command.connection_id)
        with self._lock:
            self._picked_connection = self._connections[self._balancer.picked_id]
        connection.retire()
        at = None if command.drain_timeout is None else time.monotonic() + command.drain_timeout
        self._retiring_connections.append((at, connection))

    def _drain(self, now: float) -> None:
        """End the RPCs of retired connections whose time limit has passed."""
        for at, connection in self._retiring_connections:
            if at is not None and at <= now:
                connection.close()
        self._retiring_connections = [
            (at, connection)
            for at, connection in self._retiring_connections
            if not connection.is_over and (at is None or at > now)
        ]

    def _notify(self) -> None:
        state = connectivity_of(self._balancer)
        with self._lock:
            self._picked_connection = self._connections[self._balancer.picked_id]
            subscribers = list(self._subscribers) if state is not self._state else []
            self._state = state
        # After the state: a caller that sees a new policy must also see the new state.
        active = self._connections[self._balancer.active_id]
        self._policy = policy_of(self._balancer, active.config_response, active.policy_received_at)
        for subscriber in subscribers:
            call_back(subscriber, state)
