"""Unary calls of grpc's blocking API are retried by policy, over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest

from fleet.protocol.retry.budget import BudgetSettings
from fleet.protocol.retry.policy import RetryPolicy, RetryReason
from fleet.transport.channels import channel_options
from fleet.transport.retry.blocking import BlockingRetryInterceptor
from fleet.transport.retry.retried_call import SharedBudget
from tests.fakes.failing import STREAM, UNARY, FailingBackend, failure_metadata
from tests.fakes.skipping import SkippingClock
from tests.fakes.waiting import eventually

ALL = frozenset(RetryReason)
Opener = Callable[..., grpc.Channel]


@pytest.fixture
async def backend() -> AsyncIterator[FailingBackend]:
    """A backend that runs in the loop; blocking calls run in threads."""
    backend = await FailingBackend().start()
    yield backend
    await backend.stop()


@pytest.fixture
def clock() -> SkippingClock:
    """A clock that skips waits."""
    return SkippingClock()


@pytest.fixture
def open_retrying(backend: FailingBackend, clock: SkippingClock) -> Iterator[Opener]:
    """Return a function that opens a channel with a retry policy."""
    with ExitStack() as stack:

        def open_channel(policies: Any, options: Any = (), **settings: Any) -> grpc.Channel:
            channel = stack.enter_context(
                grpc.insecure_channel(backend.address, options=[*channel_options(), *options])
            )
            settings = {"clock": clock.now, "sleep": clock.sleep} | settings
            return grpc.intercept_channel(channel, BlockingRetryInterceptor(policies, **settings))

        yield open_channel


async def error_of_call(channel: grpc.Channel, instructions: Any, **options: Any) -> Any:
    """Return the error of a call."""
    with pytest.raises(grpc.RpcError) as caught:
        await asyncio.to_thread(channel.unary_unary(UNARY), b"", metadata=instructions, **options)
    return caught.value


@pytest.mark.parametrize("reason", RetryReason)
async def test_listed_code_is_retried(
    reason: RetryReason, backend: FailingBackend, open_retrying: Opener, clock: SkippingClock
) -> None:
    """Two failures, then success: three attempts and two growing waits."""
    started_at = clock.now()
    channel = open_retrying(RetryPolicy(frozenset({reason}), attempts=3, backoff=5.0))
    instructions = failure_metadata(code=reason.name, succeed_after=2)

    assert await asyncio.to_thread(channel.unary_unary(UNARY), b"x", metadata=instructions) == b"x"
    assert backend.count(instructions) == 3
    assert len(clock.waits) == 2
    assert clock.now() - started_at >= 5.0 + 10.0


async def test_retries_have_the_number_of_previous_attempts(
    backend: FailingBackend, open_retrying: Opener
) -> None:
    """gRPC's own retries would remove the metadata."""
    channel = open_retrying(RetryPolicy(attempts=2), options=[("grpc.enable_retries", 0)])
    instructions = failure_metadata(code="UNAVAILABLE", succeed_after=2)
    await asyncio.to_thread(channel.unary_unary(UNARY), b"x", metadata=instructions)

    assert backend.tries[instructions[0][1]] == [None, "1", "2"]


async def test_with_call_returns_the_last_attempt(open_retrying: Opener) -> None:
    channel = open_retrying(RetryPolicy(attempts=1))
    instructions = failure_metadata(code="UNAVAILABLE", succeed_after=1)
    response, call = await asyncio.to_thread(
        channel.unary_unary(UNARY).with_call, b"x", metadata=instructions
    )

    assert (response, call.code()) == (b"x", grpc.StatusCode.OK)


async def test_unlisted_code_is_not_retried(backend: FailingBackend, open_retrying: Opener) -> None:
    """There is one attempt, and its own error."""
    instructions = failure_metadata(code="UNAVAILABLE", succeed_after=1)
    error = await error_of_call(
        open_retrying(RetryPolicy(frozenset({RetryReason.INTERNAL}), attempts=3)), instructions
    )

    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert backend.count(instructions) == 1


async def test_last_error_is_returned(backend: FailingBackend, open_retrying: Opener) -> None:
    """The caller gets it unchanged."""
    instructions = failure_metadata(code="RESOURCE_EXHAUSTED", succeed_after=3)
    error = await error_of_call(open_retrying(RetryPolicy(ALL, attempts=2)), instructions)

    assert (error.code(), error.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "as I was told")
    assert backend.count(instructions) == 3


async def test_attempt_timeout(backend: FailingBackend, open_retrying: Opener) -> None:
    """Attempts that hang are cancelled and repeated."""
    channel = open_retrying(RetryPolicy(attempts=50, backend_request=0.5))
    instructions = failure_metadata(hang=True, succeed_after=2)

    assert await asyncio.to_thread(channel.unary_unary(UNARY), b"x", metadata=instructions) == b"x"
    await eventually(lambda: len(backend.given_up) == 2)


async def test_request_timeout(open_retrying: Opener) -> None:
    """It ends the call, however many attempts are left; the error has the last failure."""
    channel = open_retrying(RetryPolicy(ALL, attempts=1000, backoff=2.0, request=20.0))
    error = await error_of_call(channel, failure_metadata(code="INTERNAL"))

    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert error.details().endswith("failed with INTERNAL: as I was told")


async def test_callers_deadline_prevents_longer_waits(backend: FailingBackend, open_retrying: Opener) -> None:
    instructions = failure_metadata(code="UNAVAILABLE")
    error = await error_of_call(
        open_retrying(RetryPolicy(ALL, attempts=1000, backoff=30.0)), instructions, timeout=20.0
    )

    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert backend.count(instructions) == 1


async def test_closed_channel_raises_without_retry(open_retrying: Opener, clock: SkippingClock) -> None:
    """It does not count as an internal error of a server."""
    channel = open_retrying(RetryPolicy(ALL, attempts=5))
    send_request = channel.unary_unary(UNARY)
    channel.close()
    with pytest.raises(ValueError, match="closed"):
        await asyncio.to_thread(send_request, b"")

    assert not clock.waits


async def test_channel_closes_during_an_attempt(
    backend: FailingBackend, open_retrying: Opener, clock: SkippingClock
) -> None:
    """The call is not retried, although `cancelled` is a reason."""
    channel = open_retrying(RetryPolicy(ALL, attempts=1000))
    instructions = failure_metadata(hang=True)
    error_task = asyncio.create_task(error_of_call(channel, instructions))
    await eventually(lambda: backend.count(instructions) == 1)
    channel.close()

    assert (await error_task).code() is grpc.StatusCode.CANCELLED
    assert not clock.waits


async def test_budget(backend: FailingBackend, open_retrying: Opener) -> None:
    """Once it is spent, calls fail with their own error at once."""
    budget = SharedBudget(BudgetSettings(percent=0, min_retries=3, min_retries_interval=3600.0))
    channel = open_retrying(RetryPolicy(ALL, attempts=2), budget=budget)
    counts = []
    for _ in range(3):
        instructions = failure_metadata(code="INTERNAL")
        assert (await error_of_call(channel, instructions)).code() is grpc.StatusCode.INTERNAL
        counts.append(backend.count(instructions))

    assert counts == [3, 2, 1]


async def test_streams_are_not_retried(backend: FailingBackend, open_retrying: Opener) -> None:
    channel = open_retrying(RetryPolicy(ALL, attempts=5))
    instructions = failure_metadata(code="UNAVAILABLE", succeed_after=1)
    with pytest.raises(grpc.RpcError):
        await asyncio.to_thread(lambda: list(channel.unary_stream(STREAM)(b"", metadata=instructions)))

    assert backend.count(instructions) == 1
