"""Retries of grpc.aio's unary calls by a policy: an interceptor, and a method. docs/reference/retries.md

They replace the `retryPolicy` of the service config: gRPC's own retries wait less than the configured minimum, make at
most five attempts, and have no timeout per attempt. Do not use both: the attempts multiply.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from typing_extensions import override

from fleet.protocol.retry.policy import DeadlineExceeded, Finish, RetryDecision, RetryPolicy
from fleet.transport.retry.retried_call import Policies, RetriedCall, SharedBudget

#: Starts a try with a timeout and, for retries only, the metadata of the call; returns grpc's call, not awaited.
_StartTry = Callable[[float | None, grpc.aio.Metadata | None], Awaitable[Any]]


class RetryInterceptor(grpc.aio.UnaryUnaryClientInterceptor):
    """Retries unary calls; streaming calls do not pass through here.

    Interceptors of a channel after this one see every attempt, those before it see only the call.
    """

    def __init__(
        self,
        policies: Policies,
        *,
        budget: SharedBudget | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Use one policy, or a function that returns one for `/service/method`; no budget means no limit."""
        self._policies = policies
        self._budget = budget
        self._clock = clock
        self._chance = chance
        self._sleep = sleep

    @override
    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        """Make the call, with the retries of its policy. Raises AioRpcError when its deadline has passed."""
        details = client_call_details

        def start_try(timeout: float | None, metadata: grpc.aio.Metadata | None) -> Any:
            changes = {"timeout": timeout} if metadata is None else {"timeout": timeout, "metadata": metadata}
            return continuation(details._replace(**changes), request)

        retried_call = RetriedCall(
            self._policies, self._budget, details.method, details.timeout, self._clock, self._chance
        )
        return await _make_tries(retried_call, start_try, details.metadata, self._clock, self._sleep)


class RetriedMethod:
    """A unary method whose calls are retried, for callers that need only the response.

    An interceptor does the same for all methods of a channel, but grpc.aio makes two more tasks for each call then.
    Each try of a pick-healthy channel's method goes over the connection that is picked when it starts.
    """

    def __init__(
        self,
        method: Callable[..., Any],
        policy: RetryPolicy,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._method = method
        self._policy = policy
        self._clock = clock
        self._chance = chance
        self._sleep = sleep

    async def __call__(
        self,
        request: Any,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the deadline of gRPC, as its own methods have it
        metadata: grpc.aio.Metadata | None = None,
    ) -> Any:
        """Return the response; `timeout` seconds apply to all tries together. Raises AioRpcError."""

        async def start_try(seconds: float | None, new_metadata: grpc.aio.Metadata | None) -> Any:
            return self._method(request, timeout=seconds, metadata=new_metadata or metadata)

        retried_call = RetriedCall(self._policy, None, "", timeout, self._clock, self._chance)
        call = await _make_tries(retried_call, start_try, metadata, self._clock, self._sleep)
        return await call


async def _make_tries(
    retried_call: RetriedCall,
    start_try: _StartTry,
    metadata: grpc.aio.Metadata | None,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[object]],
) -> Any:
    """Return grpc's call of the last try. Raises AioRpcError when the deadline of the call has passed."""
    while True:
        timeout = retried_call.start()
        # The first try has the caller's metadata: copies are expensive with many calls.
        new_metadata = grpc.aio.Metadata(*retried_call.metadata(metadata)) if retried_call.is_retry else None
        try:
            call = await start_try(timeout, new_metadata)
        except grpc.aio.AioRpcError as error:
            # Another interceptor below may raise what the transport would return.
            decision, retry_at = retried_call.judge(error.code(), error.details(), error.trailing_metadata())
            if isinstance(decision, Finish):
                raise
            trailers = error.trailing_metadata()
        else:
            decision, retry_at = await _judge_call(retried_call, call)
            if isinstance(decision, Finish):
                return call
            trailers = await call.trailing_metadata()
        if isinstance(decision, DeadlineExceeded):
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                grpc.aio.Metadata(),
                trailers or grpc.aio.Metadata(),
                details=decision.details,
            )
        # A timer of the loop may fire slightly early, but the minimum wait must be kept.
        while (remaining := retry_at - clock()) > 0:
            await sleep(remaining)


async def _judge_call(retried_call: RetriedCall, call: Any) -> tuple[RetryDecision, float]:
    try:
        # code() waits for the end of the call and does not raise if it failed.
        code = await call.code()
        if code is grpc.StatusCode.OK:
            return retried_call.judge(code, None, None)
        return retried_call.judge(code, await call.details(), await call.trailing_metadata())
    except asyncio.CancelledError:
        # The caller cancelled: the attempt must not continue.
        call.cancel()
        raise
