"""The same interceptor for grpc's blocking API: `grpc.intercept_channel(channel, BlockingRetrying(policy))`.

See aio.py for why not gRPC's own retries.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from typing_extensions import override

from fleet.protocol.retry.policy import RetryAfter, DeadlineExceeded
from fleet.transport.retry.futures import RetriedFuture, TimedOutCall, judge
from fleet.transport.retry.retried_call import RetriedCall, Policies, SharedBudget


class BlockingRetryInterceptor(grpc.UnaryUnaryClientInterceptor):
    """Retries unary calls; streaming calls never come here. One may serve many channels and threads."""

    def __init__(
        self,
        policies: Policies,
        *,
        budget: SharedBudget | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Take one policy, or what knows one for `/service/method`; without a budget retries are not limited."""
        self._policies = policies
        self._budget = budget
        self._clock = clock
        self._chance = chance
        self._sleep = sleep

    @override
    def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        """Make the call, as often as its policy says; a future of it is finished by a thread."""
        retried_call = RetriedCall(self._policies, self._budget, client_call_details, self._clock, self._chance)

        def attempt() -> Any:
            timeout = retried_call.start()
            metadata = retried_call.metadata(client_call_details.metadata)
            return continuation(_Details.copy_of(client_call_details, timeout, metadata), request)

        outcome = attempt()
        # Only .future() returns while the try still runs, and then somebody must wait for it elsewhere.
        if not outcome.done():
            return RetriedFuture(retried_call, attempt, outcome, self._clock)
        while True:
            verdict, at = judge(retried_call, outcome)
            if isinstance(verdict, DeadlineExceeded):
                return TimedOutCall(verdict.details, outcome)
            if not isinstance(verdict, RetryAfter):
                return outcome
            while (remaining := at - self._clock()) > 0:
                self._sleep(remaining)
            outcome = attempt()


@dataclass(frozen=True)
class _Details(grpc.ClientCallDetails):
    """grpc's own are an abstract class and a private tuple."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None

    @classmethod
    def copy_of(cls, details: Any, timeout: float | None, metadata: Any) -> _Details:
        return cls(
            details.method,
            timeout,
            metadata,
            # Other interceptors may have made details without them.
            getattr(details, "credentials", None),
            getattr(details, "wait_for_ready", None),
            getattr(details, "compression", None),
        )
