"""Futures of retried calls of grpc's blocking API."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest

from fleet.protocol.retry.policy import RetryPolicy, RetryReason
from fleet.transport.channels import channel_options
from fleet.transport.retry.blocking import BlockingRetryInterceptor
from fleet.transport.retry.futures import TimedOutCall
from tests.fakes.failing import UNARY, FailingBackend, failure_metadata
from tests.fakes.waiting import eventually

ALL = frozenset(RetryReason)


@pytest.fixture
async def backend() -> AsyncIterator[FailingBackend]:
    """A backend that runs in the loop; blocking calls run in threads."""
    backend = await FailingBackend().start()
    yield backend
    await backend.stop()


@pytest.fixture
def channel(backend: FailingBackend) -> Iterator[grpc.Channel]:
    """A channel without interceptors."""
    with grpc.insecure_channel(backend.address, options=channel_options()) as channel:
        yield channel


def start_future(channel: grpc.Channel, instructions: Any, policy: RetryPolicy, **options: Any) -> Any:
    retrying_channel = grpc.intercept_channel(channel, BlockingRetryInterceptor(policy))
    return retrying_channel.unary_unary(UNARY).future(b"x", metadata=instructions, **options)


async def test_future_of_a_retried_call(backend: FailingBackend, channel: grpc.Channel) -> None:
    """It is returned at once, and has the response of the successful attempt."""
    instructions = failure_metadata(code="UNAVAILABLE", succeed_after=2)
    future = start_future(channel, instructions, RetryPolicy(attempts=2))
    completed_futures: list[Any] = []
    future.add_done_callback(completed_futures.append)

    assert await asyncio.to_thread(future.result, 60) == b"x"
    assert future.code() is grpc.StatusCode.OK
    assert future.done()
    assert not future.running()
    assert not future.cancelled()
    assert not future.cancel()
    assert future.exception() is None
    assert backend.count(instructions) == 3
    await eventually(lambda: completed_futures == [future])


async def test_future_of_a_failed_call(channel: grpc.Channel) -> None:
    future = start_future(channel, failure_metadata(code="INTERNAL"), RetryPolicy(ALL, attempts=2))

    error = await asyncio.to_thread(future.exception, 60)
    assert error.code() is future.code() is grpc.StatusCode.INTERNAL
    assert future.details() == "as I was told"
    with pytest.raises(grpc.RpcError):
        future.result()


async def test_future_of_a_timed_out_call(channel: grpc.Channel) -> None:
    future = start_future(
        channel, failure_metadata(code="INTERNAL"), RetryPolicy(ALL, attempts=2, backoff=60.0), timeout=30.0
    )

    error = await asyncio.to_thread(future.exception, 60)
    assert isinstance(error, TimedOutCall)
    assert str(error).startswith(
        "DEADLINE_EXCEEDED: the caller's deadline of 30 s would expire before the next"
    )


async def test_cancel_during_an_attempt(backend: FailingBackend, channel: grpc.Channel) -> None:
    """The attempt ends and none follows, although `cancelled` is a reason."""
    instructions = failure_metadata(hang=True)
    future = start_future(channel, instructions, RetryPolicy(ALL, attempts=1000))
    await eventually(lambda: backend.count(instructions) == 1)
    with pytest.raises(grpc.FutureTimeoutError):
        future.result(timeout=0)

    assert future.cancel()
    assert future.cancelled()
    assert future.code() is grpc.StatusCode.CANCELLED
    with pytest.raises(grpc.FutureCancelledError):
        future.result()
    await eventually(lambda: backend.given_up == [instructions[0][1]])
    assert backend.count(instructions) == 1


async def test_cancel_during_a_wait(backend: FailingBackend, channel: grpc.Channel) -> None:
    """No other attempt is sent, and no thread waits."""
    instructions = failure_metadata(code="INTERNAL")
    future = start_future(channel, instructions, RetryPolicy(ALL, attempts=1000, backoff=3600.0))
    callbacks: list[Any] = []
    future.add_callback(lambda: callbacks.append(True))
    await eventually(lambda: backend.count(instructions) == 1)
    await eventually(lambda: future._current_call.done())

    assert future.cancel()
    await eventually(lambda: callbacks == [True])
    assert backend.count(instructions) == 1


async def test_channel_closes_during_an_attempt(backend: FailingBackend, channel: grpc.Channel) -> None:
    """The call is not retried, although `cancelled` is a reason."""
    instructions = failure_metadata(hang=True)
    future = start_future(channel, instructions, RetryPolicy(ALL, attempts=1000))
    await eventually(lambda: backend.count(instructions) == 1)
    channel.close()

    error = await asyncio.to_thread(future.exception, 60)
    assert error.code() is grpc.StatusCode.CANCELLED


async def test_channel_closes_during_a_wait(channel: grpc.Channel) -> None:
    """The call ends with its last error; the clock stands still until then."""
    is_closed = threading.Event()
    interceptor = BlockingRetryInterceptor(
        RetryPolicy(ALL, attempts=1000, backoff=1.0),
        clock=lambda: time.monotonic() + 1e3 if is_closed.is_set() else 0.0,
    )
    retrying_channel = grpc.intercept_channel(channel, interceptor)
    future = retrying_channel.unary_unary(UNARY).future(b"x", metadata=failure_metadata(code="INTERNAL"))
    await eventually(lambda: future._current_call.done())
    channel.close()
    is_closed.set()

    error = await asyncio.to_thread(future.exception, 60)
    assert error.code() is grpc.StatusCode.INTERNAL
