"""Unary calls of grpc.aio are retried by policy, over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
import grpc.aio
import pytest
from typing_extensions import override

from fleet.protocol.retry.budget import BudgetSettings
from fleet.protocol.retry.policy import NO_RETRY, RetryPolicy, RetryReason
from fleet.transport.channels import channel_options
from fleet.transport.retry.aio import RetryInterceptor
from fleet.transport.retry.retried_call import SharedBudget
from tests.fakes.failing import STREAM, UNARY, FailingBackend, told
from tests.fakes.skipping import SkippingClock
from tests.fakes.waiting import eventually

ALL = frozenset(RetryReason)
Opener = Callable[..., Any]


@pytest.fixture
async def backend() -> AsyncIterator[FailingBackend]:
    """One that answers."""
    backend = await FailingBackend().start()
    yield backend
    await backend.stop()


@pytest.fixture
def clock() -> SkippingClock:
    """Nobody waits."""
    return SkippingClock()


@pytest.fixture
async def opened(backend: FailingBackend, clock: SkippingClock) -> AsyncIterator[Opener]:
    """Opens a channel with a policy; gives it."""
    async with AsyncExitStack() as stack:

        async def open_one(
            policies: Any, *inner: grpc.aio.ClientInterceptor, options: Any = (), **settings: Any
        ) -> Any:
            retrying = RetryInterceptor(policies, clock=clock.now, sleep=clock.sleep_async, **settings)
            return await stack.enter_async_context(
                grpc.aio.insecure_channel(
                    backend.address,
                    options=[*channel_options(), *options],
                    interceptors=[retrying, *inner],
                )
            )

        yield open_one


async def status(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is await call.code()
    return caught.value.code()


@pytest.mark.parametrize("reason", RetryReason)
async def test_listed_code_is_retried(
    reason: RetryReason, backend: FailingBackend, opened: Opener, clock: SkippingClock
) -> None:
    """Two failures, then success: three tries, two waits that grow."""
    began = clock.now()
    channel = await opened(RetryPolicy(frozenset({reason}), attempts=3, backoff=5.0))
    how = told(code=reason.name, succeed_after=2)

    assert await channel.unary_unary(UNARY)(b"x", metadata=how) == b"x"
    assert backend.count(how) == 3
    assert len(clock.waits) == 2
    assert clock.now() - began >= 5.0 + 10.0


async def test_retries_say_so(backend: FailingBackend, opened: Opener) -> None:
    """How many tries were before; gRPC's own retries would take it out."""
    channel = await opened(RetryPolicy(attempts=2), options=[("grpc.enable_retries", 0)])
    how = told(code="UNAVAILABLE", succeed_after=2)
    await channel.unary_unary(UNARY)(b"x", metadata=how)

    assert backend.tries[how[0][1]] == [None, "1", "2"]


async def test_unlisted_code_is_not_retried(backend: FailingBackend, opened: Opener) -> None:
    """One try, and its own error."""
    channel = await opened(RetryPolicy(frozenset({RetryReason.INTERNAL}), attempts=3))
    how = told(code="UNAVAILABLE", succeed_after=1)

    assert await status(channel.unary_unary(UNARY)(b"", metadata=how)) is grpc.StatusCode.UNAVAILABLE
    assert backend.count(how) == 1


async def test_tries_are_used_up(backend: FailingBackend, opened: Opener) -> None:
    """The caller gets the last error as it came."""
    channel = await opened(RetryPolicy(ALL, attempts=2))
    how = told(code="RESOURCE_EXHAUSTED", succeed_after=3)
    call = channel.unary_unary(UNARY)(b"", metadata=how)

    assert await status(call) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await call.details() == "as I was told"
    assert backend.count(how) == 3


async def test_policy_by_method(backend: FailingBackend, opened: Opener) -> None:
    """A route knows one for each."""
    asked: list[str] = []
    channel = await opened(lambda path: asked.append(path) or NO_RETRY)
    how = told(code="UNAVAILABLE", succeed_after=1)

    assert await status(channel.unary_unary(UNARY)(b"", metadata=how)) is grpc.StatusCode.UNAVAILABLE
    assert asked == [UNARY]


async def test_timeout_of_a_try(backend: FailingBackend, opened: Opener) -> None:
    """Tries that hang are given up and made again."""
    channel = await opened(RetryPolicy(attempts=50, backend_request=0.5))
    how = told(hang=True, succeed_after=2)

    assert await channel.unary_unary(UNARY)(b"x", metadata=how) == b"x"
    await eventually(lambda: len(backend.given_up) == 2)


async def test_timeout_of_the_request(backend: FailingBackend, opened: Opener) -> None:
    """It is over when it is over, however many tries are left; what failed before is said."""
    channel = await opened(RetryPolicy(ALL, attempts=1000, backoff=2.0, request=20.0))
    call = channel.unary_unary(UNARY)(b"", metadata=told(code="INTERNAL"))

    assert await status(call) is grpc.StatusCode.DEADLINE_EXCEEDED
    assert (await call.details()).endswith("failed with INTERNAL: as I was told")


async def test_deadline_of_the_caller(backend: FailingBackend, opened: Opener) -> None:
    """No wait that would pass it is begun."""
    channel = await opened(RetryPolicy(ALL, attempts=1000, backoff=30.0))
    how = told(code="UNAVAILABLE")
    call = channel.unary_unary(UNARY)(b"", timeout=20.0, metadata=how)

    assert await status(call) is grpc.StatusCode.DEADLINE_EXCEEDED
    assert backend.count(how) == 1


async def test_deadline_during_a_try(backend: FailingBackend, opened: Opener) -> None:
    """The try ends with it, and no other is made."""
    channel = await opened(RetryPolicy(ALL, attempts=1000))
    how = told(hang=True)
    call = channel.unary_unary(UNARY)(b"", timeout=0.5, metadata=how)

    assert await status(call) is grpc.StatusCode.DEADLINE_EXCEEDED
    assert backend.count(how) <= 1


async def test_cancel_during_a_try(backend: FailingBackend, opened: Opener) -> None:
    """The try is cancelled, and is not retried although `cancelled` is a reason."""
    channel = await opened(RetryPolicy(ALL, attempts=1000))
    how = told(hang=True)
    call = channel.unary_unary(UNARY)(b"", metadata=how)
    await eventually(lambda: backend.count(how) == 1)

    assert call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await eventually(lambda: backend.given_up == [how[0][1]])
    assert backend.count(how) == 1


async def test_task_is_cancelled_during_a_try(backend: FailingBackend, opened: Opener) -> None:
    """As above, by asyncio's own means."""
    channel = await opened(RetryPolicy(ALL, attempts=1000))
    how = told(hang=True)

    async def ask() -> None:
        await channel.unary_unary(UNARY)(b"", metadata=how)

    task = asyncio.create_task(ask())
    await eventually(lambda: backend.count(how) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: backend.given_up == [how[0][1]])


async def test_cancel_during_a_wait(backend: FailingBackend) -> None:
    """Nothing is sent any more."""
    waiting = asyncio.Event()

    async def forever(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    retrying = RetryInterceptor(RetryPolicy(ALL, attempts=1000), sleep=forever)
    async with grpc.aio.insecure_channel(backend.address, interceptors=[retrying]) as channel:
        how = told(code="INTERNAL")
        call = channel.unary_unary(UNARY)(b"", metadata=how)
        await waiting.wait()
        call.cancel()

        assert await call.code() is grpc.StatusCode.CANCELLED
        assert backend.count(how) == 1


async def test_channel_closes_during_a_try(backend: FailingBackend, opened: Opener) -> None:
    """The call ends with it."""
    channel = await opened(RetryPolicy(ALL, attempts=1000))
    how = told(hang=True)
    call = channel.unary_unary(UNARY)(b"", metadata=how)
    await eventually(lambda: backend.count(how) == 1)
    await channel.close()

    assert await call.code() is grpc.StatusCode.CANCELLED
    assert backend.count(how) == 1


async def test_waits_are_never_short(backend: FailingBackend) -> None:
    """Also if the loop's timer rings early: what is left is waited for."""
    clock = SkippingClock()

    async def half(seconds: float) -> None:
        clock.sleep(seconds / 2 if seconds > 1 else seconds)

    retrying = RetryInterceptor(
        RetryPolicy(attempts=1, backoff=8.0), clock=clock.now, sleep=half, chance=lambda: 0.0
    )
    async with grpc.aio.insecure_channel(backend.address, interceptors=[retrying]) as channel:
        how = told(code="UNAVAILABLE", succeed_after=1)
        await channel.unary_unary(UNARY)(b"", metadata=how)

    assert len(clock.waits) > 1


async def test_pushback(backend: FailingBackend, opened: Opener) -> None:
    """A server that wants no retry gets none."""
    channel = await opened(RetryPolicy(ALL, attempts=5))
    how = told(code="UNAVAILABLE", succeed_after=1, pushback="-1")

    assert await status(channel.unary_unary(UNARY)(b"", metadata=how)) is grpc.StatusCode.UNAVAILABLE
    assert backend.count(how) == 1


async def test_budget(backend: FailingBackend, opened: Opener) -> None:
    """Once it is spent, calls fail with their own error at once."""
    budget = SharedBudget(BudgetSettings(percent=0, min_retries=3, min_retries_interval=3600.0))
    channel = await opened(RetryPolicy(ALL, attempts=2), budget=budget)
    counts = []
    for _ in range(3):
        how = told(code="INTERNAL")
        assert await status(channel.unary_unary(UNARY)(b"", metadata=how)) is grpc.StatusCode.INTERNAL
        counts.append(backend.count(how))

    assert counts == [3, 2, 1]


async def test_streams_are_left_alone(backend: FailingBackend, opened: Opener) -> None:
    """One try, also without any answer yet."""
    channel = await opened(RetryPolicy(ALL, attempts=5))
    how = told(code="UNAVAILABLE", succeed_after=1)
    with pytest.raises(grpc.aio.AioRpcError):
        _ = [answer async for answer in channel.unary_stream(STREAM)(b"", metadata=how)]

    assert backend.count(how) == 1


async def test_dead_server(opened: Opener, backend: FailingBackend, clock: SkippingClock) -> None:
    """A connection that is refused is retried without any reason being listed."""
    channel = await opened(RetryPolicy(attempts=3, backoff=60.0))
    await backend.stop()

    assert await status(channel.unary_unary(UNARY)(b"", metadata=told())) is grpc.StatusCode.UNAVAILABLE
    assert len(clock.waits) == 3


class Raising(grpc.aio.UnaryUnaryClientInterceptor):
    """Raises what the wire would return, so many times."""

    def __init__(self, times: int) -> None:
        self.left = times

    @override
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        if self.left:
            self.left -= 1
            raise grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, details="raised")
        return await continuation(client_call_details, request)


@pytest.mark.parametrize(("times", "answered"), [(2, True), (9, False)])
async def test_interceptor_that_raises(times: int, answered: bool, opened: Opener) -> None:
    """Is retried like a server that fails."""
    channel = await opened(RetryPolicy(ALL, attempts=2), Raising(times))
    call = channel.unary_unary(UNARY)(b"x", metadata=told())

    if answered:
        assert await call == b"x"
    else:
        assert await status(call) is grpc.StatusCode.INTERNAL
