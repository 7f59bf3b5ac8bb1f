"""Behaviour of the blocking channel only, with real servers; the rest is in test_policy.py and test_edges.py.
The servers run in the test's loop, the channel is used in threads.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc
import pytest

from fleet.protocol.recovery.pick_healthy import BalancerSettings
from fleet.transport.pick_healthy.blocking import BlockingPickHealthyChannel
from fleet.transport.pick_healthy.channel_factory import open_blocking_channel
from tests.fakes.auths import FakeAuth
from tests.fakes.waiting import eventually

Auths = Callable[..., Awaitable[FakeAuth]]

FAST = BalancerSettings(first_wait=0.0, base=0.02, ceiling=0.02)


@pytest.fixture
async def channels() -> AsyncIterator[Callable[..., BlockingPickHealthyChannel]]:
    """Return a function that opens a channel."""
    open_channels: list[BlockingPickHealthyChannel] = []

    def open_channel_to(
        *auths: FakeAuth, settings: BalancerSettings = FAST, **options: Any
    ) -> BlockingPickHealthyChannel:
        open_channels.append(
            open_blocking_channel([auth.reached_at for auth in auths], settings=settings, **options)
        )
        return open_channels[-1]

    yield open_channel_to
    for channel in open_channels:
        await asyncio.to_thread(channel.close)


async def wait_until_ready(channel: grpc.Channel) -> None:
    """Wait for a healthy connection, as users of grpc do."""
    await asyncio.to_thread(grpc.channel_ready_future(channel).result, 60)


async def test_all_kinds_of_calls(auths: Auths, channels: Any) -> None:
    """Generated stubs need results, futures, calls and four kinds of streams."""
    channel = channels(await auths("a"))

    def requests() -> Iterator[bytes]:
        yield from (b"1", b"2")

    def run_calls() -> None:
        unary = channel.unary_unary("/fake.Who/Unary", None, None)
        assert unary(b"", timeout=30, wait_for_ready=True) == b"a"
        response, call = unary.with_call(b"", timeout=30)
        assert (response, call.code()) == (b"a", grpc.StatusCode.OK)
        assert unary.future(b"", timeout=30).result() == b"a"
        assert channel.stream_unary("/fake.Who/Up")(requests()) == b"a:12"
        assert channel.stream_unary("/fake.Who/Up").future(requests()).result() == b"a:12"
        assert list(channel.stream_stream("/fake.Who/Both")(requests())) == [b"a:1", b"a:2"]
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/fake.Who/None")(b"")
        with channel:
            pass
        with pytest.raises(ValueError, match="closed"):
            unary(b"")

    await asyncio.to_thread(run_calls)


async def test_close_cancels_calls(auths: Auths, channels: Any) -> None:
    """It cancels a call that waits in another thread, too; a second close has no effect."""
    channel = channels(await auths("a"))
    await wait_until_ready(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await asyncio.to_thread(next, stream) == b"a"
    status_queue: queue.Queue[grpc.StatusCode] = queue.Queue()

    def wait_for_status() -> None:
        try:
            next(stream)
        except grpc.RpcError as error:
            status_queue.put(error.code())

    waiting_thread = threading.Thread(target=wait_for_status)
    waiting_thread.start()
    await asyncio.to_thread(channel.close)
    await asyncio.to_thread(channel.close)
    assert await asyncio.to_thread(status_queue.get, True, 60) is grpc.StatusCode.CANCELLED
    await asyncio.to_thread(waiting_thread.join)


async def test_subscribers_get_each_state_once(auths: Auths, channels: Any) -> None:
    """After unsubscribing they get none."""
    auth = await auths("a")
    channel = channels(auth)
    states: list[grpc.ChannelConnectivity] = []
    channel.subscribe(states.append, try_to_connect=True)
    await eventually(lambda: states[-1:] == [grpc.ChannelConnectivity.READY])
    auth.set_health(healthy=False)
    await eventually(lambda: grpc.ChannelConnectivity.TRANSIENT_FAILURE in states)
    channel.unsubscribe(states.append)
    channel.unsubscribe(states.append)
    length = len(states)
    auth.set_health(healthy=True)
    await wait_until_ready(channel)
    assert len(states) == length
    assert all(state is not next_state for state, next_state in itertools.pairwise(states))


async def test_failing_subscriber_does_not_affect_the_channel(
    auths: Auths, channels: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Each error is logged; later subscribers get every state."""

    def fail(state: grpc.ChannelConnectivity) -> None:
        raise KeyError(state)

    auth = await auths("a")
    channel = channels(auth)
    states: list[grpc.ChannelConnectivity] = []
    channel.subscribe(fail)
    channel.subscribe(states.append, try_to_connect=True)
    await eventually(lambda: states[-1:] == [grpc.ChannelConnectivity.READY])
    auth.set_health(healthy=False)
    await eventually(lambda: grpc.ChannelConnectivity.TRANSIENT_FAILURE in states)
    assert "a callback of the channel's user failed" in caplog.text
