"""Behaviour of the grpc.aio channel only, with real servers; the rest is in test_policy.py and test_edges.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from fleet.nodes.local.forwards import Forward
from fleet.protocol.recovery.pick_healthy import BalancerSettings
from fleet.transport.channels import open_channel as open_grpc_channel
from fleet.transport.pick_healthy import connect_slots
from fleet.transport.pick_healthy.channel import PickHealthyChannel
from fleet.transport.pick_healthy.channel_factory import open_channel
from tests.fakes.auths import FakeAuth, await_policy
from tests.fakes.loop_faults import record_loop_faults
from tests.fakes.waiting import eventually

Auths = Callable[..., Awaitable[FakeAuth]]
Forwards = Callable[[FakeAuth], Awaitable[Forward]]

#: Attempts follow at once, as a shuffle may lead to any server.
FAST = BalancerSettings(first_wait=0.0, base=0.02, ceiling=0.02)


@pytest.fixture
async def channels() -> AsyncIterator[Callable[..., PickHealthyChannel]]:
    """Return a function that opens a channel."""
    open_channels: list[PickHealthyChannel] = []

    def open_channel_to(
        *endpoints: FakeAuth | Forward, settings: BalancerSettings = FAST, **options: Any
    ) -> PickHealthyChannel:
        addresses = [
            endpoint.reached_at if isinstance(endpoint, FakeAuth) else endpoint.listen
            for endpoint in endpoints
        ]
        open_channels.append(open_channel(addresses, settings=settings, **options))
        return open_channels[-1]

    yield open_channel_to
    for channel in open_channels:
        await channel.close()


async def responding_auth(channel: grpc.aio.Channel, **kwargs: Any) -> str:
    """Return the name of the auth that responds to a new call."""
    response: bytes = await channel.unary_unary("/fake.Who/Unary")(b"", timeout=30, **kwargs)
    return response.decode()


async def wait_for_auth(channel: grpc.aio.Channel, name: str) -> None:
    """Wait until that auth responds; every call until then gets a response."""

    async def has_moved() -> bool:
        return await responding_auth(channel) == name

    await eventually(has_moved)


async def test_close_cancels_calls(auths: Auths, channels: Any) -> None:
    """TestBalancerClose: calls are cancelled, new ones refused; a second close has no effect."""
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


async def test_close_with_grace_lets_calls_finish(auths: Auths, channels: Any) -> None:
    auth = await auths("a")
    channel = channels(auth)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await stream.read() == b"a"
    close_task = asyncio.create_task(channel.close(grace=10))
    await asyncio.sleep(0)
    auth.streams[0].put_nowait(None)
    await close_task
    assert await stream.code() is grpc.StatusCode.OK


async def test_close_before_the_first_connection() -> None:
    channel = open_channel([("127.0.0.1", 1)])
    await channel.close()
    assert channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.SHUTDOWN


async def test_streams_finish_on_the_old_connection(auths: Auths, channels: Any) -> None:
    """Edge case 2 of the RFD: streams continue on the unhealthy connection until they end; then it is closed."""
    first, second = await auths("a"), await auths("b")
    channel = channels(first, second)
    await await_policy(channel)
    down_stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await down_stream.read() == b"a"
    bidirectional_stream = channel.stream_stream("/fake.Who/Both")()
    await bidirectional_stream.write(b"1")
    assert await bidirectional_stream.read() == b"a:1"
    first.set_health(healthy=False)
    await wait_for_auth(channel, "b")
    first.streams[0].put_nowait(b"still")
    assert await down_stream.read() == b"still"
    await bidirectional_stream.write(b"2")
    assert await bidirectional_stream.read() == b"a:2"
    # It gets no more requests for health or config, and no new calls.
    config_request_count = first.configs_asked
    call_count = first.calls
    first.streams[0].put_nowait(None)
    assert await down_stream.read() is grpc.aio.EOF
    await bidirectional_stream.done_writing()
    assert await bidirectional_stream.read() is grpc.aio.EOF
    await eventually(lambda: not channel._retiring_connections)
    assert await responding_auth(channel) == "b"
    assert (first.configs_asked, first.calls) == (config_request_count, call_count)


async def test_old_connection_recovers_first(auths: Auths, channels: Any) -> None:
    """Edge case 3 of the RFD: the attempts end, and the connection is the same as before."""
    auth = await auths("a")
    channel = channels(auth, settings=BalancerSettings(first_wait=0.0, base=30.0))
    await await_policy(channel)
    before = channel.connection_id
    auth.set_health(healthy=False)
    await eventually(lambda: auth.watches == 2)
    auth.set_health(healthy=True)
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.READY)
    await eventually(lambda: channel._balancer.backup_id is None or channel.move_count == 1)
    assert (channel.connection_id, channel.move_count) in ((before, 0), ((1, 1), 1))
    assert len(channel._connections) == 1


@pytest.mark.parametrize("is_closed", [False, True], ids=["its turn", "closed before"])
async def test_backup_is_opened_when_it_is_its_turn(
    auths: Auths, monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    """Not all of a thousand channels that leave at once are created before the first has moved."""
    monkeypatch.setattr(connect_slots, "_SLOT_TIMEOUT", 600.0)
    auth = await auths("a")
    shuffle_flags: list[bool] = []

    def open_connection(shuffle: bool) -> grpc.aio.Channel:
        shuffle_flags.append(shuffle)
        return open_grpc_channel(f"127.0.0.1:{auth.port}")

    channel = PickHealthyChannel(open_connection, FAST)
    try:
        await await_policy(channel)
        other_slots = [await connect_slots.of_this_loop().take() for _ in range(8)]
        auth.set_health(healthy=False)
        await eventually(lambda: channel._balancer.backup_id is not None)
        assert shuffle_flags == [False]
        if is_closed:
            await channel.close()
            assert shuffle_flags == [False]
        else:
            other_slots[0].end()
            await eventually(lambda: shuffle_flags[:2] == [False, True])
    finally:
        await channel.close()


async def test_changes_are_reported(auths: Auths, channels: Any) -> None:
    """Only a new connection and a new policy are reported."""
    first, second = await auths("a"), await auths("b")
    changes: list[Any] = []
    channel = channels(
        first, second, on_change=lambda: changes.append((channel.connection_id, channel.policy))
    )
    await await_policy(channel)
    first.set_health(healthy=False)
    await wait_for_auth(channel, "b")
    assert len(changes) == len(set(changes))
    assert changes[-1][1].auth_id == "b"


async def test_all_four_kinds_of_calls(auths: Auths, channels: Any) -> None:
    """Generated stubs need them."""
    channel = channels(await auths("a"))

    async def requests() -> AsyncIterator[bytes]:
        for request in (b"1", b"2"):
            yield request

    assert await channel.stream_unary("/fake.Who/Up")(requests()) == b"a:12"
    assert [request async for request in channel.stream_stream("/fake.Who/Both")(requests())] == [
        b"a:1",
        b"a:2",
    ]
    assert await channel.unary_unary("/fake.Who/Unary", None, None)(b"", timeout=30) == b"a"
    async with channel as entered_channel:
        assert entered_channel is channel
    with pytest.raises(grpc.aio.UsageError):
        await responding_auth(channel)


async def reach_unopened(auth: FakeAuth, channel: PickHealthyChannel) -> None:
    """Leave the channel without any connection."""


async def reach_connecting(auth: FakeAuth, channel: PickHealthyChannel) -> None:
    channel.connect()


async def reach_config_request(auth: FakeAuth, channel: PickHealthyChannel) -> None:
    auth.answer_event.clear()
    channel.connect()
    await eventually(lambda: auth.configs_asked > 0)


async def reach_watching(auth: FakeAuth, channel: PickHealthyChannel) -> None:
    await await_policy(channel)


async def reach_backup_attempts(auth: FakeAuth, channel: PickHealthyChannel) -> None:
    await await_policy(channel)
    auth.set_health(healthy=False)
    await eventually(lambda: auth.watches > 3)


async def reach_draining(auth: FakeAuth, channel: PickHealthyChannel) -> None:
    await await_policy(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await stream.read() == b"a"
    auth.set_health(healthy=False)
    await eventually(lambda: auth.watches > 1)
    auth.set_health(healthy=True)


async def reach_lost_connection(auth: FakeAuth, channel: PickHealthyChannel) -> None:
    await await_policy(channel)
    await auth.stop()
    await eventually(lambda: channel.get_state() is not grpc.ChannelConnectivity.READY)


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
@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_close_leaks_nothing(
    auths: Auths,
    forwards: Forwards,
    channels: Any,
    reach_state: Callable[[FakeAuth, PickHealthyChannel], Awaitable[None]],
    turns: int,
) -> None:
    """Closed in any state, the channel leaves no task and no connection, and no task failed."""
    auth = await auths("a")
    forward = await forwards(auth)
    faults = record_loop_faults()
    before = asyncio.all_tasks()
    channel = channels(forward)
    await reach_state(auth, channel)
    for _ in range(turns):
        await asyncio.sleep(0)
    await channel.close()
    auth.answer_event.set()
    await eventually(
        lambda: not [task for task in asyncio.all_tasks() - before if "pick_healthy" in repr(task)]
    )
    await eventually(lambda: not forward.pairs)
    assert faults == []
