"""Retried calls of grpc's blocking API: evaluation of an attempt, the future of a call, and the timeout error."""

from __future__ import annotations

import concurrent.futures
import threading
import types
from collections.abc import Callable
from typing import Any

import grpc
from typing_extensions import override

from fleet.protocol.retry.policy import DeadlineExceeded, Finish, RetryAfter, RetryDecision
from fleet.transport.retry.retried_call import RetriedCall

#: grpc's details for a call whose channel was closed locally; nothing else distinguishes it.
_CHANNEL_CLOSED_DETAILS = "Channel closed!"


def judge(retried_call: RetriedCall, outcome: Any) -> tuple[RetryDecision, float]:
    """Wait for the end of an attempt; return the decision, and when a retry may start (by the clock)."""
    # grpc *returns* errors to interceptors: nothing is raised here (grpc/grpc#25207).
    code = outcome.code()
    if outcome.cancelled() or (
        code is grpc.StatusCode.CANCELLED and outcome.details() == _CHANNEL_CLOSED_DETAILS
    ):
        return Finish(), 0.0  # cancelled by the caller, not by the server
    error = outcome.exception()
    if error is not None and not isinstance(error, grpc.RpcError):
        # An error of the program, which grpc reports as INTERNAL: a request of the wrong type, a closed channel.
        return Finish(), 0.0
    return retried_call.judge(code, outcome.details(), outcome.trailing_metadata())


class TimedOutCall(grpc.RpcError, grpc.Call, grpc.Future):  # type: ignore[type-arg]
    """A call whose deadline passed between two attempts: both error and call, like grpc's own."""

    def __init__(self, details: str, last_call: Any) -> None:
        super().__init__(details)
        self._details = details
        self._last_call = last_call

    @override
    def __str__(self) -> str:
        return f"DEADLINE_EXCEEDED: {self._details}"

    @override
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.DEADLINE_EXCEEDED

    @override
    def details(self) -> str:
        return self._details

    @override
    def initial_metadata(self) -> Any:
        return self._last_call.initial_metadata()

    @override
    def trailing_metadata(self) -> Any:
        return self._last_call.trailing_metadata()

    @override
    def is_active(self) -> bool:
        return False

    @override
    def time_remaining(self) -> Any:
        return None

    @override
    def add_callback(self, callback: Callable[[], None]) -> bool:
        return False

    @override
    def cancel(self) -> bool:
        return False

    @override
    def cancelled(self) -> bool:
        return False

    @override
    def running(self) -> bool:
        return False

    @override
    def done(self) -> bool:
        return True

    @override
    def result(self, timeout: float | None = None) -> Any:
        raise self

    @override
    def exception(self, timeout: float | None = None) -> Exception:
        return self

    @override
    def traceback(self, timeout: float | None = None) -> types.TracebackType | None:
        return self.__traceback__

    @override
    def add_done_callback(self, fn: Callable[[Any], None]) -> None:
        fn(self)


class RetriedFuture(grpc.Call, grpc.Future):  # type: ignore[type-arg]
    """The future of a call; a thread of its own makes the retries."""

    def __init__(
        self,
        retried_call: RetriedCall,
        start_attempt: Callable[[], Any],
        first_call: Any,
        clock: Callable[[], float],
    ) -> None:
        self._retried_call = retried_call
        self._start_attempt = start_attempt
        self._clock = clock
        self._current_call = first_call
        self._lock = threading.Lock()
        self._cancel_event = threading.Event()
        #: Result: the attempt that the caller gets.
        self._final_attempt_future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        # A daemon thread: a call that hangs must not keep the program from exiting.
        threading.Thread(target=self._run, name="retried-call", daemon=True).start()

    def _run(self) -> None:
        try:
            self._final_attempt_future.set_result(self._retry_until_final_attempt())
        except BaseException as error:  # noqa: BLE001 - the caller of result() gets any exception
            self._final_attempt_future.set_exception(error)

    def _retry_until_final_attempt(self) -> Any:
        while True:
            decision, retry_at = judge(self._retried_call, self._current_call)
            if isinstance(decision, DeadlineExceeded):
                return TimedOutCall(decision.details, self._current_call)
            if not isinstance(decision, RetryAfter):
                return self._current_call
            while (remaining := retry_at - self._clock()) > 0 and not self._cancel_event.wait(remaining):
                pass  # the wait may end slightly early, but the minimum must be kept
            with self._lock:
                if self._cancel_event.is_set():
                    return self._current_call
                try:
                    self._current_call = self._start_attempt()
                except ValueError:
                    return self._current_call  # the channel was closed: return the last attempt

    @override
    def cancel(self) -> bool:
        with self._lock:
            if self._final_attempt_future.done():
                return False
            self._cancel_event.set()
            self._current_call.cancel()
            return True

    @override
    def cancelled(self) -> bool:
        return self._cancel_event.is_set()

    @override
    def running(self) -> bool:
        return not self.done()

    @override
    def done(self) -> bool:
        return self.cancelled() or self._final_attempt_future.done()

    @override
    def is_active(self) -> bool:
        return self.running()

    @override
    def time_remaining(self) -> Any:
        return self._current_call.time_remaining()

    @override
    def result(self, timeout: float | None = None) -> Any:
        return self._await(timeout).result()

    @override
    def exception(self, timeout: float | None = None) -> Any:
        return self._await(timeout).exception()

    @override
    def traceback(self, timeout: float | None = None) -> Any:
        return self._await(timeout).traceback()

    @override
    def code(self) -> Any:
        return grpc.StatusCode.CANCELLED if self.cancelled() else self._await(None).code()

    @override
    def details(self) -> Any:
        return "Locally cancelled by application!" if self.cancelled() else self._await(None).details()

    @override
    def initial_metadata(self) -> Any:
        return None if self.cancelled() else self._await(None).initial_metadata()

    @override
    def trailing_metadata(self) -> Any:
        return None if self.cancelled() else self._await(None).trailing_metadata()

    @override
    def add_callback(self, callback: Callable[[], None]) -> bool:
        if self._final_attempt_future.done():
            return False
        self._final_attempt_future.add_done_callback(lambda _: callback())
        return True

    @override
    def add_done_callback(self, fn: Callable[[Any], None]) -> None:
        self._final_attempt_future.add_done_callback(lambda _: fn(self))

    def _await(self, timeout: float | None) -> Any:
        if self.cancelled():
            raise grpc.FutureCancelledError
        try:
            outcome = self._final_attempt_future.result(timeout)
        except concurrent.futures.TimeoutError:
            raise grpc.FutureTimeoutError from None
        if self.cancelled():
            raise grpc.FutureCancelledError
        return outcome
