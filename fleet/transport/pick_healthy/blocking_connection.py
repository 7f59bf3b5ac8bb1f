"""One connection of a blocking channel: a gRPC channel, its RPCs, and threads that watch its policy and health."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
from grpc import _common
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.protocol.recovery.pick_healthy import ServerHealth
from fleet.transport.pick_healthy.events import (
    ConfigUpdate,
    ConnectivityChange,
    Event,
    HealthUpdate,
    event_of_status,
    seconds_before_retry,
)
from fleet.transport.service_config import GET_CONFIG_METHOD, ConfigResponse, read_response

#: Seconds within which the loss of a connection is reported; a stream that breaks with it says nothing about health.
_LOSS_SHOWS_WITHIN = 0.3
#: Seconds between two checks whether the connection was retired, as often as grpc's own subscriptions check.
_STATE_POLL = 0.2


class BlockingConnection:
    """A channel that is kept connected and reports its events, from threads of grpc and of its own."""

    def __init__(
        self, number: int, channel: grpc.Channel, report: Callable[[BlockingConnection, Event], None]
    ) -> None:
        self.number = number
        self.channel = channel
        self._report = report
        self.life = 0
        #: Policy that its server sent, and when, by the monotonic clock.
        self.config_response: ConfigResponse | None = None
        self.policy_received_at: float | None = None
        self._lock = threading.Lock()
        self._rpc_count = 0
        self._is_retired = False
        #: Running calls (service config request, health watch), by the event that ends their thread.
        self._calls: dict[threading.Event, Any] = {}
        self._watch_cancel_event: threading.Event | None = None
        self._close_thread: threading.Thread | None = None
        self._stop_event = threading.Event()
        self._follow_thread = threading.Thread(target=self._follow, daemon=True, name=f"state of {number}")
        self._follow_thread.start()

    def begin_rpc(self) -> bool:
        """Count a new RPC; False if the connection was retired: use the one that is picked now."""
        with self._lock:
            if self._is_retired:
                return False
            self._rpc_count += 1
            return True

    def end_rpc(self) -> None:
        """Count the end of an RPC; the last one closes a retired connection."""
        with self._lock:
            self._rpc_count -= 1
            is_over = self._is_retired and self._rpc_count == 0
        if is_over:
            self.close()

    def request_config(self, life: int) -> None:
        """Request the service config, until there is a response or the connection is lost."""
        self.life = life
        self._start_thread(lambda cancel_event: self._request_config(life, cancel_event))

    def watch_health(self, life: int, service: str | None) -> None:
        """Watch the health of one service, until the connection is lost; None: watch none."""
        if self._watch_cancel_event is not None:
            self._cancel_call(self._watch_cancel_event)
            self._watch_cancel_event = None
        if service is not None:
            self._watch_cancel_event = self._start_thread(
                lambda cancel_event: self._watch_health(life, service, cancel_event)
            )

    def retire(self) -> None:
        """Take no new RPCs, and close when the last one has ended."""
        self._stop_event.set()
        self._cancel_calls()
        with self._lock:
            self._is_retired = True
            is_over = self._rpc_count == 0
        if is_over:
            self.close()

    def close(self) -> None:
        """Close with all RPCs, in a separate thread: see `_close`."""
        with self._lock:
            if self._close_thread is not None:
                return
            self._close_thread = threading.Thread(
                target=self._close, daemon=True, name=f"end of {self.number}"
            )
        self._close_thread.start()

    def join(self) -> None:
        """Wait until the connection is closed."""
        if self._close_thread is not None:
            self._close_thread.join()

    @property
    def is_over(self) -> bool:
        """Return whether the connection was retired and has no RPCs any more."""
        with self._lock:
            return self._is_retired and self._rpc_count == 0

    def _follow(self) -> None:
        """Report every change of the state, and keep the channel connected.

        `Channel.subscribe` does not work here: a connection that is lost and made again between two checks of grpc's
        thread goes from READY to READY without a callback, and the new server would never be asked for its policy.
        """
        core: Any = self.channel._channel  # type: ignore[attr-defined]  # noqa: SLF001 - see above
        last_connectivity = None
        while not self._stop_event.is_set():
            state = core.check_connectivity_state(True)
            connectivity = _common.CYGRPC_CONNECTIVITY_STATE_TO_CHANNEL_CONNECTIVITY[state]
            if connectivity is not last_connectivity or connectivity is grpc.ChannelConnectivity.READY:
                self._cancel_calls()
                self._report(self, ConnectivityChange(connectivity))
            last_connectivity = connectivity
            while not core.watch_connectivity_state(state, time.time() + _STATE_POLL).success:
                if self._stop_event.is_set():
                    return

    def _close(self) -> None:
        # Closing a channel makes the thread that watches its state raise.
        self._stop_event.set()
        self._follow_thread.join()
        self.channel.close()

    def _cancel_calls(self) -> None:
        with self._lock:
            cancel_events = list(self._calls)
        for cancel_event in cancel_events:
            self._cancel_call(cancel_event)

    def _cancel_call(self, cancel_event: threading.Event) -> None:
        cancel_event.set()
        with self._lock:
            call = self._calls.pop(cancel_event, None)
        if call is not None:
            call.cancel()

    def _set_call(self, call: Any, cancel_event: threading.Event) -> None:
        with self._lock:
            if not cancel_event.is_set():
                self._calls[cancel_event] = call
                return
        call.cancel()

    def _start_thread(self, work: Callable[[threading.Event], None]) -> threading.Event:
        cancel_event = threading.Event()
        with self._lock:
            self._calls[cancel_event] = None
        threading.Thread(
            target=work, args=(cancel_event,), daemon=True, name=f"connection {self.number}"
        ).start()
        return cancel_event

    def _request_config(self, life: int, cancel_event: threading.Event) -> None:
        get_config: Any = self.channel.unary_unary(GET_CONFIG_METHOD)
        try_count = 0
        while not cancel_event.is_set():
            call = get_config.future(b"")
            self._set_call(call, cancel_event)
            response: ConfigResponse | None = None
            try:
                response = read_response(
                    call.result(), [tuple(pair) for pair in call.trailing_metadata() or ()]
                )
            except (grpc.RpcError, grpc.FutureCancelledError):
                if call.code() is grpc.StatusCode.UNIMPLEMENTED:
                    response = ConfigResponse(None)
            if cancel_event.is_set():
                return
            self._report(self, ConfigUpdate(life, response))
            if response is not None:
                return
            cancel_event.wait(seconds_before_retry(try_count, random.random()))
            try_count += 1

    def _watch_health(self, life: int, service: str, cancel_event: threading.Event) -> None:
        """Watch health as `AioConnection._watch_health` does."""
        stub = health_pb2_grpc.HealthStub(self.channel)
        try_count = 0
        while not cancel_event.is_set():
            call = stub.Watch(health_pb2.HealthCheckRequest(service=service))
            self._set_call(call, cancel_event)
            try:
                for response in call:
                    self._report(self, event_of_status(life, service, response.status))
                    try_count = 0
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    self._report(
                        self, HealthUpdate(life, service, ServerHealth.HEALTHY, has_health_service=False)
                    )
                    return
            if cancel_event.wait(_LOSS_SHOWS_WITHIN):
                return
            self._report(self, HealthUpdate(life, service, ServerHealth.UNHEALTHY))
            cancel_event.wait(seconds_before_retry(try_count, random.random()))
            try_count += 1
