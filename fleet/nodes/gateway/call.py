"""One call through the gateway: bytes pass as they come; a call of one message may be tried again. docs/gateway.md

Nobody tells a gateway whether a method is unary. A call is taken for unary, with the timeouts of its rule, until it
shows to be a stream; a request of exactly one whole message, of which nothing was answered yet, can be sent again.
"""

from __future__ import annotations

import asyncio
import logging
import time

from fleet.nodes.gateway import heads
from fleet.nodes.gateway.attempt_stream import Try
from fleet.nodes.gateway.context import CallContext, Entry
from fleet.nodes.gateway.error_containment import contained
from fleet.nodes.gateway.heads import RequestHead, ResponseHead
from fleet.protocol.destination.health import Proxied
from fleet.protocol.destination.picker import Pick
from fleet.protocol.retry import grpc_http2
from fleet.protocol.retry.grpc_http2 import Messages, Status
from fleet.protocol.retry.policy import EARLY, NO_RETRY, Again, Bound, Give, TimedOut, Tries
from fleet.transport.http2.backend_dialer import Dialer, DialError
from fleet.transport.http2.connection import Connection
from fleet.transport.http2.frames import Code
from fleet.transport.http2.stream import Stream

log = logging.getLogger(__name__)

#: A request that is longer is passed on but not kept to be sent again, bytes.
REPLAY_LIMIT = 1024 * 1024
#: So many other addresses are dialed for a call that could not be sent yet: each may take its dial timeout.
REDIALS = 5


class Call:
    """Listens to the caller's stream."""

    def __init__(self, door: CallContext, stream: Stream) -> None:
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
        #: The addresses of all tries; the last one is the address of the last try.
        self._tried: list[str] = []
        #: Those of them that were not reached, were lost or did not answer.
        self._failures: set[str] = set()
        self._redials = REDIALS
        self._try: Try | None = None
        self._refused_before = False
        #: An answer's head that waits for what follows: the try may fail yet.
        self._held: ResponseHead | None = None
        self._head_sent = False
        #: Never asked for its time: uvloop has none for a timer that is due at once.
        self._timer: asyncio.Handle | None = None
        self._done = False

    # The caller.

    @contained
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
            # Most callers send the message right behind the head: then both are sent on together.
            self._loop.call_soon(self._launch)

    @contained
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
            if self._kept_bytes > REPLAY_LIMIT or self._request.several:
                self._kept = None
        if end:
            self._launch()

    @contained
    def on_reset(self, code: Code, why: str) -> None:
        """The caller gave up: so do we."""
        del code, why
        self._give_up("CANCELLED")

    @contained
    def on_lost(self, why: str) -> None:
        """The caller is gone."""
        del why
        self._give_up("CANCELLED")

    @contained
    def end(self, why: str) -> None:
        """The gateway ends."""
        if not self._done:
            self._fail(Status.UNAVAILABLE, why)

    def break_down(self) -> None:
        """End this call after an error of ours, whatever state it is in."""
        if self._done:
            return
        try:
            self._fail(Status.INTERNAL, "the gateway failed: its log says how")
        except Exception:
            log.exception("a call that broke could not be answered")
            self._done = True
            self._stream.reset(Code.INTERNAL_ERROR)

    # What kind of call it is.

    @property
    def _one_message(self) -> bool:
        """Whether the request can be sent again as it was."""
        return (
            self._kept is not None
            and self._request_ended
            and self._request.whole == 1
            and self._request.between
        )

    @property
    def _may_last(self) -> bool:
        """Whether this is a stream by what was seen of it, or by a request that is open between messages."""
        if self._request.several or self._response.several:
            return True
        return not self._request_ended and (self._request.between or self._response.begun)

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

    # Tries.

    @contained
    def _launch(self) -> None:
        """Begin with the first try."""
        if self._tries is not None or self._done:
            return
        assert self._entry is not None
        assert self._head is not None
        self._tries = Tries(self._entry.policy, self.began_at, self._head.timeout)
        self._door.budget_first(time.monotonic())
        self._start()

    @contained
    def _start(self) -> None:
        if self._done:
            return
        assert self._tries is not None
        assert self._entry is not None
        self._limit(self._tries.start(time.monotonic()))
        self._try = attempt = Try(self)
        picked = self._pick(self._entry)
        if picked is None:
            self._failed(attempt, Status.UNAVAILABLE, f"no backend of {self._entry.name} takes calls")
            return
        attempt.name = picked.name
        self._tried.append(picked.name)
        dialer = self._door.dialer(picked.name)
        connection = dialer.ready()
        if connection is None:
            self._door.tasks.start(self._dial(attempt, dialer))
        else:
            self._open(attempt, connection)

    def _pick(self, entry: Entry) -> Pick | None:
        assert self._head is not None
        address = entry.sessions.address(self._head) if entry.sessions and not self._tried else None
        if address is not None:
            return entry.pool.keep(address)
        return entry.pool.pick(self._tried, self._failures)

    async def _dial(self, attempt: Try, dialer: Dialer) -> None:
        try:
            connection = await dialer.dial()
        except DialError as error:
            self._not_connected(attempt, str(error))
        except Exception as error:
            log.exception("%s could not be dialed", attempt.name)
            self._not_connected(attempt, str(error))
        else:
            self._connected(attempt, connection)

    @contained
    def _connected(self, attempt: Try, connection: Connection) -> None:
        if self._try is attempt:
            self._open(attempt, connection)

    @contained
    def _not_connected(self, attempt: Try, why: str) -> None:
        """Send the request elsewhere: nothing of it was sent, so this is no retry, whatever the rule says."""
        if self._try is not attempt:
            return
        assert self._entry is not None
        assert self._tries is not None
        self._blame(attempt)
        if self._redials and self._entry.pool.has_other(self._failures):
            self._redials -= 1
            self._drop_try(attempt)
            self._tries.made -= 1
            self._start()
        else:
            self._failed(attempt, Status.UNAVAILABLE, f"{attempt.name}: {why}")

    def _open(self, attempt: Try, connection: Connection) -> None:
        assert self._head is not None
        assert self._tries is not None
        assert self._kept is not None, "a call that cannot be sent again is sent once"
        left = self._callers_time()
        if left is not None and left <= 0:
            self._failed(
                attempt, Status.DEADLINE_EXCEEDED, "the caller's deadline was over before it was sent"
            )
            return
        # The rule's timeouts are not told: a backend would end streams by them, too.
        block = heads.with_deadline(self._head, left, self._tries.made - 1)
        body = self._kept[0] if len(self._kept) == 1 else b"".join(self._kept)
        attempt.stream = stream = connection.open(block, end=self._request_ended and not body)
        stream.listener = attempt
        if self._tries.made == 1:
            stream.credit_to(self._stream)
        self._stream.credit_to(stream)
        if body:
            stream.send_data(body, end=self._request_ended)

    def _callers_time(self) -> float | None:
        """What is left of the caller's own deadline, seconds; None: there is none."""
        assert self._head is not None
        timeout = self._head.timeout
        return None if timeout is None else self.began_at + timeout - time.monotonic()

    def _limit(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._timed_out, seconds)

    @contained
    def _timed_out(self, seconds: float) -> None:
        attempt, self._timer = self._try, None
        if self._done or attempt is None:
            return
        assert self._tries is not None
        assert self._head is not None
        if self._tries.bound is not Bound.CALLER and self._may_last:
            # It is a stream: it lasts as long as its caller lets it.
            self._tries = Tries(NO_RETRY, self.began_at, self._head.timeout)
            self._limit(self._tries.start(time.monotonic()))
            return
        if self._tries.bound is Bound.TRY and self._request_ended and attempt.stream is not None:
            self._blame(attempt)
        verb = "end its answer" if self._response.begun else "answer"
        subject = f"{attempt.name} did not {verb}" if attempt.name else "nobody answered"
        self._failed(attempt, Status.DEADLINE_EXCEEDED, f"{subject} within {seconds:.3g} s")

    def _failed(self, attempt: Try, status: Status, details: str, *, unprocessed: bool = False) -> None:
        """A try ended without an answer of the backend's own."""
        self._drop_try(attempt)
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

    @contained
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

    def answered(self, attempt: Try, head: ResponseHead, *, end: bool) -> None:
        """A head, trailers, or both at once."""
        if end:
            self._ended(attempt, head)
            return
        if self._held is not None or self._head_sent:
            self._broke(attempt, Status.INTERNAL, "sent two heads")
        elif head.http != 200 or not head.grpc:
            self._broke(attempt, grpc_http2.of_http(head.http or 0), f"answered HTTP {head.http}, not gRPC")
        elif self._one_message:
            self._held, attempt.degraded = head, head.degraded
        else:
            attempt.degraded = head.degraded
            self._send_head(head)

    def answered_data(self, attempt: Try, data: bytes, *, end: bool) -> None:
        """Bytes of the answer: from here on there is no other try."""
        if self._response.take(data) > self._door.max_message:
            self._broke(
                attempt,
                Status.RESOURCE_EXHAUSTED,
                f"answered with a message of more than {self._door.max_message} bytes",
            )
            return
        # From here on it cannot be sent again, and a stream may last: its request is not kept for that.
        self._kept = None
        if self._held is not None:
            self._send_head(self._held)
        if not self._head_sent:
            self._broke(attempt, Status.INTERNAL, "sent data before a head")
            return
        self._stream.send_data(data)
        if end:
            self._broke(attempt, Status.INTERNAL, "ended without a status")

    def _ended(self, attempt: Try, head: ResponseHead) -> None:
        """The backend's own end of a call."""
        alone = not self._head_sent and self._held is None
        if alone and head.http != 200:
            self._broke(attempt, grpc_http2.of_http(head.http or 0), f"answered HTTP {head.http}, not gRPC")
            return
        if head.status is None:
            self._broke(attempt, Status.UNKNOWN, "ended without a status")
            return
        degraded = attempt.degraded or head.degraded
        self._tell(attempt, Proxied.DEGRADED if degraded else Proxied.SUCCESS)
        self._drop_try(attempt)
        details = grpc_http2.read_message(head.message) if head.status is not Status.OK else ""
        if self._try_again(head.status, details, head.pushback):
            return
        if self._held is not None:
            self._send_head(self._held)
        self._finish(head.block, head.status)

    def _broke(self, attempt: Try, status: Status, what: str) -> None:
        self._blame(attempt)
        self._failed(attempt, status, f"{attempt.name} {what}")

    def was_reset(self, attempt: Try, code: Code, why: str) -> None:
        """The backend gave the call up."""
        left = self._callers_time()
        unprocessed = code is Code.REFUSED_STREAM
        if left is not None and left <= EARLY and not unprocessed:
            # It keeps the caller's deadline, as grpc-go does, and was first to notice: that is no failure of its own.
            self._failed(attempt, Status.DEADLINE_EXCEEDED, f"{attempt.name} ended the call at its deadline")
            return
        if not unprocessed:
            self._blame(attempt)
        what = why or f"reset the call: {code.name}"
        self._failed(attempt, grpc_http2.of_reset(code), f"{attempt.name} {what}", unprocessed=unprocessed)

    def was_lost(self, attempt: Try, why: str) -> None:
        """The backend is gone."""
        self._blame(attempt)
        self._failed(attempt, Status.UNAVAILABLE, f"the connection to {attempt.name} was lost: {why}")

    def _blame(self, attempt: Try) -> None:
        """Count a failure of the backend itself: never what the caller wanted, such as its deadline."""
        self._failures.add(attempt.name)
        self._tell(attempt, Proxied.FAILURE)

    def _tell(self, attempt: Try, result: Proxied) -> None:
        if attempt.name:
            self._door.destinations.proxied(attempt.name, result)

    def _drop_try(self, attempt: Try) -> None:
        if self._try is attempt:
            self._try = None
        if attempt.stream is not None:
            attempt.stream.reset(Code.CANCEL)
            attempt.stream = None

    # The end.

    def _send_head(self, head: ResponseHead) -> None:
        assert self._entry is not None
        assert self._head is not None
        self._held, self._head_sent = None, True
        sessions = self._entry.sessions
        added = sessions.added(self._head, self._tried[-1]) if sessions is not None else b""
        self._stream.send_headers(head.block + added)

    def _fail(self, status: Status, details: str) -> None:
        alone = not self._head_sent
        self._finish(heads.trailers(status, details, alone=alone), status)

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
        # A unary answer that is well has exactly one message.
        is_stream = self._response.several or (status == Status.OK.name and not self._response.begun)
        if is_stream and self._head is not None:
            self._door.saw_stream(self._head.path)
