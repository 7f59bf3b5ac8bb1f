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
from fleet.transport.retry.aio import RetriedMethod, RetryInterceptor
from fleet.transport.retry.retried_call import SharedBudget
from tests.fakes.failing import STREAM, UNARY, FailingBackend, failure_metadata
from tests.fakes.skipping import SkippingClock
from tests.fakes.waiting import eventually

ALL = frozenset(RetryReason)
Opener = Callable[..., Any]


@pytest.fixture
async def backend() -> AsyncIterator[FailingBackend]:
    """A backend that runs."""
    backend = await FailingBackend().start()
    yield backend
    await backend.stop()


@pytest.fixture
def clock() -> SkippingClock:
    """A clock that skips waits."""
    return SkippingClock()


@pytest.fixture
async def open_retrying(backend: FailingBackend, clock: SkippingClock) -> AsyncIterator[Opener]:
    """Return a function that opens a channel with a retry policy."""
    async with AsyncExitStack() as stack:

        async def open_channel(
            policies: Any, *inner_interceptors: grpc.aio.ClientInterceptor, options: Any = (), **settings: Any
        ) -> Any:
            interceptor = RetryInterceptor(policies, clock=clock.now, sleep=clock.sleep_async, **settings)
            return await stack.enter_async_context(
                grpc.aio.insecure_channel(
                    backend.address,
                    options=[*channel_options(), *options],
                    interceptors=[interceptor, *inner_interceptors],
                )
            )

        yield open_channel


async def status_of(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is await call.code()
    return caught.value.code()


@pytest.mark.parametrize("reason", RetryReason)
async def test_listed_code_is_retried(
    reason: RetryReason, backend: FailingBackend, open_retrying: Opener, clock: SkippingClock
) -> None:
    """Two failures, then success: three attempts and two growing waits."""
    started_at = clock.now()
    channel = await open_retrying(RetryPolicy(frozenset({reason}), attempts=3, backoff=5.0))
    instructions = failure_metadata(code=reason.name, succeed_after=2)

    assert await channel.unary_unary(UNARY)(b"x", metadata=instructions) == b"x"
    assert backend.count(instructions) == 3
    assert len(clock.waits) == 2
    assert clock.now() - started_at >= 5.0 + 10.0


async def test_retries_have_the_number_of_previous_attempts(
    backend: FailingBackend, open_retrying: Opener
) -> None:
    """gRPC's own retries would remove the metadata."""
    channel = await open_retrying(RetryPolicy(attempts=2), options=[("grpc.enable_retries", 0)])
    instructions = failure_metadata(code="UNAVAILABLE", succeed_after=2)
    await channel.unary_unary(UNARY)(b"x", metadata=instructions)

    assert backend.tries[instructions[0][1]] == [None, "1", "2"]


async def test_unlisted_code_is_not_retried(backend: FailingBackend, open_retrying: Opener) -> None:
    """There is one attempt, and its own error."""
    channel = await open_retrying(RetryPolicy(frozenset({RetryReason.INTERNAL}), attempts=3))
    instructions = failure_metadata(code="UNAVAILABLE", succeed_after=1)

    assert (
        await status_of(channel.unary_unary(UNARY)(b"", metadata=instructions)) is grpc.StatusCode.UNAVAILABLE
    )
    assert backend.count(instructions) == 1


async def test_last_error_is_returned(backend: FailingBackend, open_retrying: Opener) -> None:
    """The caller gets it unchanged."""
    channel = await open_retrying(RetryPolicy(ALL, attempts=2))
    instructions = failure_metadata(code="RESOURCE_EXHAUSTED", succeed_after=3)
    call = channel.unary_unary(UNARY)(b"", metadata=instructions)

    assert await status_of(call) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await call.details() == "as I was told"
    assert backend.count(instructions) == 3


async def test_policy_is_chosen_by_method(backend: FailingBackend, open_retrying: Opener) -> None:
    methods: list[str] = []
    channel = await open_retrying(lambda path: methods.append(path) or NO_RETRY)
    instructions = failure_metadata(code="UNAVAILABLE", succeed_after=1)

    assert (
        await status_of(channel.unary_unary(UNARY)(b"", metadata=instructions)) is grpc.StatusCode.UNAVAILABLE
    )
    assert methods == [UNARY]


async def test_attempt_timeout(backend: FailingBackend, open_retrying: Opener) -> None:
    """Attempts that hang are cancelled and repeated."""
    channel = await open_retrying(RetryPolicy(attempts=50, backend_request=0.5))
    instructions = failure_metadata(hang=True, succeed_after=2)

    assert await channel.unary_unary(UNARY)(b"x", metadata=instructions) == b"x"
    await eventually(lambda: len(backend.given_up) == 2)


async def test_request_timeout(backend: FailingBackend, open_retrying: Opener) -> None:
    """It ends the call, however many attempts are left; the error has the last failure."""
    channel = await open_retrying(RetryPolicy(ALL, attempts=1000, backoff=2.0, request=20.0))
    call = channel.unary_unary(UNARY)(b"", metadata=failure_metadata(code="INTERNAL"))

    assert await status_of(call) is grpc.StatusCode.DEADLINE_EXCEEDED
    assert (await call.details()).endswith("failed with INTERNAL: as I was told")


async def test_callers_deadline_prevents_longer_waits(backend: FailingBackend, open_retrying: Opener) -> None:
    channel = await open_retrying(RetryPolicy(ALL, attempts=1000, backoff=30.0))
    instructions = failure_metadata(code="UNAVAILABLE")
    call = channel.unary_unary(UNARY)(b"", timeout=20.0, metadata=instructions)

    assert await status_of(call) is grpc.StatusCode.DEADLINE_EXCEEDED
    assert backend.count(instructions) == 1


async def test_callers_deadline_during_an_attempt(backend: FailingBackend, open_retrying: Opener) -> None:
    """The attempt ends, and none follows."""
    channel = await open_retrying(RetryPolicy(ALL, attempts=1000))
    instructions = failure_metadata(hang=True)
    call = channel.unary_unary(UNARY)(b"", timeout=0.5, metadata=instructions)

    assert await status_of(call) is grpc.StatusCode.DEADLINE_EXCEEDED
    assert backend.count(instructions) <= 1


async def test_cancel_during_an_attempt(backend: FailingBackend, open_retrying: Opener) -> None:
    """The attempt is cancelled and not retried, although `cancelled` is a reason."""
    channel = await open_retrying(RetryPolicy(ALL, attempts=1000))
    instructions = failure_metadata(hang=True)
    call = channel.unary_unary(UNARY)(b"", metadata=instructions)
    await eventually(lambda: backend.count(instructions) == 1)

    assert call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await eventually(lambda: backend.given_up == [instructions[0][1]])
    assert backend.count(instructions) == 1


async def test_task_is_cancelled_during_an_attempt(backend: FailingBackend, open_retrying: Opener) -> None:
    """The same through asyncio."""
    channel = await open_retrying(RetryPolicy(ALL, attempts=1000))
    instructions = failure_metadata(hang=True)

    async def send_request() -> None:
        await channel.unary_unary(UNARY)(b"", metadata=instructions)

    task = asyncio.create_task(send_request())
    await eventually(lambda: backend.count(instructions) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: backend.given_up == [instructions[0][1]])


async def test_cancel_during_a_wait(backend: FailingBackend) -> None:
    """No other attempt is sent."""
    is_waiting = asyncio.Event()

    async def wait_for_ever(seconds: float) -> None:
        is_waiting.set()
        await asyncio.Event().wait()

    interceptor = RetryInterceptor(RetryPolicy(ALL, attempts=1000), sleep=wait_for_ever)
    async with grpc.aio.insecure_channel(backend.address, interceptors=[interceptor]) as channel:
        instructions = failure_metadata(code="INTERNAL")
        call = channel.unary_unary(UNARY)(b"", metadata=instructions)
        await is_waiting.wait()
        call.cancel()

        assert await call.code() is grpc.StatusCode.CANCELLED
        assert backend.count(instructions) == 1


async def test_channel_closes_during_an_attempt(backend: FailingBackend, open_retrying: Opener) -> None:
    channel = await open_retrying(RetryPolicy(ALL, attempts=1000))
    instructions = failure_metadata(hang=True)
    call = channel.unary_unary(UNARY)(b"", metadata=instructions)
    await eventually(lambda: backend.count(instructions) == 1)
    await channel.close()

    assert await call.code() is grpc.StatusCode.CANCELLED
    assert backend.count(instructions) == 1


async def test_waits_are_never_shorter_than_the_backoff(backend: FailingBackend) -> None:
    """If the loop's timer fires early, the rest is waited for."""
    clock = SkippingClock()

    async def sleep_half(seconds: float) -> None:
        clock.sleep(seconds / 2 if seconds > 1 else seconds)

    interceptor = RetryInterceptor(
        RetryPolicy(attempts=1, backoff=8.0), clock=clock.now, sleep=sleep_half, chance=lambda: 0.0
    )
    async with grpc.aio.insecure_channel(backend.address, interceptors=[interceptor]) as channel:
        instructions = failure_metadata(code="UNAVAILABLE", succeed_after=1)
        await channel.unary_unary(UNARY)(b"", metadata=instructions)

    assert len(clock.waits) > 1


async def test_pushback(backend: FailingBackend, open_retrying: Opener) -> None:
    """A server that asks for no retry gets none."""
    channel = await open_retrying(RetryPolicy(ALL, attempts=5))
    instructions = failure_metadata(code="UNAVAILABLE", succeed_after=1, pushback="-1")

    assert (
        await status_of(channel.unary_unary(UNARY)(b"", metadata=instructions)) is grpc.StatusCode.UNAVAILABLE
    )
    assert backend.count(instructions) == 1


async def test_budget(backend: FailingBackend, open_retrying: Opener) -> None:
    """Once it is spent, calls fail with their own error at once."""
    budget = SharedBudget(BudgetSettings(percent=0, min_retries=3, min_retries_interval=3600.0))
    channel = await open_retrying(RetryPolicy(ALL, attempts=2), budget=budget)
    counts = []
    for _ in range(3):
        instructions = failure_metadata(code="INTERNAL")
        assert (
            await status_of(channel.unary_unary(UNARY)(b"", metadata=instructions))
            is grpc.StatusCode.INTERNAL
        )
        counts.append(backend.count(instructions))

    assert counts == [3, 2, 1]


async def test_streams_are_not_retried(backend: FailingBackend, open_retrying: Opener) -> None:
    """That holds even before the first response."""
    channel = await open_retrying(RetryPolicy(ALL, attempts=5))
    instructions = failure_metadata(code="UNAVAILABLE", succeed_after=1)
    with pytest.raises(grpc.aio.AioRpcError):
        _ = [response async for response in channel.unary_stream(STREAM)(b"", metadata=instructions)]

    assert backend.count(instructions) == 1


async def test_refused_connection_is_retried(
    open_retrying: Opener, backend: FailingBackend, clock: SkippingClock
) -> None:
    """No reason needs to be listed for it."""
    channel = await open_retrying(RetryPolicy(attempts=3, backoff=60.0))
    await backend.stop()

    assert (
        await status_of(channel.unary_unary(UNARY)(b"", metadata=failure_metadata()))
        is grpc.StatusCode.UNAVAILABLE
    )
    assert len(clock.waits) == 3


class RaisingInterceptor(grpc.aio.UnaryUnaryClientInterceptor):
    """Raises the error that a server would return, a number of times."""

    def __init__(self, times: int) -> None:
        self.remaining_count = times

    @override
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        if self.remaining_count:
            self.remaining_count -= 1
            raise grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, details="raised")
        return await continuation(client_call_details, request)


@pytest.mark.parametrize(("times", "is_successful"), [(2, True), (9, False)])
async def test_error_of_an_interceptor_is_retried(
    times: int, is_successful: bool, open_retrying: Opener
) -> None:
    """It is treated like an error of the server."""
    channel = await open_retrying(RetryPolicy(ALL, attempts=2), RaisingInterceptor(times))
    call = channel.unary_unary(UNARY)(b"x", metadata=failure_metadata())

    if is_successful:
        assert await call == b"x"
    else:
        assert await status_of(call) is grpc.StatusCode.INTERNAL


async def test_retried_method_without_interceptor(backend: FailingBackend, clock: SkippingClock) -> None:
    """It returns the response of the last try, within one deadline, and raises the last error unchanged."""
    async with grpc.aio.insecure_channel(
        backend.address, options=[*channel_options(), ("grpc.enable_retries", 0)]
    ) as channel:
        method = RetriedMethod(
            channel.unary_unary(UNARY),
            RetryPolicy(ALL, attempts=2, backoff=5.0),
            clock=clock.now,
            sleep=clock.sleep_async,
        )
        instructions = failure_metadata(code="UNAVAILABLE", succeed_after=2)
        assert await method(b"x", metadata=instructions) == b"x"
        assert backend.tries[instructions[0][1]] == [None, "1", "2"]
        assert len(clock.waits) == 2
        assert clock.waits[0] >= 5.0

        with pytest.raises(grpc.aio.AioRpcError, match="as I was told"):
            await method(b"x", metadata=failure_metadata(code="INTERNAL"))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(b"x", timeout=3.0, metadata=failure_metadata(code="INTERNAL"))
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_task_with_a_retried_method_is_cancelled(backend: FailingBackend) -> None:
    """The try ends at the server, and none follows."""
    async with grpc.aio.insecure_channel(backend.address) as channel:
        method = RetriedMethod(channel.unary_unary(UNARY), RetryPolicy(ALL, attempts=1000))
        instructions = failure_metadata(hang=True)
        task = asyncio.create_task(method(b"", metadata=instructions))
        await eventually(lambda: backend.count(instructions) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: backend.given_up == [instructions[0][1]])
        assert backend.count(instructions) == 1
