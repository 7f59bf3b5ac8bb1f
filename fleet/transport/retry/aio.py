"""An interceptor of grpc.aio that retries unary calls by a policy of ours. docs/retries.md

Instead of a `retryPolicy` in the service config: gRPC's own waits less than the configured minimum, tries at most five
times, and has no timeout for a try. Do not use both: their tries multiply.
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

from fleet.protocol.retry.policy import Finish, DeadlineExceeded, RetryDecision
from fleet.transport.retry.retried_call import RetriedCall, Policies, SharedBudget


class RetryInterceptor(grpc.aio.UnaryUnaryClientInterceptor):
    """Retries unary calls; streaming calls never come here.

    The last one of a channel's interceptors sees every try, the first one sees calls.
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
        """Take one policy, or what knows one for `/service/method`; without a budget retries are not limited."""
        self._policies = policies
        self._budget = budget
        self._clock = clock
        self._chance = chance
        self._sleep = sleep

    @override
    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        """Make the call, as often as its policy says. Raises AioRpcError when its time is over."""
        retried_call = RetriedCall(self._policies, self._budget, client_call_details, self._clock, self._chance)
        while True:
            details = client_call_details._replace(timeout=retried_call.start())
            if retried_call.is_retry:
                # Only then: a first try goes with the caller's own, and copies cost where calls are many.
                metadata = grpc.aio.Metadata(*retried_call.metadata(client_call_details.metadata))
                details = details._replace(metadata=metadata)
            try:
                call = await continuation(details, request)
            except grpc.aio.AioRpcError as error:
                # Another interceptor between us and the wire may raise what the wire would return.
                verdict, at = retried_call.judge(error.code(), error.details(), error.trailing_metadata())
                if isinstance(verdict, Finish):
                    raise
                trailers = error.trailing_metadata()
            else:
                verdict, at = await _verdict(retried_call, call)
                if isinstance(verdict, Finish):
                    return call
                trailers = await call.trailing_metadata()
            if isinstance(verdict, DeadlineExceeded):
                raise grpc.aio.AioRpcError(
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                    grpc.aio.Metadata(),
                    trailers or grpc.aio.Metadata(),
                    details=verdict.details,
                )
            await self._pause(at)

    async def _pause(self, at: float) -> None:
        # A loop's timer may ring a clock tick early, and the minimum is a minimum.
        while (remaining := at - self._clock()) > 0:
            await self._sleep(remaining)


async def _verdict(retried_call: RetriedCall, call: Any) -> tuple[RetryDecision, float]:
    try:
        # code() waits for the end of the call and does not raise if it failed.
        code = await call.code()
        if code is grpc.StatusCode.OK:
            return retried_call.judge(code, None, None)
        return retried_call.judge(code, await call.details(), await call.trailing_metadata())
    except asyncio.CancelledError:
        # The caller gave up: the try must not go on without it.
        call.cancel()
        raise
