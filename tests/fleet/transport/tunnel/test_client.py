"""Tunnel client on real gRPC: its life, its sessions, and its notifications."""

from __future__ import annotations

import asyncio

import pytest

from fleet.protocol.tunnel.client_state import OpenStream
from fleet.protocol.tunnel.messages import Target, TunnelError, WireVersion
from fleet.protocol.tunnel.server_state import Limits
from fleet.transport.tunnel.client import RegisterEndedError, TunnelClient
from fleet.transport.tunnel.handlers import AcceptedSession
from fleet.transport.tunnel.server import TunnelServer
from tests.fakes.tunnel import SSH, Ground, echo, refusing, still_works, taking
from tests.fakes.waiting import eventually


async def test_run_without_a_server_ends_with_the_reason(ground: Ground) -> None:
    client = TunnelClient(ground.channel("127.0.0.1:1"))
    with pytest.raises(RegisterEndedError, match=r"(?i)connect"):
        await client.run([SSH])


async def test_run_twice_at_once_is_refused_and_the_first_goes_on(ground: Ground) -> None:
    """The second run is refused; after the end of the first one a new run works."""
    tunnel = TunnelServer()
    tunnel_client = await ground.client(await ground.server(tunnel), SSH, handler=taking(echo))
    with pytest.raises(TunnelError, match="is already running"):
        await tunnel_client.client.run([SSH])
    stream = await tunnel.open_session(SSH)
    await still_works(stream)
    await stream.close()
    tunnel_client.client.stop()
    with pytest.raises(RegisterEndedError):
        await tunnel_client.task
    await eventually(lambda: SSH not in tunnel.targets())
    second_run = asyncio.create_task(tunnel_client.client.run([SSH]))
    await eventually(lambda: SSH in tunnel.targets())
    tunnel_client.client.stop()
    with pytest.raises(RegisterEndedError):
        await second_run


async def test_session_before_run_is_refused(ground: Ground) -> None:
    client = TunnelClient(ground.channel("127.0.0.1:1"))
    with pytest.raises(TunnelError, match="not registered"):
        await client.open_session(SSH)


@pytest.mark.parametrize("wire", WireVersion)
async def test_session_requested_by_the_client_is_served(ground: Ground, wire: WireVersion) -> None:
    """The server's handler serves it, in both versions."""
    address = await ground.server(TunnelServer(wire, handler=taking(echo)))
    tunnel_client = await ground.client(address, wire=wire)
    stream = await tunnel_client.client.open_session(SSH)
    assert stream.tag < 0
    await still_works(stream)
    await stream.close()


@pytest.mark.parametrize("wire", WireVersion)
async def test_session_that_the_server_refuses_ends_nothing_else(ground: Ground, wire: WireVersion) -> None:
    """The caller gets the refusal; the client continues."""
    address = await ground.server(TunnelServer(wire, handler=refusing("no")))
    tunnel_client = await ground.client(address, wire=wire)
    for _ in range(3):
        with pytest.raises(TunnelError, match="no"):
            await tunnel_client.client.open_session(SSH)
    assert not tunnel_client.task.done()


async def test_session_that_is_never_answered_ends_in_time(ground: Ground) -> None:
    """A handler that hangs costs the caller the set-up time, and other sessions nothing."""

    async def hang(target: Target) -> AcceptedSession:
        if target == SSH:
            await asyncio.Event().wait()
        return await taking(echo)(target)

    server = TunnelServer(handler=hang, limits=Limits(set_up_timeout=60.0))
    tunnel_client = await ground.client(await ground.server(server), limits=Limits(set_up_timeout=1.5))
    slow_session = asyncio.create_task(tunnel_client.client.open_session(SSH))
    quick_stream = await tunnel_client.client.open_session(Target("quick"))
    await still_works(quick_stream)
    with pytest.raises(TunnelError, match="in time"):
        await slow_session
    await quick_stream.close()


async def test_pending_sessions_fail_when_the_tunnel_ends(ground: Ground) -> None:
    async def hang(target: Target) -> AcceptedSession:
        del target
        await asyncio.Event().wait()
        raise AssertionError

    tunnel_client = await ground.client(await ground.server(TunnelServer(handler=hang)))
    session_task = asyncio.create_task(tunnel_client.client.open_session(SSH))
    await eventually(
        lambda: bool(
            tunnel_client.client._register_stream and tunnel_client.client._register_stream.session_waiters
        )
    )
    tunnel_client.client.stop()
    with pytest.raises(TunnelError, match="connection ended"):
        await session_task


async def test_targets_are_added_and_removed_while_it_runs(ground: Ground) -> None:
    """A second removal is refused."""
    tunnel = TunnelServer()
    tunnel_client = await ground.client(await ground.server(tunnel), handler=taking(echo))
    await tunnel_client.client.add_target(SSH)
    assert SSH in tunnel.targets()
    await tunnel_client.client.remove_target(SSH)
    assert SSH not in tunnel.targets()
    with pytest.raises(TunnelError, match="not registered"):
        await tunnel_client.client.remove_target(SSH)


async def test_subscriber_gets_changes_of_others_targets(ground: Ground) -> None:
    """It gets existing, added and removed targets, but not its own."""
    changes: list[tuple[Target, bool]] = []
    address = await ground.server(TunnelServer(bridge=True))
    owner = await ground.client(address, SSH, handler=taking(echo))
    await ground.client(
        address,
        Target("own"),
        subscribe=[""],
        on_target_change=lambda target, is_present: changes.append((target, is_present)),
    )
    await eventually(lambda: changes == [(SSH, True)])
    await owner.client.add_target(Target("late"))
    await owner.client.remove_target(Target("late"))
    await eventually(lambda: changes[1:] == [(Target("late"), True), (Target("late"), False)])


async def test_responses_reach_their_callers_in_order(ground: Ground) -> None:
    """Three changes of one target are pending at once, each refused for its own reason."""
    tunnel = TunnelServer(may_claim=lambda peer, target: target != SSH)
    tunnel_client = await ground.client(await ground.server(tunnel), handler=taking(echo))
    client = tunnel_client.client
    responses = await asyncio.gather(
        client.add_target(SSH), client.remove_target(SSH), client.add_target(SSH), return_exceptions=True
    )
    assert ["may not be registered" in str(response) for response in responses] == [True, False, True]
    assert "is not registered by this client" in str(responses[1])


@pytest.mark.parametrize("requester", ["server", "client"])
async def test_session_whose_stream_cannot_be_opened_ends_in_time(ground: Ground, requester: str) -> None:
    """The connection has no capacity for another call: the requester gets an error, on either end."""
    # The server's own limit is longer than the test.
    tunnel = TunnelServer(handler=taking(echo), limits=Limits(set_up_timeout=120.0))
    address = await ground.server(tunnel, more=[("grpc.max_concurrent_streams", 1)])
    tunnel_client = await ground.client(
        address, Target("mine"), handler=taking(echo), limits=Limits(set_up_timeout=0.3)
    )
    session_coroutine = (
        tunnel.open_session(Target("mine"))
        if requester == "server"
        else tunnel_client.client.open_session(SSH)
    )
    with pytest.raises(TunnelError, match="could not be opened in time"):
        await asyncio.wait_for(session_coroutine, 60)
    await eventually(lambda: not tunnel_client.client.streams)


async def test_run_on_a_closed_channel_fails(ground: Ground) -> None:
    channel = ground.channel("127.0.0.1:1")
    client = TunnelClient(channel)
    await channel.close()
    with pytest.raises(RegisterEndedError, match="the channel is closed"):
        await client.run([SSH])


async def test_session_on_a_closed_channel_fails(ground: Ground) -> None:
    """The channel is closed after the session was accepted, and before its stream opens."""
    channel = ground.channel(await ground.server(TunnelServer(handler=taking(echo))))
    tunnel_client = await ground.client("", channel=channel)
    register_stream = tunnel_client.client._register_stream
    assert register_stream is not None
    await channel.close()
    with pytest.raises(TunnelError, match="the channel is closed"):
        await tunnel_client.client._open(register_stream, OpenStream(-1, SSH))


async def test_failing_callback_does_not_affect_the_tunnel(ground: Ground) -> None:
    """The error is logged."""
    ground.expected.append("a callback of the tunnel's user failed")
    changed_targets: list[Target] = []

    def record_and_fail(target: Target, is_present: bool) -> None:
        del is_present
        changed_targets.append(target)
        raise ZeroDivisionError

    address = await ground.server(TunnelServer(bridge=True, handler=taking(echo), local=[Target("local")]))
    await ground.client(address, SSH, handler=taking(echo))
    tunnel_client = await ground.client(address, subscribe=[""], on_target_change=record_and_fail)
    await eventually(lambda: changed_targets == [Target("local"), SSH])
    stream = await tunnel_client.client.open_session(Target("local"))
    await still_works(stream)
    await stream.close()


async def test_hanging_register_handler_affects_only_its_session(ground: Ground) -> None:
    """It times out; meanwhile another session is served."""

    async def hang(target: Target) -> AcceptedSession:
        if target == SSH:
            await asyncio.Event().wait()
        return await taking(echo)(target)

    tunnel = TunnelServer()
    limits = Limits(set_up_timeout=1.5)
    await ground.client(await ground.server(tunnel), SSH, Target("quick"), handler=hang, limits=limits)
    slow_session = asyncio.create_task(tunnel.open_session(SSH))
    quick_stream = await tunnel.open_session(Target("quick"))
    await still_works(quick_stream)
    with pytest.raises(TunnelError, match="the handler did not answer in time"):
        await slow_session
    await still_works(quick_stream)
    await quick_stream.close()


async def test_server_that_reads_nothing_ends_the_tunnel(ground: Ground) -> None:
    """The queue of unsent messages is bounded."""
    tunnel_client = await ground.client(await ground.server(TunnelServer()))
    register_stream = tunnel_client.client._register_stream
    assert register_stream is not None
    for _ in range(10_001):
        register_stream.send(b"")
    with pytest.raises(RegisterEndedError):
        await tunnel_client.task
