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
from tests.fakes.failing import UNARY, FailingBackend, told
from tests.fakes.waiting import eventually

ALL = frozenset(RetryReason)


@pytest.fixture
async def backend() -> AsyncIterator[FailingBackend]:
    """One that answers; it has the loop, blocking calls have threads."""
    backend = await FailingBackend().start()
    yield backend
    await backend.stop()


@pytest.fixture
def channel(backend: FailingBackend) -> Iterator[grpc.Channel]:
    """Of a program that uses futures."""
    with grpc.insecure_channel(backend.address, options=channel_options()) as channel:
        yield channel


def begin(channel: grpc.Channel, how: Any, policy: RetryPolicy, **more: Any) -> Any:
    retried = grpc.intercept_channel(channel, BlockingRetryInterceptor(policy))
    return retried.unary_unary(UNARY).future(b"x", metadata=how, **more)


async def test_future_of_a_retried_call(backend: FailingBackend, channel: grpc.Channel) -> None:
    """It is given at once, and has the answer of the try that succeeded."""
    how = told(code="UNAVAILABLE", succeed_after=2)
    future = begin(channel, how, RetryPolicy(attempts=2))
    done: list[Any] = []
    future.add_done_callback(done.append)

    assert await asyncio.to_thread(future.result, 60) == b"x"
    assert future.code() is grpc.StatusCode.OK
    assert future.done()
    assert not future.running()
    assert not future.cancelled()
    assert not future.cancel()
    assert future.exception() is None
    assert backend.count(how) == 3
    await eventually(lambda: done == [future])


async def test_future_of_a_call_that_fails(channel: grpc.Channel) -> None:
    """It has the last error."""
    future = begin(channel, told(code="INTERNAL"), RetryPolicy(ALL, attempts=2))

    error = await asyncio.to_thread(future.exception, 60)
    assert error.code() is future.code() is grpc.StatusCode.INTERNAL
    assert future.details() == "as I was told"
    with pytest.raises(grpc.RpcError):
        future.result()


async def test_future_out_of_time(channel: grpc.Channel) -> None:
    """It has the timeout."""
    future = begin(channel, told(code="INTERNAL"), RetryPolicy(ALL, attempts=2, backoff=60.0), timeout=30.0)

    error = await asyncio.to_thread(future.exception, 60)
    assert isinstance(error, TimedOutCall)
    assert str(error).startswith(
        "DEADLINE_EXCEEDED: the caller's deadline of 30 s would expire before the next"
    )


async def test_cancel_during_a_try(backend: FailingBackend, channel: grpc.Channel) -> None:
    """The try ends, and there is no other, although `cancelled` is a reason."""
    how = told(hang=True)
    future = begin(channel, how, RetryPolicy(ALL, attempts=1000))
    await eventually(lambda: backend.count(how) == 1)
    with pytest.raises(grpc.FutureTimeoutError):
        future.result(timeout=0)

    assert future.cancel()
    assert future.cancelled()
    assert future.code() is grpc.StatusCode.CANCELLED
    with pytest.raises(grpc.FutureCancelledError):
        future.result()
    await eventually(lambda: backend.given_up == [how[0][1]])
    assert backend.count(how) == 1


async def test_cancel_during_a_wait(backend: FailingBackend, channel: grpc.Channel) -> None:
    """Nothing is sent any more, and nobody waits."""
    how = told(code="INTERNAL")
    future = begin(channel, how, RetryPolicy(ALL, attempts=1000, backoff=3600.0))
    ended: list[Any] = []
    future.add_callback(lambda: ended.append(True))
    await eventually(lambda: backend.count(how) == 1)
    await eventually(lambda: future._current.done())

    assert future.cancel()
    await eventually(lambda: ended == [True])
    assert backend.count(how) == 1


async def test_channel_closes_during_a_try(backend: FailingBackend, channel: grpc.Channel) -> None:
    """That is no answer of a server, and is not retried although `cancelled` is a reason."""
    how = told(hang=True)
    future = begin(channel, how, RetryPolicy(ALL, attempts=1000))
    await eventually(lambda: backend.count(how) == 1)
    channel.close()

    error = await asyncio.to_thread(future.exception, 60)
    assert error.code() is grpc.StatusCode.CANCELLED


async def test_channel_closes_during_a_wait(channel: grpc.Channel) -> None:
    """The call ends with the error that it got last; time stands still until then."""
    closed = threading.Event()
    retrying = BlockingRetryInterceptor(
        RetryPolicy(ALL, attempts=1000, backoff=1.0),
        clock=lambda: time.monotonic() + 1e3 if closed.is_set() else 0.0,
    )
    retried = grpc.intercept_channel(channel, retrying)
    future = retried.unary_unary(UNARY).future(b"x", metadata=told(code="INTERNAL"))
    await eventually(lambda: future._current.done())
    channel.close()
    closed.set()

    error = await asyncio.to_thread(future.exception, 60)
    assert error.code() is grpc.StatusCode.INTERNAL
