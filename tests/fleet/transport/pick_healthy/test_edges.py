"""What the RFD and facts of upstream's balancer leave to chance: connections that end in every way, at every moment."""

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
from fleet.transport.channels import DeadPeer
from tests.fakes.auths import FakeAuth, balanced
from tests.fakes.waiting import eventually

Auths = Callable[..., Awaitable[FakeAuth]]
Forwards = Callable[[FakeAuth], Awaitable[Forward]]

FAST = BalancerSettings(first_wait=0.0, base=0.02, ceiling=0.02)


async def who(channel: Any, **kwargs: Any) -> str:
    """Which server answers an RPC that begins now."""
    answer: bytes = await channel.unary_unary("/fake.Who/Unary")(b"", timeout=30, **kwargs)
    return answer.decode()


async def answered_by(channel: Any, name: str) -> None:
    async def moved() -> bool:
        return await who(channel, wait_for_ready=True) == name

    await eventually(moved)


async def test_old_connection_is_really_closed(auths: Auths, forwards: Forwards, channels: Any) -> None:
    """After its last stream, and not before: seen from the wire, not from our own records."""
    first, second = await auths("a"), await auths("b")
    wire, other = await forwards(first), await forwards(second)
    left: list[RetireReason] = []
    channel = channels(wire, other, on_leave=left.append)
    await balanced(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await stream.read() == b"a"
    first.turn(healthy=False)
    await answered_by(channel, "b")
    first.streams[0].put_nowait(b"still")
    assert await stream.read() == b"still"
    # Attempts that chance led back to the sick server are gone by now; the one with the stream is not.
    await eventually(lambda: len(wire.links) == 1)
    first.streams[0].put_nowait(None)
    assert await stream.read() is grpc.aio.EOF
    # grpc keeps a connection for as long as anybody holds a call of it, an ended one too.
    del stream
    await eventually(lambda: len(wire.links) == 0)
    assert len(other.links) == 1
    assert left[-1] is RetireReason.MOVED
    assert set(left[:-1]) <= {RetireReason.REPLACED}


async def test_goaway_of_the_current_connection(auths: Auths, channels: Any) -> None:
    """A server that shuts down: new RPCs go to another at once, the stream it has finishes there."""
    first, second = await auths("a"), await auths("b")
    channel = channels(first, second)
    await balanced(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await stream.read() == b"a"
    ending = asyncio.create_task(first.stop(grace=30))

    async def moved() -> bool:
        try:
            return await who(channel, wait_for_ready=True) == "b"
        except grpc.RpcError:
            return False  # it was on its way when the server shut its door

    await eventually(moved)
    first.streams[0].put_nowait(b"last words")
    assert await stream.read() == b"last words"
    first.streams[0].put_nowait(None)
    assert await stream.read() is grpc.aio.EOF
    await ending
    await eventually(lambda: channel.policy is not None and channel.policy.auth_id == "b")
    assert second.configs_asked == 1
    # The balancer moved nothing: pick_first found another server by itself, and health is watched there.
    assert channel.moves == 0
    await eventually(lambda: channel.policy.health_check)


async def test_call_that_is_on_its_way_when_the_connection_breaks(
    auths: Auths, forwards: Forwards, channels: Any
) -> None:
    """It fails with UNAVAILABLE, for the server may have done it; those after it are answered.

    One that begins while gRPC still learns of the break may be lost with the connection, as on any channel of gRPC's.
    """
    first, second = await auths("a"), await auths("b")
    wire = await forwards(first)
    channel = channels(wire, second)
    await balanced(channel)
    stream = channel.unary_stream("/fake.Who/Down")(b"")
    assert await stream.read() == b"a"
    await wire.change(mode=ForwardMode.CUT)
    with pytest.raises(grpc.RpcError) as caught:
        await stream.read()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    async def answered() -> bool:
        try:
            return await who(channel, wait_for_ready=True) == "b"
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return False

    await eventually(answered)


async def test_both_unhealthy(auths: Auths, channels: Any) -> None:
    """RPCs flow all the time, one attempt follows the other, and the first server to be well is taken."""
    first, second = await auths("a"), await auths("b")
    second.turn(healthy=False)
    channel = channels(first, second)
    await balanced(channel)
    first.turn(healthy=False)
    await eventually(lambda: first.watches + second.watches > 6)
    assert await who(channel) == "a"
    assert channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
    second.turn(healthy=True)
    await answered_by(channel, "b")
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.READY)


async def test_backup_that_dies_while_it_connects(auths: Auths, forwards: Forwards, channels: Any) -> None:
    """Accepted and silent, then cut: it comes to nothing, RPCs go on, and the next attempt may get there."""
    first, second = await auths("a"), await auths("b")
    wire = await forwards(second)
    await wire.change(mode=ForwardMode.HOLD)
    channel = channels(first, wire)
    await balanced(channel)
    first.turn(healthy=False)
    await eventually(lambda: wire.accepted_count > 0)
    assert await who(channel) == "a"
    await wire.change(mode=ForwardMode.CUT)
    assert await who(channel) == "a"
    await wire.change(mode=ForwardMode.PASS)
    await answered_by(channel, "b")


async def test_backup_that_dies_while_it_is_asked(auths: Auths, channels: Any) -> None:
    """Connected, and its policy never came."""
    first, second = await auths("a"), await auths("b")
    channel = channels(first, second)
    await balanced(channel)
    second.answering.clear()
    first.turn(healthy=False)
    await eventually(lambda: second.configs_asked > 0)
    await second.stop()
    assert await who(channel) == "a"
    second.answering.set()
    await second.start()
    await answered_by(channel, "b")


async def test_frozen_server_is_left_once_pings_fail(auths: Auths, forwards: Forwards, channels: Any) -> None:
    """It says nothing any more, of its health either: the dead peer is found by pings, and pick_first moves."""
    first, second = await auths("a"), await auths("b")
    wire = await forwards(first)
    channel = channels(wire, second, dead_peer=DeadPeer(ping_after=0.2, answer_within=0.5))
    await balanced(channel)
    await wire.change(mode=ForwardMode.HOLD)
    await eventually(lambda: channel.policy is not None and channel.policy.auth_id == "b")
    # On a busy machine a ping may be missed by whoever is well, too.
    await answered_by(channel, "b")
    await wire.change(mode=ForwardMode.PASS)


async def test_policy_turns_back_to_pick_first(auths: Auths, channels: Any) -> None:
    """Learnt on a new connection, as the other way round: then an unhealthy server is not left any more."""
    auth = await auths("a")
    channel = channels(auth)
    await balanced(channel)
    await auth.stop()
    auth.config = ServiceConfig()
    await auth.start()
    await eventually(lambda: channel.policy is not None and channel.policy.mode == "pick_first")
    watches = auth.watches
    auth.turn(healthy=False)
    for _ in range(20):
        assert await who(channel) == "a"
    # The connection that was lost may have begun one more watch before it was told.
    assert auth.watches <= watches + 1
    await eventually(lambda: channel.get_state() is grpc.ChannelConnectivity.READY)
