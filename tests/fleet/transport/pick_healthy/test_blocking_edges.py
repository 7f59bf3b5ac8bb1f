"""The blocking channel, closed at every moment; connections that end under it are in test_edges.py."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import grpc
import pytest

from fleet.nodes.local.forwards import Forward
from fleet.protocol.recovery.pick_healthy import BalancerSettings
from fleet.transport.pick_healthy.blocking import BlockingPickHealthyChannel
from fleet.transport.pick_healthy.channel_factory import open_blocking_channel
from tests.fakes.auths import FakeAuth
from tests.fakes.waiting import eventually

Auths = Callable[..., Awaitable[FakeAuth]]
Forwards = Callable[[FakeAuth], Awaitable[Forward]]

FAST = BalancerSettings(first_wait=0.0, base=0.02, ceiling=0.02)


async def ready(channel: grpc.Channel) -> None:
    await asyncio.to_thread(grpc.channel_ready_future(channel).result, 60)


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


async def _draining(auth: FakeAuth, channel: BlockingPickHealthyChannel) -> None:
    await ready(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await asyncio.to_thread(next, stream) == b"a"
    auth.turn(healthy=False)
    await eventually(lambda: auth.watches > 1)
    auth.turn(healthy=True)


async def _lost(auth: FakeAuth, channel: BlockingPickHealthyChannel) -> None:
    heard: list[grpc.ChannelConnectivity] = []
    channel.subscribe(heard.append)
    await ready(channel)
    await auth.stop()
    await eventually(lambda: heard[-1] is not grpc.ChannelConnectivity.READY)


@pytest.mark.parametrize("moment", [_nothing, _connecting, _asking, _watching, _trying, _draining, _lost])
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
