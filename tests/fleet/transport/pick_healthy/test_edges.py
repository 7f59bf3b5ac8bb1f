"""Connections that end in every way and at any time, which neither the RFD nor Teleport's balancer specifies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.local.forwards import Forward
from fleet.protocol.recovery.pick_healthy import BalancerSettings, RetireReason
from fleet.protocol.recovery.service_config import ServiceConfig
from fleet.transport.channels import KeepaliveSettings
from tests.fakes.auths import FakeAuth, await_policy
from tests.fakes.waiting import eventually

Auths = Callable[..., Awaitable[FakeAuth]]
Forwards = Callable[[FakeAuth], Awaitable[Forward]]

FAST = BalancerSettings(first_wait=0.0, base=0.02, ceiling=0.02)


async def responding_auth(channel: Any, **kwargs: Any) -> str:
    """Return the name of the auth that responds to a new call."""
    response: bytes = await channel.unary_unary("/fake.Who/Unary")(b"", **{"timeout": 30} | kwargs)
    return response.decode()


async def wait_for_auth(channel: Any, name: str) -> None:
    async def has_moved() -> bool:
        return await responding_auth(channel, wait_for_ready=True) == name

    await eventually(has_moved)


async def test_old_connection_is_closed_after_its_last_stream(
    auths: Auths, forwards: Forwards, channels: Any
) -> None:
    """The forward counts the connections, independently of the channel."""
    first, second = await auths("a"), await auths("b")
    forward, second_forward = await forwards(first), await forwards(second)
    retire_reasons: list[RetireReason] = []
    channel = channels(forward, second_forward, on_retire=retire_reasons.append)
    await await_policy(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await stream.read() == b"a"
    first.set_health(healthy=False)
    await wait_for_auth(channel, "b")
    first.streams[0].put_nowait(b"still")
    assert await stream.read() == b"still"
    # Attempts that reached the unhealthy server have ended; the connection with the stream has not.
    await eventually(lambda: len(forward.pairs) == 1)
    first.streams[0].put_nowait(None)
    assert await stream.read() is grpc.aio.EOF
    # grpc keeps a connection while any of its calls is referenced, even an ended one.
    del stream
    await eventually(lambda: len(forward.pairs) == 0)
    assert len(second_forward.pairs) == 1
    assert retire_reasons[-1] is RetireReason.MOVED
    assert set(retire_reasons[:-1]) <= {RetireReason.REPLACED}


async def test_goaway_of_the_current_connection(auths: Auths, channels: Any) -> None:
    """When a server shuts down, new calls go to another one at once; its stream finishes there."""
    first, second = await auths("a"), await auths("b")
    channel = channels(first, second)
    await await_policy(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await stream.read() == b"a"
    stop_task = asyncio.create_task(first.stop(grace=30))

    async def has_moved() -> bool:
        try:
            # A call in transit may be left without a response: it ends long before the grace period of the stream.
            return await responding_auth(channel, timeout=3, wait_for_ready=True) == "b"
        except grpc.RpcError:
            return False  # the call was in transit when the server stopped

    await eventually(has_moved)
    first.streams[0].put_nowait(b"last words")
    assert await stream.read() == b"last words"
    first.streams[0].put_nowait(None)
    assert await stream.read() is grpc.aio.EOF
    await stop_task
    await eventually(lambda: channel.policy is not None and channel.policy.auth_id == "b")
    assert second.configs_asked == 1
    # The balancer did not move: pick_first itself found another server, where health is watched.
    assert channel.move_count == 0
    await eventually(lambda: channel.policy.health_check)


async def test_call_in_progress_when_the_connection_breaks(
    auths: Auths, forwards: Forwards, channels: Any
) -> None:
    """It fails with UNAVAILABLE, as the server may have executed it; later calls get a response. A call that
    starts while gRPC detects the break may be lost, as on any gRPC channel.
    """
    first, second = await auths("a"), await auths("b")
    forward = await forwards(first)
    channel = channels(forward, second)
    await await_policy(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await stream.read() == b"a"
    await forward.change(mode=ForwardMode.CUT)
    with pytest.raises(grpc.RpcError) as caught:
        await stream.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    async def is_answered() -> bool:
        try:
            return await responding_auth(channel, wait_for_ready=True) == "b"
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return False

    await eventually(is_answered)


async def test_both_unhealthy(auths: Auths, channels: Any) -> None:
    """Calls succeed all the time, attempts follow each other, and the first healthy server is used."""
    first, second = await auths("a"), await auths("b")
    second.set_health(healthy=False)
    channel = channels(first, second)
    await await_policy(channel)
    first.set_health(healthy=False)
    await eventually(lambda: first.watches + second.watches > 6)
    assert await responding_auth(channel) == "a"
    assert channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
    second.set_health(healthy=True)
    await wait_for_auth(channel, "b")
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.READY)


async def test_backup_fails_while_it_connects(auths: Auths, forwards: Forwards, channels: Any) -> None:
    """Its connection hangs and is then cut: calls continue, and the next attempt may succeed."""
    first, second = await auths("a"), await auths("b")
    forward = await forwards(second)
    await forward.change(mode=ForwardMode.HOLD)
    channel = channels(first, forward)
    await await_policy(channel)
    first.set_health(healthy=False)
    await eventually(lambda: forward.accepted_count > 0)
    assert await responding_auth(channel) == "a"
    await forward.change(mode=ForwardMode.CUT)
    assert await responding_auth(channel) == "a"
    await forward.change(mode=ForwardMode.PASS)
    await wait_for_auth(channel, "b")


async def test_backup_fails_before_its_policy_arrives(auths: Auths, channels: Any) -> None:
    first, second = await auths("a"), await auths("b")
    channel = channels(first, second)
    await await_policy(channel)
    second.answer_event.clear()
    first.set_health(healthy=False)
    await eventually(lambda: second.configs_asked > 0)
    await second.stop()
    assert await responding_auth(channel) == "a"
    second.answer_event.set()
    await second.start()
    await wait_for_auth(channel, "b")


async def test_frozen_server_is_left_once_pings_fail(auths: Auths, forwards: Forwards, channels: Any) -> None:
    """It does not even report its health: pings detect the dead peer, and pick_first moves."""
    first, second = await auths("a"), await auths("b")
    forward = await forwards(first)
    channel = channels(forward, second, keepalive=KeepaliveSettings(ping_after=0.2, answer_within=0.5))
    await await_policy(channel)
    await forward.change(mode=ForwardMode.HOLD)
    await eventually(lambda: channel.policy is not None and channel.policy.auth_id == "b")
    # On a busy machine a healthy server may miss a ping, too.
    await wait_for_auth(channel, "b")
    await forward.change(mode=ForwardMode.PASS)


async def test_policy_changes_to_pick_first(auths: Auths, channels: Any) -> None:
    """A new connection brings the new policy: then an unhealthy server is not left."""
    auth = await auths("a")
    channel = channels(auth)
    await await_policy(channel)
    await auth.stop()
    auth.config = ServiceConfig()
    await auth.start()
    await eventually(lambda: channel.policy is not None and channel.policy.mode == "pick_first")
    watches = auth.watches
    auth.set_health(healthy=False)
    for _ in range(20):
        assert await responding_auth(channel) == "a"
    # The lost connection may have started one more watch.
    assert auth.watches <= watches + 1
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.READY)
