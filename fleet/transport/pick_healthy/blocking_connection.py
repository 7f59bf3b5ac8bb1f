"""One connection of a blocking channel: a real channel, what runs over it, and who follows its policy and health."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc
from grpc import _common
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.protocol.recovery.pick_healthy import Health
from fleet.transport.pick_healthy.events import (
    Configured,
    Event,
    Told,
    Turned,
    event_of_status,
    wait_again,
)
from fleet.transport.service_config import METHOD, Discovered, read

#: A stream that breaks because its connection did is no news of health: the loss itself shows within this, seconds.
_LOSS_SHOWS_WITHIN = 0.3
#: So often a connection looks whether it is still to be followed, seconds: as grpc's own subscriptions do.
_LOOK_EVERY = 0.2


class BlockingConnection:
    """A channel that is kept connected, and reports what becomes of it, from threads of grpc's and of its own."""

    def __init__(
        self, number: int, channel: grpc.Channel, report: Callable[[BlockingConnection, Event], None]
    ) -> None:
        self.number = number
        self.channel = channel
        self._report = report
        self.life = 0
        #: What its server said of itself, and when it did, by the monotonic clock.
        self.found: Discovered | None = None
        self.read_at: float | None = None
        self._lock = threading.Lock()
        self._rpcs = 0
        self._left = False
        #: By what tells its thread to end: the calls of the question and of the watch that run.
        self._questions: dict[threading.Event, Any] = {}
        self._watching: threading.Event | None = None
        self._closing: threading.Thread | None = None
        self._unfollowed = threading.Event()
        self._following = threading.Thread(target=self._follow, daemon=True, name=f"state of {number}")
        self._following.start()

    def begin(self) -> bool:
        """Count an RPC that begins; False when the connection was left meanwhile: take the one picked now."""
        with self._lock:
            if self._left:
                return False
            self._rpcs += 1
            return True

    def end(self) -> None:
        """Count an RPC that ended; the last one takes a connection that was left with it."""
        with self._lock:
            self._rpcs -= 1
            over = self._left and self._rpcs == 0
        if over:
            self.close()

    def ask(self, life: int) -> None:
        """Ask for the service config, until it is answered or the connection lost."""
        self.life = life
        self._in_background(lambda forgotten: self._ask(life, forgotten))

    def watch(self, life: int, service: str | None) -> None:
        """Watch the health of a service and of no other, until the connection is lost; None: of nothing."""
        if self._watching is not None:
            self._forget(self._watching)
            self._watching = None
        if service is not None:
            self._watching = self._in_background(lambda forgotten: self._watch(life, service, forgotten))

    def retire(self) -> None:
        """Take no new RPCs, and close when the last one ends."""
        self._unfollowed.set()
        self._forget_all()
        with self._lock:
            self._left = True
            over = self._rpcs == 0
        if over:
            self.close()

    def close(self) -> None:
        """Close it, whatever runs over it, in a thread of its own: see `_close`."""
        with self._lock:
            if self._closing is not None:
                return
            self._closing = threading.Thread(target=self._close, daemon=True, name=f"end of {self.number}")
        self._closing.start()

    def join(self) -> None:
        """Wait until it is closed."""
        if self._closing is not None:
            self._closing.join()

    @property
    def over(self) -> bool:
        """It was left, and nothing runs over it any more."""
        with self._lock:
            return self._left and self._rpcs == 0

    def _follow(self) -> None:
        """Report every change of the state, and keep the channel connected.

        Not by `Channel.subscribe`: a connection that is lost and made anew between two looks of grpc's own thread is
        READY after READY there, which nobody is told; the new server would never be asked for its policy.
        """
        core: Any = self.channel._channel  # type: ignore[attr-defined]  # noqa: SLF001 - see above
        last = None
        while not self._unfollowed.is_set():
            state = core.check_connectivity_state(True)
            connectivity = _common.CYGRPC_CONNECTIVITY_STATE_TO_CHANNEL_CONNECTIVITY[state]
            if connectivity is not last or connectivity is grpc.ChannelConnectivity.READY:
                self._forget_all()
                self._report(self, Turned(connectivity))
            last = connectivity
            while not core.watch_connectivity_state(state, time.time() + _LOOK_EVERY).success:
                if self._unfollowed.is_set():
                    return

    def _close(self) -> None:
        # A channel that is closed under the thread that follows its state raises there.
        self._unfollowed.set()
        self._following.join()
        self.channel.close()

    def _forget_all(self) -> None:
        with self._lock:
            forgotten = list(self._questions)
        for each in forgotten:
            self._forget(each)

    def _forget(self, forgotten: threading.Event) -> None:
        forgotten.set()
        with self._lock:
            question = self._questions.pop(forgotten, None)
        if question is not None:
            question.cancel()

    def _remember(self, question: Any, forgotten: threading.Event) -> None:
        with self._lock:
            if not forgotten.is_set():
                self._questions[forgotten] = question
                return
        question.cancel()

    def _in_background(self, work: Callable[[threading.Event], None]) -> threading.Event:
        forgotten = threading.Event()
        with self._lock:
            self._questions[forgotten] = None
        threading.Thread(
            target=work, args=(forgotten,), daemon=True, name=f"connection {self.number}"
        ).start()
        return forgotten

    def _ask(self, life: int, forgotten: threading.Event) -> None:
        ask: Any = self.channel.unary_unary(METHOD)
        tries = 0
        while not forgotten.is_set():
            call = ask.future(b"")
            self._remember(call, forgotten)
            found: Discovered | None = None
            try:
                found = read(call.result(), [tuple(pair) for pair in call.trailing_metadata() or ()])
            except (grpc.RpcError, grpc.FutureCancelledError):
                if call.code() is grpc.StatusCode.UNIMPLEMENTED:
                    found = Discovered(None)
            if forgotten.is_set():
                return
            self._report(self, Configured(life, found))
            if found is not None:
                return
            forgotten.wait(wait_again(tries, random.random()))
            tries += 1

    def _watch(self, life: int, service: str, forgotten: threading.Event) -> None:
        """As `Connection._watch`."""
        stub = health_pb2_grpc.HealthStub(self.channel)
        tries = 0
        while not forgotten.is_set():
            call = stub.Watch(health_pb2.HealthCheckRequest(service=service))
            self._remember(call, forgotten)
            try:
                for answer in call:
                    self._report(self, event_of_status(life, service, answer.status))
                    tries = 0
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    self._report(self, Told(life, service, Health.HEALTHY, watched=False))
                    return
            if forgotten.wait(_LOSS_SHOWS_WITHIN):
                return
            self._report(self, Told(life, service, Health.UNHEALTHY))
            forgotten.wait(wait_again(tries, random.random()))
            tries += 1
