"""What only the blocking channel has, against real servers; the rest is in test_policy.py and test_edges.py.

The servers run in the test's loop, the channel is used from threads.
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
    """Opens channels."""
    opened: list[BlockingPickHealthyChannel] = []

    def open_to(
        *auths: FakeAuth, settings: BalancerSettings = FAST, **more: Any
    ) -> BlockingPickHealthyChannel:
        opened.append(open_blocking_channel([auth.reached_at for auth in auths], settings=settings, **more))
        return opened[-1]

    yield open_to
    for channel in opened:
        await asyncio.to_thread(channel.close)


async def ready(channel: grpc.Channel) -> None:
    """Wait for a healthy connection, as users of grpc do."""
    await asyncio.to_thread(grpc.channel_ready_future(channel).result, 60)


async def test_all_ways_to_call(auths: Auths, channels: Any) -> None:
    """What generated stubs need: results, futures, calls, streams in four kinds."""
    channel = channels(await auths("a"))

    def words() -> Iterator[bytes]:
        yield from (b"1", b"2")

    def use() -> None:
        unary = channel.unary_unary("/fake.Who/Unary", None, None)
        assert unary(b"", timeout=30, wait_for_ready=True) == b"a"
        answer, call = unary.with_call(b"", timeout=30)
        assert (answer, call.code()) == (b"a", grpc.StatusCode.OK)
        assert unary.future(b"", timeout=30).result() == b"a"
        assert channel.stream_unary("/fake.Who/Up")(words()) == b"a:12"
        assert channel.stream_unary("/fake.Who/Up").future(words()).result() == b"a:12"
        assert list(channel.stream_stream("/fake.Who/Both")(words())) == [b"a:1", b"a:2"]
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/fake.Who/None")(b"")
        with channel:
            pass
        with pytest.raises(ValueError, match="closed"):
            unary(b"")

    await asyncio.to_thread(use)


async def test_close_ends_rpcs(auths: Auths, channels: Any) -> None:
    """Also one that waits in another thread; and closing twice is closing once."""
    channel = channels(await auths("a"))
    await ready(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await asyncio.to_thread(next, stream) == b"a"
    ended: queue.Queue[grpc.StatusCode] = queue.Queue()

    def wait() -> None:
        try:
            next(stream)
        except grpc.RpcError as error:
            ended.put(error.code())

    waiting = threading.Thread(target=wait)
    waiting.start()
    await asyncio.to_thread(channel.close)
    await asyncio.to_thread(channel.close)
    assert await asyncio.to_thread(ended.get, True, 60) is grpc.StatusCode.CANCELLED
    await asyncio.to_thread(waiting.join)


async def test_subscribers(auths: Auths, channels: Any) -> None:
    """They hear each state once, and nothing after they left."""
    auth = await auths("a")
    channel = channels(auth)
    heard: list[grpc.ChannelConnectivity] = []
    channel.subscribe(heard.append, try_to_connect=True)
    await eventually(lambda: heard[-1:] == [grpc.ChannelConnectivity.READY])
    auth.turn(healthy=False)
    await eventually(lambda: grpc.ChannelConnectivity.TRANSIENT_FAILURE in heard)
    channel.unsubscribe(heard.append)
    channel.unsubscribe(heard.append)
    length = len(heard)
    auth.turn(healthy=True)
    await ready(channel)
    assert len(heard) == length
    assert all(one is not other for one, other in itertools.pairwise(heard))


async def test_subscriber_that_fails_stops_no_channel(
    auths: Auths, channels: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Its fault is a line in the log for each state; the subscribers after it hear every state."""

    def fail(state: grpc.ChannelConnectivity) -> None:
        raise KeyError(state)

    auth = await auths("a")
    channel = channels(auth)
    heard: list[grpc.ChannelConnectivity] = []
    channel.subscribe(fail)
    channel.subscribe(heard.append, try_to_connect=True)
    await eventually(lambda: heard[-1:] == [grpc.ChannelConnectivity.READY])
    auth.turn(healthy=False)
    await eventually(lambda: grpc.ChannelConnectivity.TRANSIENT_FAILURE in heard)
    assert "a callback of the channel's user failed" in caplog.text
