"""The blocking channel against real servers: they run in the test's loop, the channel is used from threads."""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc
import pytest

from fleet.protocol.pick_healthy import Settings
from fleet.protocol.service_config import Mode, ServiceConfig
from fleet.transport.pick_healthy.blocking import BlockingPickHealthyChannel
from fleet.transport.pick_healthy.opening import open_blocking_channel
from tests.fakes.auths import FakeAuth
from tests.fakes.waiting import eventually

Auths = Callable[..., Awaitable[FakeAuth]]

FAST = Settings(first_wait=0.0, base=0.02, ceiling=0.02)


@pytest.fixture
async def channels() -> AsyncIterator[Callable[..., BlockingPickHealthyChannel]]:
    """Opens channels."""
    opened: list[BlockingPickHealthyChannel] = []

    def open_to(*auths: FakeAuth, settings: Settings = FAST, **more: Any) -> BlockingPickHealthyChannel:
        opened.append(open_blocking_channel([auth.reached_at for auth in auths], settings=settings, **more))
        return opened[-1]

    yield open_to
    for channel in opened:
        await asyncio.to_thread(channel.close)


async def who(channel: grpc.Channel) -> str:
    """Which server answers an RPC that begins now."""
    answer: bytes = await asyncio.to_thread(
        channel.unary_unary("/fake.Who/Unary"), b"", timeout=5, wait_for_ready=True
    )
    return answer.decode()


async def ready(channel: grpc.Channel) -> None:
    """Wait for a healthy connection, as users of grpc do."""
    await asyncio.to_thread(grpc.channel_ready_future(channel).result, 10)


async def answered_by(channel: grpc.Channel, name: str) -> None:
    async def moved() -> bool:
        return await who(channel) == name

    await eventually(moved)


async def test_pick_first(auths: Auths, channels: Any) -> None:
    """Unhealthy, it stays; stopped, it moves."""
    first, second = await auths("a", ServiceConfig()), await auths("b", ServiceConfig())
    channel = channels(first, second)
    await ready(channel)
    first.turn(healthy=False)
    for _ in range(10):
        assert await who(channel) == "a"
    assert first.watches == 0
    await first.stop()
    await answered_by(channel, "b")
    await eventually(lambda: channel.policy is not None and channel.policy.auth_id == "b")


async def test_reconnect(auths: Auths, channels: Any) -> None:
    """It moves, says so, and streams finish where they began."""
    first, second = await auths("a"), await auths("b")
    channel = channels(first, second)
    await ready(channel)
    assert (channel.policy.mode, channel.policy.health_check, channel.policy.auth_id) == (
        Mode.RECONNECT,
        True,
        "a",
    )
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await asyncio.to_thread(next, stream) == b"a"
    first.turn(healthy=False)
    await answered_by(channel, "b")
    first.streams[0].put_nowait(b"still")
    assert await asyncio.to_thread(next, stream) == b"still"
    first.streams[0].put_nowait(None)
    assert await asyncio.to_thread(list, stream) == []
    assert await who(channel) == "b"


async def test_nothing_better(auths: Auths, channels: Any) -> None:
    """RPCs go over the unhealthy connection, and the old one wins when it recovers."""
    only = await auths("a")
    channel = channels(only)
    await ready(channel)
    only.turn(healthy=False)
    await eventually(lambda: only.configs_asked > 3)
    assert await who(channel) == "a"
    only.turn(healthy=True)
    await ready(channel)


async def test_drain_timeout(auths: Auths, channels: Any) -> None:
    """Streams of a connection that was left are ended after it."""
    first, second = await auths("a"), await auths("b")
    channel = channels(
        first, second, settings=Settings(first_wait=0.0, base=0.02, ceiling=0.02, drain_timeout=0.1)
    )
    await ready(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await asyncio.to_thread(next, stream) == b"a"
    first.turn(healthy=False)
    await answered_by(channel, "b")
    with pytest.raises(grpc.RpcError):
        await asyncio.to_thread(list, stream)
    assert stream.code() is grpc.StatusCode.CANCELLED


async def test_old_server(auths: Auths, channels: Any) -> None:
    """No such services: pick_first, healthy."""
    channel = channels(await auths("a", None, health=False))
    await ready(channel)
    assert (channel.policy.mode, channel.policy.health_check) == (Mode.PICK_FIRST, False)


async def test_server_without_health_service(auths: Auths, channels: Any) -> None:
    """Healthy, and not watched."""
    channel = channels(await auths("a", health=False))
    await ready(channel)
    await eventually(lambda: channel.policy is not None and not channel.policy.health_check)


async def test_config_that_fails_at_first(
    auths: Auths, channels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for again."""
    monkeypatch.setattr("fleet.transport.pick_healthy.blocking_connection.wait_again", lambda *_: 0.05)
    auth = await auths("a")
    auth.config_fails = grpc.StatusCode.UNAVAILABLE
    channel = channels(auth)
    await ready(channel)
    assert channel.policy is None
    auth.config_fails = None
    await eventually(lambda: channel.policy is not None and channel.policy.health_check)


async def test_server_that_restarts(auths: Auths, channels: Any) -> None:
    """An idle channel connects again by itself, and asks anew."""
    auth = await auths("a")
    channel = channels(auth)
    await ready(channel)
    await auth.stop()
    await auth.start()
    await eventually(lambda: auth.configs_asked == 2)
    await ready(channel)


async def test_all_ways_to_call(auths: Auths, channels: Any) -> None:
    """What generated stubs need: results, futures, calls, streams in four kinds."""
    channel = channels(await auths("a"))

    def words() -> Iterator[bytes]:
        yield from (b"1", b"2")

    def use() -> None:
        unary = channel.unary_unary("/fake.Who/Unary", None, None)
        assert unary(b"", timeout=5, wait_for_ready=True) == b"a"
        answer, call = unary.with_call(b"", timeout=5)
        assert (answer, call.code()) == (b"a", grpc.StatusCode.OK)
        assert unary.future(b"", timeout=5).result() == b"a"
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
    assert await asyncio.to_thread(ended.get, True, 5) is grpc.StatusCode.CANCELLED
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


async def test_policy_that_cannot_be_read(
    auths: Auths, channels: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told and counted, and the server is used as one that has no policy."""
    auth = await auths("a")
    auth.config_is_garbage = True
    refusals: list[None] = []
    channel = channels(auth, refused=lambda: refusals.append(None))
    assert await who(channel) == "a"
    await eventually(lambda: len(refusals) == 1)
    assert caplog.text.count("service-config.refused: channel: of auth 'a'") == 1
