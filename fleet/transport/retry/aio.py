"""A grpc.aio interceptor that retries unary calls by a policy. docs/reference/retries.md

It replaces the `retryPolicy` of the service config: gRPC's own retries wait less than the configured minimum, make at
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

from fleet.protocol.retry.policy import DeadlineExceeded, Finish, RetryDecision
from fleet.transport.retry.retried_call import Policies, RetriedCall, SharedBudget


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
        retried_call = RetriedCall(
            self._policies, self._budget, client_call_details, self._clock, self._chance
        )
        while True:
            details = client_call_details._replace(timeout=retried_call.start())
            if retried_call.is_retry:
                # For retries only: the first attempt uses the caller's metadata, and copies are expensive with many
                # calls.
                metadata = grpc.aio.Metadata(*retried_call.metadata(client_call_details.metadata))
                details = details._replace(metadata=metadata)
            try:
                call = await continuation(details, request)
            except grpc.aio.AioRpcError as error:
                # Another interceptor below may raise what the transport would return.
                decision, retry_at = retried_call.judge(
                    error.code(), error.details(), error.trailing_metadata()
                )
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
            await self._pause_until(retry_at)

    async def _pause_until(self, retry_at: float) -> None:
        # A timer of the loop may fire slightly early, but the minimum wait must be kept.
        while (remaining := retry_at - self._clock()) > 0:
            await self._sleep(remaining)


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
