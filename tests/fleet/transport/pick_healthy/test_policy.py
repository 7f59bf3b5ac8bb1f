"""What the policy does, for both kinds of channel. Upstream's tests by their names where they are the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.local.forwards import Forward
from fleet.protocol.recovery import service_config
from fleet.protocol.recovery.pick_healthy import BalancerSettings, RetireReason
from fleet.protocol.recovery.service_config import ServiceConfig
from tests.fakes.auths import FakeAuth, balanced
from tests.fakes.waiting import eventually

Auths = Callable[..., Awaitable[FakeAuth]]
Forwards = Callable[[FakeAuth], Awaitable[Forward]]


async def who(channel: Any, **kwargs: Any) -> str:
    """Which server answers an RPC that begins now."""
    answer: bytes = await channel.unary_unary("/fake.Who/Unary")(b"", timeout=30, **kwargs)
    return answer.decode()


async def answered_by(channel: Any, name: str) -> None:
    """Wait until RPCs are answered by that server; every one is answered."""

    async def moved() -> bool:
        return await who(channel) == name

    await eventually(moved)


async def after_a_loss(channel: Any) -> str:
    """Which server answers once gRPC knows that a connection is lost: a call that begins before may be lost with it."""
    answers: list[str] = []

    async def answered() -> bool:
        try:
            answers.append(await who(channel, wait_for_ready=True))
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        return bool(answers)

    await eventually(answered)
    return answers[0]


async def test_pick_first_mode_health_and_reconnect(auths: Auths, channels: Any) -> None:
    """TestPickFirstModeHealthAndReconnect: unhealthy, it must stay; stopped, it must move."""
    first, second = await auths("a", ServiceConfig()), await auths("b", ServiceConfig())
    channel = channels(first, second)
    assert await who(channel) == "a"
    await eventually(lambda: channel.policy is not None)
    first.turn(healthy=False)
    for _ in range(20):
        assert await who(channel) == "a"
    assert (first.watches, second.configs_asked) == (0, 0)
    await first.stop()
    assert await after_a_loss(channel) == "b"
    await eventually(lambda: channel.policy is not None and channel.policy.auth_id == "b")
    assert second.configs_asked == 1


async def test_next_server_is_asked_however_soon_it_is_connected(auths: Auths, channels: Any) -> None:
    """The loss and the next connection may both be over before anybody looks: READY after READY."""
    here, there = await auths("a", ServiceConfig()), await auths("b", ServiceConfig())
    channel = channels(here, there)
    assert await who(channel) == "a"
    for _ in range(20):
        await eventually(lambda here=here: channel.policy is not None and channel.policy.auth_id == here.name)
        await here.stop()
        assert await after_a_loss(channel) == there.name
        await here.start()
        here, there = there, here


async def test_callback_that_fails_stops_no_channel(
    auths: Auths, channels: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As with grpc's own channels its fault is a line in the log: sick servers are left all the same, twice."""

    def fail(why: RetireReason) -> None:
        raise KeyError(why)

    first, second = await auths("a"), await auths("b")
    channel = channels(first, second, on_leave=fail)
    await balanced(channel)
    assert await who(channel) == "a"
    first.turn(healthy=False)
    await answered_by(channel, "b")
    await eventually(lambda: "a callback of the channel's user failed" in caplog.text)
    first.turn(healthy=True)
    second.turn(healthy=False)
    await answered_by(channel, "a")


async def test_reconnect_mode_health_and_reconnect(auths: Auths, channels: Any) -> None:
    """TestReconnectModeHealthAndReconnect: it moves; with only the unhealthy server left RPCs still succeed."""
    first, second = await auths("a"), await auths("b")
    channel = channels(first, second)
    await balanced(channel)
    assert await who(channel) == "a"
    policy = channel.policy
    assert (policy.mode, policy.health_check, policy.auth_id) == (
        service_config.PickHealthyMode.RECONNECT,
        True,
        "a",
    )
    first.turn(healthy=False)
    await answered_by(channel, "b")
    # Calls move first; who asks is told after that, by another thread where there are threads.
    await eventually(lambda: channel.policy.auth_id == "b")
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.READY)
    assert channel.moves == 1
    await second.stop()
    # Only the unhealthy one is left; and an unhealthy connection is better than none.
    assert await after_a_loss(channel) == "a"
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE)
    assert await who(channel) == "a"


async def test_balancer_mode_change(auths: Auths, channels: Any) -> None:
    """TestBalancerModeChange: a pick_first server is replaced by one in reconnect mode; the mode is learnt."""
    first, second = await auths("a", ServiceConfig()), await auths("b")
    channel = channels(first, second)
    await balanced(channel)
    assert channel.policy.mode is service_config.PickHealthyMode.PICK_FIRST
    await first.stop()
    first.config = ServiceConfig(service_config.PickHealthyMode.RECONNECT, "")
    await first.start()
    await eventually(
        lambda: channel.policy is not None and channel.policy.mode is service_config.PickHealthyMode.RECONNECT
    )
    held = first if channel.policy.auth_id == "a" else second
    other = second if held is first else first
    held.turn(healthy=False)
    await answered_by(channel, other.name)


async def test_connect_timeout(auths: Auths, channels: Any) -> None:
    """TestConnectTimeout: GetServiceConfig blocks; RPCs go on, and another server is found."""
    first, second = await auths("a"), await auths("b")
    channel = channels(
        first, second, settings=BalancerSettings(first_wait=0.0, base=0.02, ceiling=0.02, connect_within=0.3)
    )
    await balanced(channel)
    first.answering.clear()
    await first.stop()
    await first.start()
    assert await after_a_loss(channel) in {"a", "b"}
    await answered_by(channel, "b")
    first.answering.set()


async def test_drain_timeout(auths: Auths, channels: Any) -> None:
    """With a drain timeout the streams of a connection that was left are ended, and counted in the log."""
    first, second = await auths("a"), await auths("b")
    channel = channels(
        first, second, settings=BalancerSettings(first_wait=0.0, base=0.02, ceiling=0.02, drain_timeout=0.1)
    )
    await balanced(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await stream.read() == b"a"
    first.turn(healthy=False)
    await answered_by(channel, "b")
    assert await asyncio.wait_for(stream.code(), 60) is grpc.StatusCode.CANCELLED


async def test_nothing_better(auths: Auths, channels: Any) -> None:
    """Edge case 1 of the RFD: with no healthy connection RPCs go over the unhealthy one, and none fails."""
    only = await auths("a")
    channel = channels(only)
    await balanced(channel)
    only.turn(healthy=False)
    await eventually(lambda: only.configs_asked > 3)
    for _ in range(20):
        assert await who(channel) == "a"
    assert channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
    assert channel.moves == 0


async def test_old_connection_recovers_first(auths: Auths, forwards: Forwards, channels: Any) -> None:
    """Edge case 3 of the RFD: the attempt that got nowhere is given up, and the old connection is still the same."""
    first, second = await auths("a"), await auths("b")
    wire, silent = await forwards(first), await forwards(second)
    await silent.change(mode=ForwardMode.HOLD)
    left: list[RetireReason] = []
    channel = channels(wire, silent, on_leave=left.append)
    await balanced(channel)
    first.turn(healthy=False)
    await eventually(lambda: silent.accepted_count > 0)
    first.turn(healthy=True)
    await balanced(channel)
    await eventually(lambda: left[-1:] == [RetireReason.RECOVERED])
    assert set(left[:-1]) <= {RetireReason.REPLACED}
    assert channel.moves == 0
    assert await who(channel) == "a"
    await silent.change(mode=ForwardMode.PASS)  # it sees that its client is gone
    await eventually(lambda: (len(wire.links), len(silent.links)) == (1, 0))


async def test_server_without_config_service(auths: Auths, channels: Any) -> None:
    """An old auth: pick_first, and it knows no better."""
    channel = channels(await auths("a", None))
    await balanced(channel)
    assert await who(channel) == "a"
    assert (channel.policy.mode, channel.policy.health_check, channel.policy.auth_id) == (
        service_config.PickHealthyMode.PICK_FIRST,
        False,
        "",
    )


async def test_server_without_health_service(auths: Auths, channels: Any) -> None:
    """Healthy as far as one can know; it does not say that it watches."""
    channel = channels(await auths("a", health=False))
    await balanced(channel)
    await eventually(lambda: not channel.policy.health_check)
    assert channel.policy.mode is service_config.PickHealthyMode.RECONNECT


async def test_config_that_fails_at_first(
    auths: Auths, channels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RPCs flow meanwhile, and the question is asked again."""
    for kind in ("connection", "blocking_connection"):
        monkeypatch.setattr(f"fleet.transport.pick_healthy.{kind}.wait_again", lambda *_: 0.05)
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
    await balanced(channel)
    before = channel.policy.read_at
    await auth.stop()
    await eventually(lambda: channel.get_state() is not grpc.ChannelConnectivity.READY)
    await auth.start()
    await balanced(channel)
    await eventually(lambda: channel.policy.read_at > before)
    assert auth.configs_asked == 2


async def test_periodic_reconnect(auths: Auths, channels: Any) -> None:
    """New RPCs move now and then; a long stream stays where it is."""
    auth = await auths("a")
    channel = channels(auth, settings=BalancerSettings(reconnect_every=0.2))
    await balanced(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await stream.read() == b"a"
    await eventually(lambda: channel.moves >= 2)
    assert await who(channel) == "a"
    auth.streams[0].put_nowait(b"still here")
    assert await stream.read() == b"still here"


async def test_policy_that_cannot_be_read(
    auths: Auths, channels: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told and counted, and the server is used as one that has no policy."""
    auth = await auths("a")
    auth.config_is_garbage = True
    refusals: list[None] = []
    channel = channels(auth, on_unreadable=lambda: refusals.append(None))
    await balanced(channel)
    assert await who(channel) == "a"
    assert len(refusals) == 1
    assert caplog.text.count("service-config.refused: channel: policy of auth 'a'") == 1
    assert auth.configs_asked == 1


async def test_sick_backup_that_cannot_tell_its_policy(auths: Auths, channels: Any) -> None:
    """A failed question is no sign of health: RPCs stay on the first server, and its recovery is noticed."""
    first, second = await auths("a"), await auths("b")
    channel = channels(first, second)
    await balanced(channel)
    second.config_fails = grpc.StatusCode.UNAVAILABLE
    second.turn(healthy=False)
    first.turn(healthy=False)
    await eventually(lambda: second.configs_asked > 2 and second.watches > 2)
    assert channel.moves == 0
    assert await who(channel) == "a"
    first.turn(healthy=True)
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.READY)
    assert await who(channel) == "a"


async def test_healthy_backup_that_cannot_tell_its_policy(auths: Auths, channels: Any) -> None:
    """The last known policy stays in force on it, with its watch: it is taken, and left when it falls sick."""
    first, second = await auths("a"), await auths("b")
    channel = channels(first, second)
    await balanced(channel)
    second.config_fails = grpc.StatusCode.INTERNAL
    first.turn(healthy=False)
    await answered_by(channel, "b")
    await eventually(lambda: channel.moves == 1)
    policy = channel.policy
    assert (policy.mode, policy.health_check, policy.auth_id) == (
        service_config.PickHealthyMode.RECONNECT,
        True,
        "a",
    )
    first.turn(healthy=True)
    second.turn(healthy=False)
    await answered_by(channel, "a")


async def test_state_while_the_policy_hangs(auths: Auths, channels: Any) -> None:
    """The first policy: READY as pick_first is. A later one: READY when the watch of the last policy says SERVING."""
    auth = await auths("a")
    auth.answering.clear()
    channel = channels(auth)
    await channel.channel_ready()
    assert channel.policy is None
    auth.answering.set()
    await balanced(channel)
    auth.answering.clear()
    await auth.stop()
    await eventually(lambda: channel.get_state() is not grpc.ChannelConnectivity.READY)
    await auth.start()
    await channel.channel_ready()
    auth.turn(healthy=False)
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE)
    auth.answering.set()


async def test_state_of_a_lost_connection_is_never_idle(auths: Auths, channels: Any) -> None:
    """In pick_first too: it is made again without an RPC that asks for it.

    docs/reference/pick-healthy.md, "Channel state".
    """
    auth = await auths("a", ServiceConfig())
    channel = channels(auth)
    await balanced(channel)
    await auth.stop()
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE)
    await auth.start()
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.READY)


async def test_service_that_no_server_knows(
    auths: Auths, channels: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The health of the whole server counts: the channel is READY and says why, and still leaves a sick server."""
    named = ServiceConfig(service_config.PickHealthyMode.RECONNECT, "fleet.Agents")
    first, second = await auths("a", named), await auths("b", named)
    first.unknown_services = second.unknown_services = {"fleet.Agents"}
    channel = channels(first, second)
    await balanced(channel)
    await eventually(
        lambda: channel.policy.problem.startswith("SERVICE_UNKNOWN: no health service 'fleet.Agents'")
    )
    assert (channel.moves, second.configs_asked, channel.policy.health_check) == (0, 0, True)
    assert caplog.text.count("health.service_unknown") == 1
    first.turn(healthy=False)
    await answered_by(channel, "b")
