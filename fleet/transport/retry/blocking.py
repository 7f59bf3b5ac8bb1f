"""The interceptor for grpc's blocking API: `grpc.intercept_channel(channel, BlockingRetryInterceptor(policy))`.

See aio.py for why gRPC's own retries are not used.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from typing_extensions import override

from fleet.protocol.retry.policy import DeadlineExceeded, RetryAfter
from fleet.transport.retry.futures import RetriedFuture, TimedOutCall, judge
from fleet.transport.retry.retried_call import Policies, RetriedCall, SharedBudget


class BlockingRetryInterceptor(grpc.UnaryUnaryClientInterceptor):
    """Retries unary calls; streaming calls do not pass through here. Safe for many channels and threads."""

    def __init__(
        self,
        policies: Policies,
        *,
        budget: SharedBudget | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Use one policy, or a function that returns one for `/service/method`; no budget means no limit."""
        self._policies = policies
        self._budget = budget
        self._clock = clock
        self._chance = chance
        self._sleep = sleep

    @override
    def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        """Make the call, with the retries of its policy; a thread completes a call made with `.future()`."""
        retried_call = RetriedCall(
            *(self._policies, self._budget, client_call_details.method, client_call_details.timeout),
            *(self._clock, self._chance),
        )

        def attempt() -> Any:
            timeout = retried_call.start()
            metadata = retried_call.metadata(client_call_details.metadata)
            return continuation(_CallDetails.copy_of(client_call_details, timeout, metadata), request)

        outcome = attempt()
        # Only .future() returns before the attempt has ended: then a thread must wait for it.
        if not outcome.done():
            return RetriedFuture(retried_call, attempt, outcome, self._clock)
        while True:
            decision, retry_at = judge(retried_call, outcome)
            if isinstance(decision, DeadlineExceeded):
                return TimedOutCall(decision.details, outcome)
            if not isinstance(decision, RetryAfter):
                return outcome
            while (remaining := retry_at - self._clock()) > 0:
                self._sleep(remaining)
            outcome = attempt()


@dataclass(frozen=True)
class _CallDetails(grpc.ClientCallDetails):
    """Call details; grpc's own are an abstract class and a private tuple."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None

    @classmethod
    def copy_of(cls, details: Any, timeout: float | None, metadata: Any) -> _CallDetails:
        return cls(
            details.method,
            timeout,
            metadata,
            # Details of other interceptors may lack these.
            getattr(details, "credentials", None),
            getattr(details, "wait_for_ready", None),
            getattr(details, "compression", None),
        )
