"""One call through the gateway: bytes are streamed; a call with a single message may be retried.

docs/reference/gateway.md

A gateway does not know whether a method is unary. A call counts as unary, with the timeouts of its rule, until it turns
out to be a stream. A request of exactly one whole message can be sent again while nothing of a response has been passed
on.
"""

from __future__ import annotations

import asyncio
import logging
import time

from fleet.nodes.gateway import heads
from fleet.nodes.gateway.attempt_stream import CallAttempt
from fleet.nodes.gateway.context import CallContext, GatewayRule
from fleet.nodes.gateway.error_containment import contain_errors
from fleet.nodes.gateway.heads import RequestHead, ResponseHead
from fleet.protocol.destination.health import RequestOutcome
from fleet.protocol.destination.picker import Pick
from fleet.protocol.retry import grpc_http2
from fleet.protocol.retry.grpc_http2 import MessageCounter, Status
from fleet.protocol.retry.policy import (
    EARLY_TOLERANCE,
    NO_RETRY,
    DeadlineExceeded,
    Finish,
    RetryAfter,
    RetryState,
    TimeoutKind,
)
from fleet.transport.http2.backend_dialer import BackendDialer, DialError
from fleet.transport.http2.connection import Http2Connection
from fleet.transport.http2.frames import ErrorCode
from fleet.transport.http2.stream import Stream

log = logging.getLogger(__name__)

#: Largest request that is kept for a retry, in bytes.
REPLAY_LIMIT = 1024 * 1024
#: Most other addresses that are dialed for a call that could not be sent yet. Each may take the dial timeout.
MAX_REDIALS = 5


class Call:
    """Receives the events of the caller's stream."""

    def __init__(self, context: CallContext, stream: Stream) -> None:
        self._context = context
        self._stream = stream
        self.began_at = time.monotonic()
        self._request_head: RequestHead | None = None
        self._rule: GatewayRule | None = None
        #: The request so far; None: it can no longer be sent again.
        self._replay_buffer: list[bytes] | None = []
        self._replay_byte_count = 0
        self._request = MessageCounter()
        self._response = MessageCounter()
        self._request_ended = False
        self._retry_state: RetryState | None = None
        #: Addresses of all attempts; the last one is that of the current attempt.
        self._attempted_addresses: list[str] = []
        #: Addresses among them that could not be reached, were lost or did not respond.
        self._failed_addresses: set[str] = set()
        self._remaining_redials = MAX_REDIALS
        self._attempt: CallAttempt | None = None
        self._was_resent = False
        #: Response headers that wait for what follows, because the attempt may still fail.
        self._pending_head: ResponseHead | None = None
        self._head_sent = False
        #: Its due time is never read: uvloop has none for a timer that is due at once.
        self._timer: asyncio.Handle | None = None
        self._is_done = False

    # Events of the caller.

    @contain_errors
    def on_headers(self, head: RequestHead, *, end: bool) -> None:
        """Find the rule and start the call."""
        if self._request_head is not None:
            if end:
                # gRPC requests have no trailers: a caller that sends some has ended the request.
                self.on_data(b"", end=True)
            return
        self._request_head, self._request_ended = head, end
        self._rule = self._context.find_rule(head.authority, head.path)
        if self._rule is None:
            self._fail(Status.UNIMPLEMENTED, f"no route matches {head.path} at {head.authority}")
        elif end:
            self._start_first_attempt()
        else:
            # Most callers send the message right after the headers: wait, and send both together.
            asyncio.get_running_loop().call_soon(self._start_first_attempt)

    @contain_errors
    def on_data(self, data: bytes, *, end: bool) -> None:
        """Keep the bytes, and pass them on if there is an attempt."""
        if self._is_done:
            return
        if self._request.feed(data) > self._context.max_message:
            self._fail(
                Status.RESOURCE_EXHAUSTED,
                f"the request has a message larger than {self._context.max_message} bytes",
            )
            return
        self._request_ended = end
        if self._replay_buffer is not None:
            self._replay_buffer.append(data)
            self._replay_byte_count += len(data)
        backend = self._attempt.stream if self._attempt is not None else None
        if backend is not None:
            backend.send_data(data, end=end)
            if self._replay_byte_count > REPLAY_LIMIT or self._request.has_several:
                self._replay_buffer = None
        if end:
            self._start_first_attempt()

    @contain_errors
    def on_reset(self, code: ErrorCode, reason: str) -> None:
        """End the call, because the caller cancelled it."""
        del code, reason
        self._close("CANCELLED")

    @contain_errors
    def on_lost(self, reason: str) -> None:
        """End the call, because the connection to the caller was lost."""
        del reason
        self._close("CANCELLED")

    @contain_errors
    def end(self, reason: str) -> None:
        """End the call, because the gateway is shutting down."""
        if not self._is_done:
            self._fail(Status.UNAVAILABLE, reason)

    def abort(self) -> None:
        """End this call after an internal error, whatever its state."""
        if self._is_done:
            return
        try:
            self._fail(Status.INTERNAL, "internal error of the gateway; see its log")
        except Exception:
            log.exception("internal error: a failed call could not be answered")
            self._is_done = True
            self._stream.reset(ErrorCode.INTERNAL_ERROR)

    # The kind of call.

    @property
    def _is_replayable(self) -> bool:
        """Whether the request is one whole message that can be sent again."""
        return (
            self._replay_buffer is not None
            and self._request_ended
            and self._request.message_count == 1
            and self._request.is_between_messages
        )

    @property
    def _may_be_stream(self) -> bool:
        """Whether the call is a stream: several messages, or a request left open between messages."""
        if self._request.has_several or self._response.has_several:
            return True
        return not self._request_ended and (self._request.is_between_messages or self._response.has_bytes)

    @property
    def _can_resend(self) -> bool:
        """Whether a call that the backend refused may be sent again unchanged, once."""
        return (
            self._request_ended
            and self._replay_buffer is not None
            and self._pending_head is None
            and not self._head_sent
            and not self._was_resent
        )

    # Attempts.

    @contain_errors
    def _start_first_attempt(self) -> None:
        if self._retry_state is not None or self._is_done:
            return
        assert self._rule is not None
        assert self._request_head is not None
        self._retry_state = RetryState(self._rule.policy, self.began_at, self._request_head.timeout)
        self._context.record_first_attempt(time.monotonic())
        self._start_attempt()

    @contain_errors
    def _start_attempt(self) -> None:
        if self._is_done:
            return
        assert self._retry_state is not None
        assert self._rule is not None
        self._set_timer(self._retry_state.start_try(time.monotonic()))
        self._attempt = attempt = CallAttempt(self)
        pick = self._pick(self._rule)
        if pick is None:
            self._fail_attempt(attempt, Status.UNAVAILABLE, f"no backend of {self._rule.name} accepts calls")
            return
        attempt.address = pick.name
        self._attempted_addresses.append(pick.name)
        dialer = self._context.dialer_of(pick.name)
        connection = dialer.find_ready_connection()
        if connection is None:
            self._context.tasks.start(self._dial(attempt, dialer))
        else:
            self._send_attempt(attempt, connection)

    def _pick(self, rule: GatewayRule) -> Pick | None:
        assert self._request_head is not None
        tokens = None if self._attempted_addresses else rule.session_tokens
        address = None if tokens is None else tokens.address_of(self._request_head)
        if address is not None:
            return rule.pool.keep(address)
        return rule.pool.pick(self._attempted_addresses, self._failed_addresses)

    async def _dial(self, attempt: CallAttempt, dialer: BackendDialer) -> None:
        try:
            connection = await dialer.dial()
        except DialError as error:
            self._on_connect_failed(attempt, str(error))
        except Exception as error:
            log.exception("internal error while connecting to %s", attempt.address)
            self._on_connect_failed(attempt, str(error))
        else:
            self._on_connected(attempt, connection)

    @contain_errors
    def _on_connected(self, attempt: CallAttempt, connection: Http2Connection) -> None:
        if self._attempt is attempt:
            self._send_attempt(attempt, connection)

    @contain_errors
    def _on_connect_failed(self, attempt: CallAttempt, reason: str) -> None:
        """Try another address. Nothing of the request was sent, so this does not count as a retry."""
        if self._attempt is not attempt:
            return
        assert self._rule is not None
        assert self._retry_state is not None
        self._record_failure(attempt)
        if self._remaining_redials and self._rule.pool.has_other(self._failed_addresses):
            self._remaining_redials -= 1
            self._drop_attempt(attempt)
            self._retry_state.try_count -= 1
            self._start_attempt()
        else:
            self._fail_attempt(attempt, Status.UNAVAILABLE, f"{attempt.address}: {reason}")

    def _send_attempt(self, attempt: CallAttempt, connection: Http2Connection) -> None:
        assert self._request_head is not None
        assert self._retry_state is not None
        assert self._replay_buffer is not None, "a call that cannot be sent again is sent once"
        remaining_seconds = self._caller_seconds_left()
        if remaining_seconds is not None and remaining_seconds <= 0:
            self._fail_attempt(
                attempt, Status.DEADLINE_EXCEEDED, "the caller's deadline passed before the request was sent"
            )
            return
        # The rule's timeouts are not sent: a backend would apply them to streams too.
        retry_count = self._retry_state.try_count - 1
        block = heads.encode_request_head(self._request_head, remaining_seconds, retry_count)
        body = self._replay_buffer[0] if len(self._replay_buffer) == 1 else b"".join(self._replay_buffer)
        attempt.stream = stream = connection.open(block, end=self._request_ended and not body)
        stream.listener = attempt
        if self._retry_state.try_count == 1:
            stream.credit_to(self._stream)
        self._stream.credit_to(stream)
        if body:
            stream.send_data(body, end=self._request_ended)

    def _caller_seconds_left(self) -> float | None:
        """Return the seconds left of the caller's deadline; None without a deadline."""
        assert self._request_head is not None
        timeout = self._request_head.timeout
        return None if timeout is None else self.began_at + timeout - time.monotonic()

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            self._timer = self._context.call_later(seconds, self._on_timeout, seconds)

    @contain_errors
    def _on_timeout(self, seconds: float) -> None:
        attempt, self._timer = self._attempt, None
        if self._is_done or attempt is None:
            return
        assert self._retry_state is not None
        assert self._request_head is not None
        bound = self._retry_state.timeout_kind
        if bound is not TimeoutKind.CALLER and self._may_be_stream:
            # The call is a stream: it lasts as long as its caller wants.
            self._retry_state = RetryState(NO_RETRY, self.began_at, self._request_head.timeout)
            self._set_timer(self._retry_state.start_try(time.monotonic()))
            return
        if bound is TimeoutKind.ATTEMPT and self._request_ended and attempt.stream is not None:
            self._record_failure(attempt)
        verb = "finish its response" if self._response.has_bytes else "respond"
        subject = f"{attempt.address} did not {verb}" if attempt.address else "no backend responded"
        self._fail_attempt(attempt, Status.DEADLINE_EXCEEDED, f"{subject} within {seconds:.3g} s")

    def _fail_attempt(
        self, attempt: CallAttempt, status: Status, details: str, *, is_unprocessed: bool = False
    ) -> None:
        """Handle an attempt that ended without a response of the backend."""
        self._drop_attempt(attempt)
        if self._is_done:
            return
        if is_unprocessed and self._can_resend:
            # The backend says that it did nothing: send the call again at once, which does not count as a retry (gRFC
            # A6).
            self._was_resent = True
            assert self._retry_state is not None
            self._retry_state.try_count -= 1
            asyncio.get_running_loop().call_soon(self._start_attempt)
        elif not self._retry(status, details, None):
            self._fail(status, details)

    def _retry(self, status: Status, details: str, pushback: str | None) -> bool:
        """Return whether another attempt follows or the call has timed out."""
        assert self._retry_state is not None
        if not self._is_replayable or self._response.has_bytes or status is Status.OK:
            return False
        now = time.monotonic()
        verdict = self._retry_state.decide(now, self._context.chance(), status.name, details, pushback)
        match verdict:
            case RetryAfter(wait) if self._context.allow_retry(now):
                assert self._rule is not None
                self._pending_head = None
                self._set_timer(None)
                self._context.record_retry(self._rule, status)
                self._start_attempt_at(now + wait)
                return True
            case DeadlineExceeded(sentence):
                self._fail(Status.DEADLINE_EXCEEDED, sentence)
                return True
            case RetryAfter() | Finish():
                return False

    @contain_errors
    def _start_attempt_at(self, at: float) -> None:
        if self._is_done:
            return
        # The loop's timer may fire a little early, and the wait must not be shorter than required.
        delay = at - time.monotonic()
        if delay > 0:
            self._timer = self._context.call_later(delay, self._start_attempt_at, at)
        else:
            self._timer = None
            self._start_attempt()

    # Events of the backend.

    def on_attempt_headers(self, attempt: CallAttempt, head: ResponseHead, *, end: bool) -> None:
        """Handle headers, trailers, or both at once."""
        if end:
            self._end_attempt(attempt, head)
            return
        if self._pending_head is not None or self._head_sent:
            self._reject_response(attempt, Status.INTERNAL, "sent headers twice")
        elif head.http_status != 200 or not head.is_grpc:
            self._reject_response(
                attempt,
                grpc_http2.of_http(head.http_status or 0),
                f"responded with HTTP {head.http_status} instead of gRPC",
            )
        elif self._is_replayable:
            self._pending_head, attempt.is_degraded = head, head.is_degraded
        else:
            attempt.is_degraded = head.is_degraded
            self._send_head(head)

    def on_attempt_data(self, attempt: CallAttempt, data: bytes, *, end: bool) -> None:
        """Pass on message bytes. From here on there are no further attempts."""
        if self._response.feed(data) > self._context.max_message:
            self._reject_response(
                attempt,
                Status.RESOURCE_EXHAUSTED,
                f"responded with a message larger than {self._context.max_message} bytes",
            )
            return
        # From here on the request cannot be sent again, and a stream may be long: stop keeping it.
        self._replay_buffer = None
        if self._pending_head is not None:
            self._send_head(self._pending_head)
        if not self._head_sent:
            self._reject_response(attempt, Status.INTERNAL, "sent data before headers")
            return
        self._stream.send_data(data)
        if end:
            self._reject_response(attempt, Status.INTERNAL, "ended the call without a status")

    def _end_attempt(self, attempt: CallAttempt, head: ResponseHead) -> None:
        """Handle the end of the call by the backend."""
        is_trailers_only = not self._head_sent and self._pending_head is None
        if is_trailers_only and head.http_status != 200:
            self._reject_response(
                attempt,
                grpc_http2.of_http(head.http_status or 0),
                f"responded with HTTP {head.http_status} instead of gRPC",
            )
            return
        if head.status is None:
            self._reject_response(attempt, Status.UNKNOWN, "ended the call without a status")
            return
        is_degraded = attempt.is_degraded or head.is_degraded
        self._record_outcome(attempt, RequestOutcome.DEGRADED if is_degraded else RequestOutcome.SUCCESS)
        self._drop_attempt(attempt)
        details = grpc_http2.read_message(head.message) if head.status is not Status.OK else ""
        if self._retry(head.status, details, head.pushback):
            return
        if self._pending_head is not None:
            self._send_head(self._pending_head)
        self._finish(head.block, head.status)

    def _reject_response(self, attempt: CallAttempt, status: Status, problem: str) -> None:
        self._record_failure(attempt)
        self._fail_attempt(attempt, status, f"{attempt.address} {problem}")

    def on_attempt_reset(self, attempt: CallAttempt, code: ErrorCode, reason: str) -> None:
        """Handle a reset by the backend."""
        remaining_seconds = self._caller_seconds_left()
        is_unprocessed = code is ErrorCode.REFUSED_STREAM
        if remaining_seconds is not None and remaining_seconds <= EARLY_TOLERANCE and not is_unprocessed:
            # The backend watches the caller's deadline, as grpc-go does, and was first to notice it. That is no
            # failure.
            self._fail_attempt(
                attempt,
                Status.DEADLINE_EXCEEDED,
                f"{attempt.address} ended the call at the caller's deadline",
            )
            return
        if not is_unprocessed:
            self._record_failure(attempt)
        problem = reason or f"reset the call: {code.name}"
        self._fail_attempt(
            attempt, grpc_http2.of_reset(code), f"{attempt.address} {problem}", is_unprocessed=is_unprocessed
        )

    def on_attempt_lost(self, attempt: CallAttempt, reason: str) -> None:
        """Handle the loss of the connection to the backend."""
        self._record_failure(attempt)
        self._fail_attempt(
            attempt, Status.UNAVAILABLE, f"the connection to {attempt.address} was lost: {reason}"
        )

    def _record_failure(self, attempt: CallAttempt) -> None:
        """Count a failure of the backend; never one that the caller caused, such as its deadline."""
        self._failed_addresses.add(attempt.address)
        self._record_outcome(attempt, RequestOutcome.FAILURE)

    def _record_outcome(self, attempt: CallAttempt, outcome: RequestOutcome) -> None:
        if attempt.address:
            self._context.destinations.record_request(attempt.address, outcome)

    def _drop_attempt(self, attempt: CallAttempt) -> None:
        if self._attempt is attempt:
            self._attempt = None
        if attempt.stream is not None:
            attempt.stream.reset(ErrorCode.CANCEL)
            attempt.stream = None

    # The end of the call.

    def _send_head(self, head: ResponseHead) -> None:
        assert self._rule is not None
        assert self._request_head is not None
        self._pending_head, self._head_sent = None, True
        tokens, address = self._rule.session_tokens, self._attempted_addresses[-1]
        token_block = b"" if tokens is None else tokens.encode_token(self._request_head, address)
        self._stream.send_headers(head.block + token_block)

    def _fail(self, status: Status, details: str) -> None:
        is_trailers_only = not self._head_sent
        self._finish(heads.encode_trailers(status, details, is_trailers_only=is_trailers_only), status)

    def _finish(self, trailers: bytes, status: Status) -> None:
        self._stream.send_headers(trailers, end=True)
        if not (self._request_ended or self._stream.has_pending_data):
            # The caller need not send the rest of the request: RFC 9113 section 8.1.
            self._stream.reset(ErrorCode.NO_ERROR)
        self._close(status.name)

    def _close(self, status: str) -> None:
        if self._is_done:
            return
        self._is_done = True
        self._set_timer(None)
        if self._attempt is not None:
            self._drop_attempt(self._attempt)
        self._replay_buffer = None
        self._context.on_call_end(self, self._rule, status)
        # A successful unary response has exactly one message.
        is_stream = self._response.has_several or (status == Status.OK.name and not self._response.has_bytes)
        if is_stream and self._request_head is not None:
            self._context.record_stream_method(self._request_head.path)
