"""The grpc.aio channel against real servers. Upstream's tests by their names where they are the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from fleet.protocol.pick_healthy import Settings
from fleet.protocol.service_config import Mode, ServiceConfig
from fleet.transport.pick_healthy.channel import PickHealthyChannel
from fleet.transport.pick_healthy.opening import open_channel
from tests.fakes.auths import FakeAuth
from tests.fakes.waiting import eventually

Auths = Callable[..., Awaitable[FakeAuth]]

#: Attempts follow each other at once: which server a shuffle leads to is chance.
FAST = Settings(first_wait=0.0, base=0.02, ceiling=0.02)


@pytest.fixture
async def channels() -> AsyncIterator[Callable[..., PickHealthyChannel]]:
    """Opens channels."""
    opened: list[PickHealthyChannel] = []

    def open_to(*auths: FakeAuth, settings: Settings = FAST, **more: Any) -> PickHealthyChannel:
        opened.append(open_channel([auth.reached_at for auth in auths], settings=settings, **more))
        return opened[-1]

    yield open_to
    for channel in opened:
        await channel.close()


async def who(channel: grpc.aio.Channel, **kwargs: Any) -> str:
    """Which server answers an RPC that begins now."""
    answer: bytes = await channel.unary_unary("/fake.Who/Unary")(b"", timeout=5, **kwargs)
    return answer.decode()


async def answered_by(channel: grpc.aio.Channel, name: str) -> None:
    """Wait until RPCs are answered by that server; every one is answered."""

    async def moved() -> bool:
        return await who(channel) == name

    await eventually(moved)


async def test_pick_first_mode_health_and_reconnect(auths: Auths, channels: Any) -> None:
    """TestPickFirstModeHealthAndReconnect: unhealthy, it must stay; stopped, it must move."""
    first, second = await auths("a", ServiceConfig()), await auths("b", ServiceConfig())
    channel = channels(first, second)
    assert await who(channel) == "a"
    await asyncio.wait_for(channel.asked.wait(), 5)
    first.turn(healthy=False)
    for _ in range(20):
        assert await who(channel) == "a"
    assert (first.watches, second.configs_asked) == (0, 0)
    await first.stop()
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.READY)
    assert await who(channel, wait_for_ready=True) == "b"
    await eventually(lambda: channel.policy is not None and channel.policy.auth_id == "b")
    assert second.configs_asked == 1


async def test_reconnect_mode_health_and_reconnect(auths: Auths, channels: Any) -> None:
    """TestReconnectModeHealthAndReconnect: it moves; with only the unhealthy server left RPCs still succeed."""
    first, second = await auths("a"), await auths("b")
    channel = channels(first, second)
    await channel.channel_ready()
    assert await who(channel) == "a"
    policy = channel.policy
    assert (policy.mode, policy.health_check, policy.auth_id) == (Mode.RECONNECT, True, "a")
    first.turn(healthy=False)
    await answered_by(channel, "b")
    assert channel.policy.auth_id == "b"
    assert channel.get_state() is grpc.ChannelConnectivity.READY
    assert channel.moves == 1
    await second.stop()
    # Only the unhealthy one is left; and an unhealthy connection is better than none.
    await answered_by(channel, "a")
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE)
    assert await who(channel) == "a"


async def test_balancer_mode_change(auths: Auths, channels: Any) -> None:
    """TestBalancerModeChange: a pick_first server is replaced by one in reconnect mode; the mode is learnt."""
    first, second = await auths("a", ServiceConfig()), await auths("b")
    channel = channels(first, second)
    await channel.channel_ready()
    assert channel.policy.mode is Mode.PICK_FIRST
    await first.stop()
    first.config = ServiceConfig(Mode.RECONNECT, "")
    await first.start()
    await eventually(lambda: channel.policy is not None and channel.policy.mode is Mode.RECONNECT)
    held = first if channel.policy.auth_id == "a" else second
    other = second if held is first else first
    held.turn(healthy=False)
    await answered_by(channel, other.name)


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


async def test_connect_timeout(auths: Auths, channels: Any) -> None:
    """TestConnectTimeout: GetServiceConfig blocks; RPCs go on, and another server is found."""
    first, second = await auths("a"), await auths("b")
    channel = channels(
        first, second, settings=Settings(first_wait=0.0, base=0.02, ceiling=0.02, connect_within=0.3)
    )
    await channel.channel_ready()
    first.answering.clear()
    await first.stop()
    await first.start()
    if await who(channel, wait_for_ready=True) == "a":
        assert channel.get_state() is grpc.ChannelConnectivity.CONNECTING
    await answered_by(channel, "b")
    first.answering.set()


async def test_streams_finish_on_the_old_connection(auths: Auths, channels: Any) -> None:
    """Edge case 2 of the RFD: they continue over the unhealthy connection until they end; then it is closed."""
    first, second = await auths("a"), await auths("b")
    channel = channels(first, second)
    await channel.channel_ready()
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
    await eventually(lambda: not channel._retiring)
    assert await who(channel) == "b"
    assert (first.configs_asked, first.calls) == (asked, calls)


async def test_drain_timeout(auths: Auths, channels: Any) -> None:
    """With a drain timeout the streams of a connection that was left are ended, and counted in the log."""
    first, second = await auths("a"), await auths("b")
    channel = channels(
        first, second, settings=Settings(first_wait=0.0, base=0.02, ceiling=0.02, drain_timeout=0.1)
    )
    await channel.channel_ready()
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await stream.read() == b"a"
    first.turn(healthy=False)
    await answered_by(channel, "b")
    assert await asyncio.wait_for(stream.code(), 5) is grpc.StatusCode.CANCELLED
    await eventually(lambda: not channel._retiring)


async def test_nothing_better(auths: Auths, channels: Any) -> None:
    """Edge case 1 of the RFD: with no healthy connection RPCs go over the unhealthy one, and none fails."""
    only = await auths("a")
    channel = channels(only)
    await channel.channel_ready()
    only.turn(healthy=False)
    await eventually(lambda: only.configs_asked > 3)
    for _ in range(20):
        assert await who(channel) == "a"
    assert channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
    assert channel.moves == 0


async def test_old_connection_that_recovers_first(auths: Auths, channels: Any) -> None:
    """Edge case 3 of the RFD: the attempts end, and the old connection is the same as before."""
    only = await auths("a")
    channel = channels(only, settings=Settings(first_wait=0.0, base=30.0))
    await channel.channel_ready()
    before = channel.connection
    only.turn(healthy=False)
    await eventually(lambda: only.watches == 2)
    only.turn(healthy=True)
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.READY)
    await eventually(lambda: channel._balancer.backup is None or channel.moves == 1)
    assert (channel.connection, channel.moves) in ((before, 0), ((1, 1), 1))
    assert len(channel._connections) == 1


async def test_server_without_config_service(auths: Auths, channels: Any) -> None:
    """An old auth: pick_first, and it knows no better."""
    channel = channels(await auths("a", None))
    await channel.channel_ready()
    assert await who(channel) == "a"
    assert (channel.policy.mode, channel.policy.health_check, channel.policy.auth_id) == (
        Mode.PICK_FIRST,
        False,
        "",
    )


async def test_server_without_health_service(auths: Auths, channels: Any) -> None:
    """Healthy as far as one can know; it does not say that it watches."""
    channel = channels(await auths("a", health=False))
    await channel.channel_ready()
    await eventually(lambda: not channel.policy.health_check)
    assert channel.policy.mode is Mode.RECONNECT


async def test_config_that_fails_at_first(
    auths: Auths, channels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RPCs flow meanwhile, and the question is asked again."""
    monkeypatch.setattr("fleet.transport.pick_healthy.connection.wait_again", lambda *_: 0.05)
    auth = await auths("a")
    auth.config_fails = grpc.StatusCode.UNAVAILABLE
    channel = channels(auth)
    await channel.channel_ready()
    assert await who(channel) == "a"
    assert channel.policy is None
    auth.config_fails = None
    await eventually(lambda: channel.policy is not None and channel.policy.health_check)


async def test_server_that_restarts(auths: Auths, channels: Any) -> None:
    """The config is asked for on each new connection, once."""
    auth = await auths("a")
    channel = channels(auth)
    await channel.channel_ready()
    before = channel.connection
    await auth.stop()
    await eventually(lambda: channel.get_state() is not grpc.ChannelConnectivity.READY)
    await auth.start()
    await channel.channel_ready()
    assert channel.connection > before
    assert auth.configs_asked == 2


async def test_periodic_reconnect(auths: Auths, channels: Any) -> None:
    """New RPCs move now and then; a long stream stays where it is."""
    auth = await auths("a")
    channel = channels(auth, settings=Settings(reconnect_every=0.2))
    await channel.channel_ready()
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await stream.read() == b"a"
    await eventually(lambda: channel.moves >= 2)
    assert await who(channel) == "a"
    auth.streams[0].put_nowait(b"still here")
    assert await stream.read() == b"still here"


async def test_tells_of_changes(auths: Auths, channels: Any) -> None:
    """Its owner hears of another connection and of another policy, and of nothing else."""
    first, second = await auths("a"), await auths("b")
    heard: list[Any] = []
    channel = channels(first, second, changed=lambda: heard.append((channel.connection, channel.policy)))
    await channel.channel_ready()
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
    assert await channel.unary_unary("/fake.Who/Unary", None, None)(b"", timeout=5) == b"a"
    async with channel as same:
        assert same is channel
    with pytest.raises(grpc.aio.UsageError):
        await who(channel)


async def test_policy_that_cannot_be_read(
    auths: Auths, channels: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told and counted, and the server is used as one that has no policy."""
    auth = await auths("a")
    auth.config_is_garbage = True
    refusals: list[None] = []
    channel = channels(auth, refused=lambda: refusals.append(None))
    await channel.channel_ready()
    assert await who(channel) == "a"
    assert len(refusals) == 1
    assert caplog.text.count("service-config.refused: channel: of auth 'a'") == 1
    assert auth.configs_asked == 1
