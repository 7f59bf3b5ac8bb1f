"""What only the grpc.aio channel has, against real servers; the rest is in test_policy.py and test_edges.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from fleet.nodes.local.forwards import Forward
from fleet.protocol.recovery.pick_healthy import BalancerSettings
from fleet.transport.pick_healthy.channel import PickHealthyChannel
from fleet.transport.pick_healthy.channel_factory import open_channel
from tests.fakes.auths import FakeAuth, balanced
from tests.fakes.loop_faults import record_loop_faults
from tests.fakes.waiting import eventually

Auths = Callable[..., Awaitable[FakeAuth]]
Forwards = Callable[[FakeAuth], Awaitable[Forward]]

#: Attempts follow each other at once: which server a shuffle leads to is chance.
FAST = BalancerSettings(first_wait=0.0, base=0.02, ceiling=0.02)


@pytest.fixture
async def channels() -> AsyncIterator[Callable[..., PickHealthyChannel]]:
    """Opens channels."""
    opened: list[PickHealthyChannel] = []

    def open_to(
        *where: FakeAuth | Forward, settings: BalancerSettings = FAST, **more: Any
    ) -> PickHealthyChannel:
        at = [one.reached_at if isinstance(one, FakeAuth) else one.listen for one in where]
        opened.append(open_channel(at, settings=settings, **more))
        return opened[-1]

    yield open_to
    for channel in opened:
        await channel.close()


async def who(channel: grpc.aio.Channel, **kwargs: Any) -> str:
    """Which server answers an RPC that begins now."""
    answer: bytes = await channel.unary_unary("/fake.Who/Unary")(b"", timeout=30, **kwargs)
    return answer.decode()


async def answered_by(channel: grpc.aio.Channel, name: str) -> None:
    """Wait until RPCs are answered by that server; every one is answered."""

    async def moved() -> bool:
        return await who(channel) == name

    await eventually(moved)


async def test_balancer_close(auths: Auths, channels: Any) -> None:
    """TestBalancerClose: RPCs under way are cancelled, new ones refused; closing twice is closing once."""
    channel = channels(await auths("a"))
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await stream.read() == b"a"
    await channel.close()
    await channel.close()
    assert await stream.code() is grpc.StatusCode.CANCELLED
    assert channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN
    with pytest.raises(grpc.aio.UsageError):
        channel.unary_unary("/fake.Who/Unary")(b"")
    with pytest.raises(grpc.aio.UsageError):
        await channel.channel_ready()


async def test_close_with_grace(auths: Auths, channels: Any) -> None:
    """What ends within the grace ends well."""
    auth = await auths("a")
    channel = channels(auth)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await stream.read() == b"a"
    closing = asyncio.create_task(channel.close(grace=10))
    await asyncio.sleep(0)
    auth.streams[0].put_nowait(None)
    await closing
    assert await stream.code() is grpc.StatusCode.OK


async def test_close_before_the_first_connection() -> None:
    """Nothing was opened, nothing is to be closed."""
    channel = open_channel([("127.0.0.1", 1)])
    await channel.close()
    assert channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.SHUTDOWN


async def test_streams_finish_on_the_old_connection(auths: Auths, channels: Any) -> None:
    """Edge case 2 of the RFD: they continue over the unhealthy connection until they end; then it is closed."""
    first, second = await auths("a"), await auths("b")
    channel = channels(first, second)
    await balanced(channel)
    down = channel.unary_stream("/fake.Who/Down")(b"")
    assert await down.read() == b"a"
    both = channel.stream_stream("/fake.Who/Both")()
    await both.write(b"1")
    assert await both.read() == b"a:1"
    first.turn(healthy=False)
    await answered_by(channel, "b")
    first.streams[0].put_nowait(b"still")
    assert await down.read() == b"still"
    await both.write(b"2")
    assert await both.read() == b"a:2"
    # Its health and its config are nobody's business any more, and nothing new goes there.
    asked = first.configs_asked
    calls = first.calls
    first.streams[0].put_nowait(None)
    assert await down.read() is grpc.aio.EOF
    await both.done_writing()
    assert await both.read() is grpc.aio.EOF
    await eventually(lambda: not channel._retiring_connections)
    assert await who(channel) == "b"
    assert (first.configs_asked, first.calls) == (asked, calls)


async def test_old_connection_that_recovers_first(auths: Auths, channels: Any) -> None:
    """Edge case 3 of the RFD: the attempts end, and the old connection is the same as before."""
    only = await auths("a")
    channel = channels(only, settings=BalancerSettings(first_wait=0.0, base=30.0))
    await balanced(channel)
    before = channel.connection
    only.turn(healthy=False)
    await eventually(lambda: only.watches == 2)
    only.turn(healthy=True)
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.READY)
    await eventually(lambda: channel._balancer.backup_id is None or channel.moves == 1)
    assert (channel.connection, channel.moves) in ((before, 0), ((1, 1), 1))
    assert len(channel._connections) == 1


async def test_tells_of_changes(auths: Auths, channels: Any) -> None:
    """Its owner hears of another connection and of another policy, and of nothing else."""
    first, second = await auths("a"), await auths("b")
    heard: list[Any] = []
    channel = channels(first, second, on_change=lambda: heard.append((channel.connection, channel.policy)))
    await balanced(channel)
    first.turn(healthy=False)
    await answered_by(channel, "b")
    assert len(heard) == len(set(heard))
    assert heard[-1][1].auth_id == "b"


async def test_all_four_kinds_of_rpcs(auths: Auths, channels: Any) -> None:
    """What generated stubs need."""
    channel = channels(await auths("a"))

    async def words() -> AsyncIterator[bytes]:
        for word in (b"1", b"2"):
            yield word

    assert await channel.stream_unary("/fake.Who/Up")(words()) == b"a:12"
    assert [word async for word in channel.stream_stream("/fake.Who/Both")(words())] == [b"a:1", b"a:2"]
    assert await channel.unary_unary("/fake.Who/Unary", None, None)(b"", timeout=30) == b"a"
    async with channel as same:
        assert same is channel
    with pytest.raises(grpc.aio.UsageError):
        await who(channel)


async def _nothing(auth: FakeAuth, channel: PickHealthyChannel) -> None:
    """Before anything was opened."""


async def _connecting(auth: FakeAuth, channel: PickHealthyChannel) -> None:
    channel.connect()


async def _asking(auth: FakeAuth, channel: PickHealthyChannel) -> None:
    auth.answering.clear()
    channel.connect()
    await eventually(lambda: auth.configs_asked > 0)


async def _watching(auth: FakeAuth, channel: PickHealthyChannel) -> None:
    await balanced(channel)


async def _trying(auth: FakeAuth, channel: PickHealthyChannel) -> None:
    await balanced(channel)
    auth.turn(healthy=False)
    await eventually(lambda: auth.watches > 3)


async def _draining(auth: FakeAuth, channel: PickHealthyChannel) -> None:
    await balanced(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await stream.read() == b"a"
    auth.turn(healthy=False)
    await eventually(lambda: auth.watches > 1)
    auth.turn(healthy=True)


async def _lost(auth: FakeAuth, channel: PickHealthyChannel) -> None:
    await balanced(channel)
    await auth.stop()
    await eventually(lambda: channel.get_state() is not grpc.ChannelConnectivity.READY)


@pytest.mark.parametrize("moment", [_nothing, _connecting, _asking, _watching, _trying, _draining, _lost])
@pytest.mark.parametrize("steps", [0, 1, 3])
async def test_close_leaks_nothing(
    auths: Auths,
    forwards: Forwards,
    channels: Any,
    moment: Callable[[FakeAuth, PickHealthyChannel], Awaitable[None]],
    steps: int,
) -> None:
    """Closed at any moment: no task and no connection of its is left, and no task of its failed."""
    auth = await auths("a")
    wire = await forwards(auth)
    faults = record_loop_faults()
    before = asyncio.all_tasks()
    channel = channels(wire)
    await moment(auth, channel)
    for _ in range(steps):
        await asyncio.sleep(0)
    await channel.close()
    auth.answering.set()
    await eventually(
        lambda: not [task for task in asyncio.all_tasks() - before if "pick_healthy" in repr(task)]
    )
    await eventually(lambda: not wire.links)
    assert faults == []
