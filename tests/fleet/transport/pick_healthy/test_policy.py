"""Behaviour of the policy with both kinds of channel. Tests with Teleport's names where they are the same."""

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
from tests.fakes.auths import FakeAuth, await_policy
from tests.fakes.waiting import eventually

Auths = Callable[..., Awaitable[FakeAuth]]
Forwards = Callable[[FakeAuth], Awaitable[Forward]]


async def responding_auth(channel: Any, **kwargs: Any) -> str:
    """Return the name of the auth that responds to a new call."""
    response: bytes = await channel.unary_unary("/fake.Who/Unary")(b"", timeout=30, **kwargs)
    return response.decode()


async def wait_for_auth(channel: Any, name: str) -> None:
    """Wait until that auth responds; every call until then gets a response."""

    async def has_moved() -> bool:
        return await responding_auth(channel) == name

    await eventually(has_moved)


async def responding_auth_after_a_loss(channel: Any) -> str:
    """Return the auth that responds once gRPC knows that a connection is lost; an earlier call may be lost,
    too.
    """
    auth_names: list[str] = []

    async def is_answered() -> bool:
        try:
            auth_names.append(await responding_auth(channel, wait_for_ready=True))
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
        return bool(auth_names)

    await eventually(is_answered)
    return auth_names[0]


async def test_pick_first_mode_health_and_reconnect(auths: Auths, channels: Any) -> None:
    """TestPickFirstModeHealthAndReconnect: an unhealthy server is kept, a stopped one is left."""
    first, second = await auths("a", ServiceConfig()), await auths("b", ServiceConfig())
    channel = channels(first, second)
    assert await responding_auth(channel) == "a"
    await eventually(lambda: channel.policy is not None)
    first.set_health(healthy=False)
    for _ in range(20):
        assert await responding_auth(channel) == "a"
    assert (first.watches, second.configs_asked) == (0, 0)
    await first.stop()
    assert await responding_auth_after_a_loss(channel) == "b"
    await eventually(lambda: channel.policy is not None and channel.policy.auth_id == "b")
    assert second.configs_asked == 1


async def test_next_server_gets_a_config_request_after_a_quick_reconnect(auths: Auths, channels: Any) -> None:
    """Loss and reconnect may happen between two looks: READY follows READY."""
    current_auth, next_auth = await auths("a", ServiceConfig()), await auths("b", ServiceConfig())
    channel = channels(current_auth, next_auth)
    assert await responding_auth(channel) == "a"
    for _ in range(20):
        await eventually(
            lambda current_auth=current_auth: (
                channel.policy is not None and channel.policy.auth_id == current_auth.name
            )
        )
        await current_auth.stop()
        assert await responding_auth_after_a_loss(channel) == next_auth.name
        await current_auth.start()
        current_auth, next_auth = next_auth, current_auth


async def test_failing_callback_does_not_affect_the_channel(
    auths: Auths, channels: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is logged, as with grpc's own channels: unhealthy servers are still left, twice."""

    def fail(reason: RetireReason) -> None:
        raise KeyError(reason)

    first, second = await auths("a"), await auths("b")
    channel = channels(first, second, on_retire=fail)
    await await_policy(channel)
    assert await responding_auth(channel) == "a"
    first.set_health(healthy=False)
    await wait_for_auth(channel, "b")
    await eventually(lambda: "a callback of the channel's user failed" in caplog.text)
    first.set_health(healthy=True)
    second.set_health(healthy=False)
    await wait_for_auth(channel, "a")


async def test_reconnect_mode_health_and_reconnect(auths: Auths, channels: Any) -> None:
    """TestReconnectModeHealthAndReconnect: it moves; if only the unhealthy server is left, calls still
    succeed.
    """
    first, second = await auths("a"), await auths("b")
    channel = channels(first, second)
    await await_policy(channel)
    assert await responding_auth(channel) == "a"
    policy = channel.policy
    assert (policy.mode, policy.health_check, policy.auth_id) == (
        service_config.PickHealthyMode.RECONNECT,
        True,
        "a",
    )
    first.set_health(healthy=False)
    await wait_for_auth(channel, "b")
    # Calls move first; `policy` changes after that, in another thread for the blocking channel.
    await eventually(lambda: channel.policy.auth_id == "b")
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.READY)
    assert channel.move_count == 1
    await second.stop()
    # Only the unhealthy server is left, which is better than none.
    assert await responding_auth_after_a_loss(channel) == "a"
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE)
    assert await responding_auth(channel) == "a"


async def test_balancer_mode_change(auths: Auths, channels: Any) -> None:
    """TestBalancerModeChange: a pick_first server is replaced by one in reconnect mode; the mode is adopted."""
    first, second = await auths("a", ServiceConfig()), await auths("b")
    channel = channels(first, second)
    await await_policy(channel)
    assert channel.policy.mode is service_config.PickHealthyMode.PICK_FIRST
    await first.stop()
    first.config = ServiceConfig(service_config.PickHealthyMode.RECONNECT, "")
    await first.start()
    await eventually(
        lambda: channel.policy is not None and channel.policy.mode is service_config.PickHealthyMode.RECONNECT
    )
    current_auth = first if channel.policy.auth_id == "a" else second
    other_auth = second if current_auth is first else first
    current_auth.set_health(healthy=False)
    await wait_for_auth(channel, other_auth.name)


async def test_connect_timeout(auths: Auths, channels: Any) -> None:
    """TestConnectTimeout: GetServiceConfig blocks; calls continue, and another server is found."""
    first, second = await auths("a"), await auths("b")
    channel = channels(
        first, second, settings=BalancerSettings(first_wait=0.0, base=0.02, ceiling=0.02, connect_within=0.3)
    )
    await await_policy(channel)
    first.answer_event.clear()
    await first.stop()
    await first.start()
    assert await responding_auth_after_a_loss(channel) in {"a", "b"}
    await wait_for_auth(channel, "b")
    first.answer_event.set()


async def test_drain_timeout(auths: Auths, channels: Any) -> None:
    """After a drain timeout the streams of a retired connection are cancelled."""
    first, second = await auths("a"), await auths("b")
    channel = channels(
        first, second, settings=BalancerSettings(first_wait=0.0, base=0.02, ceiling=0.02, drain_timeout=0.1)
    )
    await await_policy(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await stream.read() == b"a"
    first.set_health(healthy=False)
    await wait_for_auth(channel, "b")
    assert await asyncio.wait_for(stream.code(), 60) is grpc.StatusCode.CANCELLED


async def test_unhealthy_connection_is_used_without_alternative(auths: Auths, channels: Any) -> None:
    """Edge case 1 of the RFD: calls use the unhealthy connection, and none fails."""
    auth = await auths("a")
    channel = channels(auth)
    await await_policy(channel)
    auth.set_health(healthy=False)
    await eventually(lambda: auth.configs_asked > 3)
    for _ in range(20):
        assert await responding_auth(channel) == "a"
    assert channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
    assert channel.move_count == 0


async def test_old_connection_recovers_first(auths: Auths, forwards: Forwards, channels: Any) -> None:
    """Edge case 3 of the RFD: the pending attempt is dropped, and the connection stays the same."""
    first, second = await auths("a"), await auths("b")
    first_forward, second_forward = await forwards(first), await forwards(second)
    await second_forward.change(mode=ForwardMode.HOLD)
    retire_reasons: list[RetireReason] = []
    channel = channels(first_forward, second_forward, on_retire=retire_reasons.append)
    await await_policy(channel)
    first.set_health(healthy=False)
    await eventually(lambda: second_forward.accepted_count > 0)
    first.set_health(healthy=True)
    await await_policy(channel)
    await eventually(lambda: retire_reasons[-1:] == [RetireReason.RECOVERED])
    assert set(retire_reasons[:-1]) <= {RetireReason.REPLACED}
    assert channel.move_count == 0
    assert await responding_auth(channel) == "a"
    await second_forward.change(mode=ForwardMode.PASS)  # the forward detects the end of its client
    await eventually(lambda: (len(first_forward.pairs), len(second_forward.pairs)) == (1, 0))


async def test_server_without_config_service(auths: Auths, channels: Any) -> None:
    """An old auth: the mode is pick_first."""
    channel = channels(await auths("a", None))
    await await_policy(channel)
    assert await responding_auth(channel) == "a"
    assert (channel.policy.mode, channel.policy.health_check, channel.policy.auth_id) == (
        service_config.PickHealthyMode.PICK_FIRST,
        False,
        "",
    )


async def test_server_without_health_service(auths: Auths, channels: Any) -> None:
    """It counts as healthy, and not as watched."""
    channel = channels(await auths("a", health=False))
    await await_policy(channel)
    await eventually(lambda: not channel.policy.health_check)
    assert channel.policy.mode is service_config.PickHealthyMode.RECONNECT


async def test_failed_config_request_is_repeated(
    auths: Auths, channels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls succeed meanwhile."""
    for kind in ("connection", "blocking_connection"):
        monkeypatch.setattr(f"fleet.transport.pick_healthy.{kind}.seconds_before_retry", lambda *_: 0.05)
    auth = await auths("a")
    auth.config_fails = grpc.StatusCode.UNAVAILABLE
    channel = channels(auth)
    await channel.channel_ready()
    assert await responding_auth(channel) == "a"
    assert channel.policy is None
    auth.config_fails = None
    await eventually(lambda: channel.policy is not None and channel.policy.health_check)


async def test_restarted_server_gets_one_config_request(auths: Auths, channels: Any) -> None:
    """The config is requested once for each new connection."""
    auth = await auths("a")
    channel = channels(auth)
    await await_policy(channel)
    received_at_before = channel.policy.received_at
    await auth.stop()
    await eventually(lambda: channel.get_state() is not grpc.ChannelConnectivity.READY)
    await auth.start()
    await await_policy(channel)
    await eventually(lambda: channel.policy.received_at > received_at_before)
    assert auth.configs_asked == 2


async def test_periodic_reconnect(auths: Auths, channels: Any) -> None:
    """New calls move periodically; a long stream stays on its connection."""
    auth = await auths("a")
    channel = channels(auth, settings=BalancerSettings(reconnect_every=0.2))
    await await_policy(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await stream.read() == b"a"
    await eventually(lambda: channel.move_count >= 2)
    assert await responding_auth(channel) == "a"
    auth.streams[0].put_nowait(b"still here")
    assert await stream.read() == b"still here"


async def test_unreadable_policy_is_logged_and_counted(
    auths: Auths, channels: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The server is used like one without a policy."""
    auth = await auths("a")
    auth.config_is_garbage = True
    refusals: list[None] = []
    channel = channels(auth, on_unreadable_policy=lambda: refusals.append(None))
    await await_policy(channel)
    assert await responding_auth(channel) == "a"
    assert len(refusals) == 1
    assert caplog.text.count("service-config.unreadable: channel: policy of auth 'a'") == 1
    assert auth.configs_asked == 1


async def test_unhealthy_backup_without_a_policy_is_not_used(auths: Auths, channels: Any) -> None:
    """A failed config request is no sign of health: calls stay on the first server, and its recovery is
    detected.
    """
    first, second = await auths("a"), await auths("b")
    channel = channels(first, second)
    await await_policy(channel)
    second.config_fails = grpc.StatusCode.UNAVAILABLE
    second.set_health(healthy=False)
    first.set_health(healthy=False)
    await eventually(lambda: second.configs_asked > 2 and second.watches > 2)
    assert channel.move_count == 0
    assert await responding_auth(channel) == "a"
    first.set_health(healthy=True)
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.READY)
    assert await responding_auth(channel) == "a"


async def test_healthy_backup_without_a_policy_is_used(auths: Auths, channels: Any) -> None:
    """The last known policy and its watch apply: it becomes active, and is left when it becomes unhealthy."""
    first, second = await auths("a"), await auths("b")
    channel = channels(first, second)
    await await_policy(channel)
    second.config_fails = grpc.StatusCode.INTERNAL
    first.set_health(healthy=False)
    await wait_for_auth(channel, "b")
    await eventually(lambda: channel.move_count == 1)
    policy = channel.policy
    assert (policy.mode, policy.health_check, policy.auth_id) == (
        service_config.PickHealthyMode.RECONNECT,
        True,
        "a",
    )
    first.set_health(healthy=True)
    second.set_health(healthy=False)
    await wait_for_auth(channel, "a")


async def test_state_before_the_policy_arrives(auths: Auths, channels: Any) -> None:
    """First policy: READY, as with pick_first. A later one: READY once the last policy's watch reports
    SERVING.
    """
    auth = await auths("a")
    auth.answer_event.clear()
    channel = channels(auth)
    await channel.channel_ready()
    assert channel.policy is None
    auth.answer_event.set()
    await await_policy(channel)
    auth.answer_event.clear()
    await auth.stop()
    await eventually(lambda: channel.get_state() is not grpc.ChannelConnectivity.READY)
    await auth.start()
    await channel.channel_ready()
    auth.set_health(healthy=False)
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE)
    auth.answer_event.set()


async def test_state_of_a_lost_connection_is_never_idle(auths: Auths, channels: Any) -> None:
    """In pick_first mode, too, it reconnects without a call. docs/reference/pick-healthy.md, "Channel state"."""
    auth = await auths("a", ServiceConfig())
    channel = channels(auth)
    await await_policy(channel)
    await auth.stop()
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE)
    await auth.start()
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.READY)


async def test_unknown_health_service_falls_back_to_the_whole_server(
    auths: Auths, channels: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The channel is READY with a reported problem, and still leaves an unhealthy server."""
    service_config_with_name = ServiceConfig(service_config.PickHealthyMode.RECONNECT, "fleet.Agents")
    first, second = await auths("a", service_config_with_name), await auths("b", service_config_with_name)
    first.unknown_services = second.unknown_services = {"fleet.Agents"}
    channel = channels(first, second)
    await await_policy(channel)
    await eventually(
        lambda: channel.policy.problem.startswith("SERVICE_UNKNOWN: no health service 'fleet.Agents'")
    )
    assert (channel.move_count, second.configs_asked, channel.policy.health_check) == (0, 0, True)
    assert caplog.text.count("health.service-unknown") == 1
    first.set_health(healthy=False)
    await wait_for_auth(channel, "b")
