"""The blocking channel is closed in every state; connections that end are tested in test_edges.py."""

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


async def wait_until_ready(channel: grpc.Channel) -> None:
    await asyncio.to_thread(grpc.channel_ready_future(channel).result, 60)


async def reach_unopened(auth: FakeAuth, channel: BlockingPickHealthyChannel) -> None:
    """Leave the channel without any connection."""


async def reach_connecting(auth: FakeAuth, channel: BlockingPickHealthyChannel) -> None:
    channel.subscribe(lambda state: None, try_to_connect=True)


async def reach_config_request(auth: FakeAuth, channel: BlockingPickHealthyChannel) -> None:
    auth.answer_event.clear()
    channel.subscribe(lambda state: None, try_to_connect=True)
    await eventually(lambda: auth.configs_asked > 0)


async def reach_watching(auth: FakeAuth, channel: BlockingPickHealthyChannel) -> None:
    await wait_until_ready(channel)


async def reach_backup_attempts(auth: FakeAuth, channel: BlockingPickHealthyChannel) -> None:
    await wait_until_ready(channel)
    auth.set_health(healthy=False)
    await eventually(lambda: auth.watches > 2)


async def reach_draining(auth: FakeAuth, channel: BlockingPickHealthyChannel) -> None:
    await wait_until_ready(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await asyncio.to_thread(next, stream) == b"a"
    auth.set_health(healthy=False)
    await eventually(lambda: auth.watches > 1)
    auth.set_health(healthy=True)


async def reach_lost_connection(auth: FakeAuth, channel: BlockingPickHealthyChannel) -> None:
    states: list[grpc.ChannelConnectivity] = []
    channel.subscribe(states.append)
    await wait_until_ready(channel)
    await auth.stop()
    await eventually(lambda: states[-1] is not grpc.ChannelConnectivity.READY)


@pytest.mark.parametrize(
    "reach_state",
    [
        reach_unopened,
        reach_connecting,
        reach_config_request,
        reach_watching,
        reach_backup_attempts,
        reach_draining,
        reach_lost_connection,
    ],
)
async def test_close_leaks_nothing(
    auths: Auths,
    forwards: Forwards,
    reach_state: Callable[[FakeAuth, BlockingPickHealthyChannel], Awaitable[None]],
) -> None:
    """No thread and no connection of the channel is left."""
    auth = await auths("a")
    forward = await forwards(auth)
    channel = open_blocking_channel([forward.listen], settings=FAST)
    await reach_state(auth, channel)
    await asyncio.to_thread(channel.close)
    auth.answer_event.set()
    name_prefixes = ("connection ", "end of ", "pick-healthy")
    await eventually(
        lambda: not [thread for thread in threading.enumerate() if thread.name.startswith(name_prefixes)]
    )
    await eventually(lambda: not forward.pairs)
