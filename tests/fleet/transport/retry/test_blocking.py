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
from tests.fakes.failing import STREAM, UNARY, FailingBackend, told
from tests.fakes.skipping import SkippingClock
from tests.fakes.waiting import eventually

ALL = frozenset(RetryReason)
Opener = Callable[..., grpc.Channel]


@pytest.fixture
async def backend() -> AsyncIterator[FailingBackend]:
    """One that answers; it has the loop, blocking calls have threads."""
    backend = await FailingBackend().start()
    yield backend
    await backend.stop()


@pytest.fixture
def clock() -> SkippingClock:
    """Nobody waits."""
    return SkippingClock()


@pytest.fixture
def opened(backend: FailingBackend, clock: SkippingClock) -> Iterator[Opener]:
    """Opens a channel with a policy."""
    with ExitStack() as stack:

        def open_one(policies: Any, options: Any = (), **settings: Any) -> grpc.Channel:
            channel = stack.enter_context(
                grpc.insecure_channel(backend.address, options=[*channel_options(), *options])
            )
            settings = {"clock": clock.now, "sleep": clock.sleep} | settings
            return grpc.intercept_channel(channel, BlockingRetryInterceptor(policies, **settings))

        yield open_one


async def failed(channel: grpc.Channel, how: Any, **more: Any) -> Any:
    """The error of a call."""
    with pytest.raises(grpc.RpcError) as caught:
        await asyncio.to_thread(channel.unary_unary(UNARY), b"", metadata=how, **more)
    return caught.value


@pytest.mark.parametrize("reason", RetryReason)
async def test_listed_code_is_retried(
    reason: RetryReason, backend: FailingBackend, opened: Opener, clock: SkippingClock
) -> None:
    """Two failures, then success: three tries, two waits that grow."""
    began = clock.now()
    channel = opened(RetryPolicy(frozenset({reason}), attempts=3, backoff=5.0))
    how = told(code=reason.name, succeed_after=2)

    assert await asyncio.to_thread(channel.unary_unary(UNARY), b"x", metadata=how) == b"x"
    assert backend.count(how) == 3
    assert len(clock.waits) == 2
    assert clock.now() - began >= 5.0 + 10.0


async def test_retries_say_so(backend: FailingBackend, opened: Opener) -> None:
    """How many tries were before; gRPC's own retries would take it out."""
    channel = opened(RetryPolicy(attempts=2), options=[("grpc.enable_retries", 0)])
    how = told(code="UNAVAILABLE", succeed_after=2)
    await asyncio.to_thread(channel.unary_unary(UNARY), b"x", metadata=how)

    assert backend.tries[how[0][1]] == [None, "1", "2"]


async def test_answer_with_its_call(opened: Opener) -> None:
    """It is the last try's."""
    channel = opened(RetryPolicy(attempts=1))
    how = told(code="UNAVAILABLE", succeed_after=1)
    answer, call = await asyncio.to_thread(channel.unary_unary(UNARY).with_call, b"x", metadata=how)

    assert (answer, call.code()) == (b"x", grpc.StatusCode.OK)


async def test_unlisted_code_is_not_retried(backend: FailingBackend, opened: Opener) -> None:
    """One try, and its own error."""
    how = told(code="UNAVAILABLE", succeed_after=1)
    error = await failed(opened(RetryPolicy(frozenset({RetryReason.INTERNAL}), attempts=3)), how)

    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert backend.count(how) == 1


async def test_tries_are_used_up(backend: FailingBackend, opened: Opener) -> None:
    """The caller gets the last error as it came."""
    how = told(code="RESOURCE_EXHAUSTED", succeed_after=3)
    error = await failed(opened(RetryPolicy(ALL, attempts=2)), how)

    assert (error.code(), error.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "as I was told")
    assert backend.count(how) == 3


async def test_timeout_of_a_try(backend: FailingBackend, opened: Opener) -> None:
    """Tries that hang are given up and made again."""
    channel = opened(RetryPolicy(attempts=50, backend_request=0.5))
    how = told(hang=True, succeed_after=2)

    assert await asyncio.to_thread(channel.unary_unary(UNARY), b"x", metadata=how) == b"x"
    await eventually(lambda: len(backend.given_up) == 2)


async def test_timeout_of_the_request(opened: Opener) -> None:
    """It is over when it is over, however many tries are left; what failed before is said."""
    channel = opened(RetryPolicy(ALL, attempts=1000, backoff=2.0, request=20.0))
    error = await failed(channel, told(code="INTERNAL"))

    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert error.details().endswith("failed with INTERNAL: as I was told")


async def test_deadline_of_the_caller(backend: FailingBackend, opened: Opener) -> None:
    """No wait that would pass it is begun."""
    how = told(code="UNAVAILABLE")
    error = await failed(opened(RetryPolicy(ALL, attempts=1000, backoff=30.0)), how, timeout=20.0)

    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert backend.count(how) == 1


async def test_mistake_of_the_program(opened: Opener, clock: SkippingClock) -> None:
    """A channel that is closed fails as without us, and is not taken for an internal error of a server."""
    channel = opened(RetryPolicy(ALL, attempts=5))
    ask = channel.unary_unary(UNARY)
    channel.close()
    with pytest.raises(ValueError, match="closed"):
        await asyncio.to_thread(ask, b"")

    assert not clock.waits


async def test_channel_closes_during_a_try(
    backend: FailingBackend, opened: Opener, clock: SkippingClock
) -> None:
    """That is no answer of a server, and is not retried although `cancelled` is a reason."""
    channel = opened(RetryPolicy(ALL, attempts=1000))
    how = told(hang=True)
    failing = asyncio.create_task(failed(channel, how))
    await eventually(lambda: backend.count(how) == 1)
    channel.close()

    assert (await failing).code() is grpc.StatusCode.CANCELLED
    assert not clock.waits


async def test_budget(backend: FailingBackend, opened: Opener) -> None:
    """Once it is spent, calls fail with their own error at once."""
    budget = SharedBudget(BudgetSettings(percent=0, min_retries=3, min_retries_interval=3600.0))
    channel = opened(RetryPolicy(ALL, attempts=2), budget=budget)
    counts = []
    for _ in range(3):
        how = told(code="INTERNAL")
        assert (await failed(channel, how)).code() is grpc.StatusCode.INTERNAL
        counts.append(backend.count(how))

    assert counts == [3, 2, 1]


async def test_streams_are_left_alone(backend: FailingBackend, opened: Opener) -> None:
    """One try."""
    channel = opened(RetryPolicy(ALL, attempts=5))
    how = told(code="UNAVAILABLE", succeed_after=1)
    with pytest.raises(grpc.RpcError):
        await asyncio.to_thread(lambda: list(channel.unary_stream(STREAM)(b"", metadata=how)))

    assert backend.count(how) == 1
