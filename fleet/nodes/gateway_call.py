"""One call through the gateway: bytes pass as they come; a call of one message may be tried again. docs/gateway.md

Nobody tells a gateway whether a method is unary. What counts is what is seen: a request that ended after exactly one
whole message, of which nothing was answered yet, can be sent again as it was. Everything else is passed on once.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol

from fleet.nodes import gateway_heads
from fleet.nodes.gateway_heads import RequestHead, ResponseHead
from fleet.nodes.pump import Tasks
from fleet.protocol import grpc_http2
from fleet.protocol.destination import Proxied
from fleet.protocol.grpc_http2 import Messages, Status
from fleet.protocol.retry import NO_RETRY, Again, Give, Policy, TimedOut, Tries
from fleet.protocol.route_table import Found
from fleet.transport.destinations import Destinations, Pool
from fleet.transport.http2.connection import Connection
from fleet.transport.http2.dialing import Dialer, DialError
from fleet.transport.http2.frames import Code
from fleet.transport.http2.stream import Stream

#: A request that is longer is passed on but not kept to be sent again, bytes.
REPLAY_LIMIT = 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A rule, ready for calls."""

    found: Found
    policy: Policy
    pool: Pool

    @property
    def name(self) -> str:
        """For metrics and sentences."""
        return self.found.name


class House(Protocol):
    """What calls need of the gateway around them."""

    max_message: int
    tasks: Tasks
    destinations: Destinations

    def chance(self) -> float:
        """A number in [0, 1)."""
        ...

    def find(self, authority: str, path: str) -> Entry | None:
        """The rule for a call."""

    def dialer(self, name: str) -> Dialer:
        """The connections to an address."""
        ...

    def budget_first(self, now: float) -> None:
        """Count a first try."""

    def budget_allows(self, now: float) -> bool:
        """Whether a retry may be sent; it is counted if so."""
        ...

    def retried(self, entry: Entry, status: Status) -> None:
        """A try is followed by another."""

    def ended(self, call: Call, entry: Entry | None, status: str) -> None:
        """A call is over."""


class Call:
    """Listens to the caller's stream."""

    def __init__(self, door: House, stream: Stream) -> None:
        self._door = door
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self.began_at = time.monotonic()
        self._head: RequestHead | None = None
        self._entry: Entry | None = None
        #: The request as it came; None: it can be sent only once.
        self._kept: list[bytes] | None = []
        self._kept_bytes = 0
        self._request = Messages()
        self._response = Messages()
        self._request_ended = False
        self._tries: Tries | None = None
        self._tried: list[str] = []
        self._try: _Try | None = None
        self._refused_before = False
        #: An answer's head that waits for what follows: the try may fail yet.
        self._held: ResponseHead | None = None
        self._head_sent = False
        self._timer: asyncio.TimerHandle | None = None
        self._done = False

    # The caller.

    def on_headers(self, made: RequestHead, *, end: bool) -> None:
        """Find the rule and begin."""
        if self._head is not None:
            if end:
                self.on_data(b"", end=True)  # gRPC has no trailers of requests; whoever sends some has ended
            return
        self._head, self._request_ended = made, end
        self._entry = self._door.find(made.authority, made.path)
        if self._entry is None:
            self._fail(Status.UNIMPLEMENTED, f"no route is for {made.path} at {made.authority}")
        elif end:
            self._launch()
        else:
            # Most callers send the message right behind the head: then it is known what kind of call this is.
            self._loop.call_soon(self._launch)

    def on_data(self, data: bytes, *, end: bool) -> None:
        """Keep it, and pass it on if there is somebody."""
        if self._done:
            return
        if self._request.take(data) > self._door.max_message:
            self._fail(
                Status.RESOURCE_EXHAUSTED,
                f"the request has a message of more than {self._door.max_message} bytes",
            )
            return
        self._request_ended = end
        if self._kept is not None:
            self._kept.append(data)
            self._kept_bytes += len(data)
        backend = self._try.stream if self._try is not None else None
        if backend is not None:
            backend.send_data(data, end=end)
            if self._kept_bytes > REPLAY_LIMIT or self._request.whole > 1:
                self._kept = None
        if not end:
            return
        if self._tries is None:
            self._launch()
        elif self._one_message and not self._response.begun:
            self._recognise()

    def on_reset(self, code: Code, why: str) -> None:
        """The caller gave up: so do we."""
        del code, why
        self._give_up("CANCELLED")

    def on_lost(self, why: str) -> None:
        """The caller is gone."""
        del why
        self._give_up("CANCELLED")

    def end(self, why: str) -> None:
        """The gateway ends."""
        if not self._done:
            self._fail(Status.UNAVAILABLE, why)

    # Tries.

    @property
    def _one_message(self) -> bool:
        return (
            self._kept is not None
            and self._request_ended
            and self._request.whole == 1
            and self._request.between
        )

    @property
    def _untouched(self) -> bool:
        """Whether what a backend refused may go again as it was, once."""
        return (
            self._request_ended
            and self._kept is not None
            and self._held is None
            and not self._head_sent
            and not self._refused_before
        )

    def _launch(self) -> None:
        """Begin with the first try."""
        if self._tries is not None or self._done:
            return
        assert self._entry is not None
        assert self._head is not None
        policy = self._entry.policy if self._one_message else NO_RETRY
        self._tries = Tries(policy, self.began_at, self._head.timeout)
        self._door.budget_first(time.monotonic())
        self._start()

    def _recognise(self) -> None:
        """A call that was taken for a stream turns out to be of one message: its rule's limits hold from now."""
        assert self._entry is not None
        assert self._head is not None
        self._tries = Tries(self._entry.policy, self.began_at, self._head.timeout)
        self._limit(self._tries.start(time.monotonic()))

    def _start(self) -> None:
        assert self._tries is not None
        assert self._entry is not None
        limit = self._tries.start(time.monotonic())
        self._try = one = _Try(self)
        self._limit(limit)
        picked = self._entry.pool.pick(self._tried)
        if picked is None:
            self._failed(one, Status.UNAVAILABLE, f"no backend of {self._entry.name} takes calls")
            return
        one.name = picked.name
        self._tried.append(picked.name)
        dialer = self._door.dialer(picked.name)
        connection = dialer.ready()
        if connection is None:
            self._door.tasks.start(self._dial(one, dialer))
        else:
            self._open(one, connection)

    async def _dial(self, one: _Try, dialer: Dialer) -> None:
        try:
            connection = await dialer.dial()
        except DialError as error:
            if self._try is one:
                self._tell(one, Proxied.FAILURE)
                self._failed(one, Status.UNAVAILABLE, f"{one.name}: {error}")
            return
        if self._try is one:
            self._open(one, connection)

    def _open(self, one: _Try, connection: Connection) -> None:
        assert self._head is not None
        assert self._tries is not None
        assert self._kept is not None, "a call that cannot be sent again is sent once"
        left = self._tries_left()
        block = gateway_heads.with_deadline(self._head, left, self._tries.made - 1)
        body = self._kept[0] if len(self._kept) == 1 else b"".join(self._kept)
        one.stream = stream = connection.open(block, end=self._request_ended and not body)
        stream.listener = one
        if self._tries.made == 1:
            stream.credit_to(self._stream)
        self._stream.credit_to(stream)
        if body:
            stream.send_data(body, end=self._request_ended)

    def _tries_left(self) -> float | None:
        """What the backend is told of the time it has, seconds."""
        return None if self._timer is None else max(self._timer.when() - self._loop.time(), 0.0)

    def _limit(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._timed_out, seconds)

    def _timed_out(self, seconds: float) -> None:
        one, self._timer = self._try, None
        if self._done or one is None:
            return
        assert self._entry is not None
        per_try = self._entry.policy.backend_request
        waits = self._one_message and not self._response.whole
        if waits and one.stream is not None and per_try and seconds >= per_try:
            self._tell(one, Proxied.FAILURE)
        where = f"{one.name} did not answer" if one.name else "nobody answered"
        self._failed(one, Status.DEADLINE_EXCEEDED, f"{where} within {seconds:.3g} s")

    def _failed(self, one: _Try, status: Status, details: str, *, unprocessed: bool = False) -> None:
        """A try ended without an answer of the backend's own."""
        self._drop_try(one)
        if self._done:
            return
        if unprocessed and self._untouched:
            # The backend says that it did nothing: again at once, and that does not count (gRFC A6).
            self._refused_before = True
            assert self._tries is not None
            self._tries.made -= 1
            self._loop.call_soon(self._start)
        elif not self._try_again(status, details, None):
            self._fail(status, details)

    def _try_again(self, status: Status, details: str, pushback: str | None) -> bool:
        """Whether another try follows, or the call ended because its time is over."""
        assert self._tries is not None
        if not self._one_message or self._response.begun or status is Status.OK:
            return False
        now = time.monotonic()
        verdict = self._tries.ended(now, self._door.chance(), status.name, details, pushback)
        match verdict:
            case Again(wait) if self._door.budget_allows(now):
                assert self._entry is not None
                self._held = None
                self._limit(None)
                self._door.retried(self._entry, status)
                self._again_at(now + wait)
                return True
            case TimedOut(sentence):
                self._fail(Status.DEADLINE_EXCEEDED, sentence)
                return True
            case Again() | Give():
                return False

    def _again_at(self, at: float) -> None:
        if self._done:
            return
        # A loop's timer may ring a tick early, and the minimum is a minimum.
        left = at - time.monotonic()
        if left > 0:
            self._timer = self._loop.call_later(left, self._again_at, at)
        else:
            self._timer = None
            self._start()

    # The backend.

    def answered(self, one: _Try, head: ResponseHead, *, end: bool) -> None:
        """A head, trailers, or both at once."""
        if end:
            self._ended(one, head)
            return
        if self._held is not None or self._head_sent:
            self._broke(one, Status.INTERNAL, "sent two heads")
        elif head.http != 200 or not head.grpc:
            self._broke(one, grpc_http2.of_http(head.http or 0), f"answered HTTP {head.http}, not gRPC")
        elif self._one_message:
            self._held, one.degraded = head, head.degraded
        else:
            one.degraded = head.degraded
            self._send_head(head)

    def answered_data(self, one: _Try, data: bytes, *, end: bool) -> None:
        """Bytes of the answer: from here on there is no other try."""
        if self._response.take(data) > self._door.max_message:
            self._broke(
                one,
                Status.RESOURCE_EXHAUSTED,
                f"answered with a message of more than {self._door.max_message} bytes",
            )
            return
        # From here on it cannot be sent again, and a stream may last: its request is not kept for that.
        self._kept = None
        if self._held is not None:
            self._send_head(self._held)
        if not self._head_sent:
            self._broke(one, Status.INTERNAL, "sent data before a head")
            return
        self._stream.send_data(data)
        if self._timer is not None and self._response.whole:
            self._only_callers_deadline()
        if end:
            self._broke(one, Status.INTERNAL, "ended without a status")

    def _only_callers_deadline(self) -> None:
        """The answer is there, or is a stream: the rule's timeouts are kept."""
        assert self._head is not None
        self._limit(None)
        if self._head.timeout is not None:
            left = self.began_at + self._head.timeout - time.monotonic()
            self._limit(max(left, 0.0))

    def _ended(self, one: _Try, head: ResponseHead) -> None:
        """The backend's own end of a call."""
        alone = not self._head_sent and self._held is None
        if alone and head.http != 200:
            self._broke(one, grpc_http2.of_http(head.http or 0), f"answered HTTP {head.http}, not gRPC")
            return
        if head.status is None:
            self._broke(one, Status.UNKNOWN, "ended without a status")
            return
        degraded = one.degraded or head.degraded
        self._tell(one, Proxied.DEGRADED if degraded else Proxied.SUCCESS)
        self._drop_try(one)
        details = grpc_http2.read_message(head.message) if head.status is not Status.OK else ""
        if self._try_again(head.status, details, head.pushback):
            return
        if self._held is not None:
            self._send_head(self._held)
        self._finish(head.block, head.status)

    def _broke(self, one: _Try, status: Status, what: str) -> None:
        self._tell(one, Proxied.FAILURE)
        self._failed(one, status, f"{one.name} {what}")

    def was_reset(self, one: _Try, code: Code, why: str) -> None:
        """The backend gave the call up."""
        unprocessed = code is Code.REFUSED_STREAM
        if not unprocessed:
            self._tell(one, Proxied.FAILURE)
        what = why or f"reset the call: {code.name}"
        self._failed(one, grpc_http2.of_reset(code), f"{one.name} {what}", unprocessed=unprocessed)

    def was_lost(self, one: _Try, why: str) -> None:
        """The backend is gone."""
        self._tell(one, Proxied.FAILURE)
        self._failed(one, Status.UNAVAILABLE, f"the connection to {one.name} was lost: {why}")

    def _tell(self, one: _Try, result: Proxied) -> None:
        if one.name:
            self._door.destinations.proxied(one.name, result)

    def _drop_try(self, one: _Try) -> None:
        if self._try is one:
            self._try = None
        if one.stream is not None:
            one.stream.reset(Code.CANCEL)
            one.stream = None

    # The end.

    def _send_head(self, head: ResponseHead) -> None:
        self._held, self._head_sent = None, True
        self._stream.send_headers(head.block)

    def _fail(self, status: Status, details: str) -> None:
        alone = not self._head_sent
        self._finish(gateway_heads.trailers(status, details, alone=alone), status)

    def _finish(self, trailers: bytes, status: Status) -> None:
        self._stream.send_headers(trailers, end=True)
        if not (self._request_ended or self._stream.waiting):
            # The caller need not send the rest: RFC 9113 section 8.1.
            self._stream.reset(Code.NO_ERROR)
        self._give_up(status.name)

    def _give_up(self, status: str) -> None:
        if self._done:
            return
        self._done = True
        self._limit(None)
        if self._try is not None:
            self._drop_try(self._try)
        self._kept = None
        self._door.ended(self, self._entry, status)


class _Try:
    """Listens to the backend's stream."""

    __slots__ = ("_call", "degraded", "name", "stream")

    def __init__(self, call: Call) -> None:
        self._call = call
        self.name = ""
        self.stream: Stream | None = None
        self.degraded = False

    def on_headers(self, made: ResponseHead, *, end: bool) -> None:
        self._call.answered(self, made, end=end)

    def on_data(self, data: bytes, *, end: bool) -> None:
        self._call.answered_data(self, data, end=end)

    def on_reset(self, code: Code, why: str) -> None:
        self._call.was_reset(self, code, why)

    def on_lost(self, why: str) -> None:
        self._call.was_lost(self, why)
