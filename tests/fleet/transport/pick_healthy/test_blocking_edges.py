"""The blocking channel at its edges: closed at every moment, and connections that end under it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import pytest

from fleet.nodes.forwards import Forward, Mode
from fleet.protocol.pick_healthy import Settings, Why
from fleet.transport.pick_healthy.blocking import BlockingPickHealthyChannel
from fleet.transport.pick_healthy.opening import open_blocking_channel
from tests.fakes.auths import FakeAuth
from tests.fakes.waiting import eventually

Auths = Callable[..., Awaitable[FakeAuth]]
Forwards = Callable[[FakeAuth], Awaitable[Forward]]

FAST = Settings(first_wait=0.0, base=0.02, ceiling=0.02)


@pytest.fixture
async def forwards() -> AsyncIterator[Forwards]:
    """Forwards to servers: they count connections, and cut them."""
    started: list[Forward] = []

    async def start(auth: FakeAuth) -> Forward:
        started.append(Forward(auth.name, ("127.0.0.1", 0), auth.reached_at))
        await started[-1].start()
        return started[-1]

    yield start
    for forward in started:
        await forward.stop()


async def who(channel: grpc.Channel) -> str:
    """Which server answers an RPC that begins now."""
    unary = channel.unary_unary("/fake.Who/Unary")
    answer: bytes = await asyncio.to_thread(unary, b"", timeout=5, wait_for_ready=True)
    return answer.decode()


async def ready(channel: grpc.Channel) -> None:
    await asyncio.to_thread(grpc.channel_ready_future(channel).result, 10)


async def _nothing(auth: FakeAuth, channel: BlockingPickHealthyChannel) -> None:
    """Before anything was opened."""


async def _connecting(auth: FakeAuth, channel: BlockingPickHealthyChannel) -> None:
    channel.subscribe(lambda state: None, try_to_connect=True)


async def _asking(auth: FakeAuth, channel: BlockingPickHealthyChannel) -> None:
    auth.answering.clear()
    channel.subscribe(lambda state: None, try_to_connect=True)
    await eventually(lambda: auth.configs_asked > 0)


async def _watching(auth: FakeAuth, channel: BlockingPickHealthyChannel) -> None:
    await ready(channel)


async def _trying(auth: FakeAuth, channel: BlockingPickHealthyChannel) -> None:
    await ready(channel)
    auth.turn(healthy=False)
    await eventually(lambda: auth.watches > 2)


@pytest.mark.parametrize("moment", [_nothing, _connecting, _asking, _watching, _trying])
async def test_close_leaks_nothing(
    auths: Auths,
    forwards: Forwards,
    moment: Callable[[FakeAuth, BlockingPickHealthyChannel], Awaitable[None]],
) -> None:
    """No thread of its and no connection is left."""
    auth = await auths("a")
    wire = await forwards(auth)
    channel = open_blocking_channel([wire.listen], settings=FAST)
    await moment(auth, channel)
    await asyncio.to_thread(channel.close)
    auth.answering.set()
    ours = ("connection ", "end of ", "pick-healthy")
    await eventually(lambda: not [t for t in threading.enumerate() if t.name.startswith(ours)])
    await eventually(lambda: not wire.links)


async def test_both_unhealthy(auths: Auths) -> None:
    """RPCs flow all the time, and the first server to be well is taken; each end of an attempt is told."""
    first, second = await auths("a"), await auths("b")
    second.turn(healthy=False)
    left: list[Why] = []
    channel = open_blocking_channel([first.reached_at, second.reached_at], settings=FAST, left=left.append)
    await ready(channel)
    first.turn(healthy=False)
    await eventually(lambda: Why.REPLACED in left)
    assert await who(channel) == "a"
    second.turn(healthy=True)

    async def moved() -> bool:
        return await who(channel) == "b"

    await eventually(moved)
    # Calls move first; who listens is told after that, by another thread.
    await eventually(lambda: left[-1] is Why.MOVED)
    assert channel.moves == 1
    await asyncio.to_thread(channel.close)


async def test_call_that_is_on_its_way_when_the_connection_breaks(auths: Auths, forwards: Forwards) -> None:
    """It fails with UNAVAILABLE, and the next one is answered by another server."""
    first, second = await auths("a"), await auths("b")
    wire = await forwards(first)
    channel = open_blocking_channel([wire.listen, second.reached_at], settings=FAST)
    await ready(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await asyncio.to_thread(next, stream) == b"a"
    await wire.change(mode=Mode.CUT)
    with pytest.raises(grpc.RpcError):
        await asyncio.to_thread(next, stream)
    assert stream.code() is grpc.StatusCode.UNAVAILABLE
    assert await who(channel) == "b"
    await asyncio.to_thread(channel.close)
