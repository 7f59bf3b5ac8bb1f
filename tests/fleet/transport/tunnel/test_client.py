"""A tunnel's client on real gRPC: its life, its sessions, and what it is told."""

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
    """Nobody listens: run says so."""
    client = TunnelClient(ground.channel("127.0.0.1:1"))
    with pytest.raises(RegisterEndedError, match=r"(?i)connect"):
        await client.run([SSH])


async def test_run_twice_at_once_is_refused_and_the_first_goes_on(ground: Ground) -> None:
    """The second run is an error of its caller; after the first has ended a new one works."""
    tunnel = TunnelServer()
    running = await ground.client(await ground.server(tunnel), SSH, handler=taking(echo))
    with pytest.raises(TunnelError, match="is already running"):
        await running.client.run([SSH])
    stream = await tunnel.open_session(SSH)
    await still_works(stream)
    await stream.close()
    running.client.stop()
    with pytest.raises(RegisterEndedError):
        await running.task
    await eventually(lambda: SSH not in tunnel.targets())
    again = asyncio.create_task(running.client.run([SSH]))
    await eventually(lambda: SSH in tunnel.targets())
    running.client.stop()
    with pytest.raises(RegisterEndedError):
        await again


async def test_session_before_run_is_refused(ground: Ground) -> None:
    """There is no tunnel to ask on."""
    client = TunnelClient(ground.channel("127.0.0.1:1"))
    with pytest.raises(TunnelError, match="not registered"):
        await client.open_session(SSH)


@pytest.mark.parametrize("wire", WireVersion)
async def test_session_asked_for_by_the_client_is_served(ground: Ground, wire: WireVersion) -> None:
    """The server's handler serves what clients ask for, in both versions."""
    address = await ground.server(TunnelServer(wire, handler=taking(echo)))
    running = await ground.client(address, wire=wire)
    stream = await running.client.open_session(SSH)
    assert stream.tag < 0
    await still_works(stream)
    await stream.close()


@pytest.mark.parametrize("wire", WireVersion)
async def test_session_that_the_server_refuses_ends_nothing_else(ground: Ground, wire: WireVersion) -> None:
    """The refusal is the caller's error; the client lives on."""
    address = await ground.server(TunnelServer(wire, handler=refusing("no")))
    running = await ground.client(address, wire=wire)
    for _ in range(3):
        with pytest.raises(TunnelError, match="no"):
            await running.client.open_session(SSH)
    assert not running.task.done()


async def test_session_that_is_never_answered_ends_in_time(ground: Ground) -> None:
    """A server's handler that hangs costs the caller the set-up time, and others nothing."""

    async def hang(target: Target) -> AcceptedSession:
        if target == SSH:
            await asyncio.Event().wait()
        return await taking(echo)(target)

    server = TunnelServer(handler=hang, limits=Limits(set_up_within=60.0))
    running = await ground.client(await ground.server(server), limits=Limits(set_up_within=1.5))
    slow = asyncio.create_task(running.client.open_session(SSH))
    quick = await running.client.open_session(Target("quick"))
    await still_works(quick)
    with pytest.raises(TunnelError, match="in time"):
        await slow
    await quick.close()


async def test_sessions_that_wait_are_told_when_the_tunnel_goes_down(ground: Ground) -> None:
    """Whoever waits for a session is not left waiting."""

    async def hang(target: Target) -> AcceptedSession:
        del target
        await asyncio.Event().wait()
        raise AssertionError

    running = await ground.client(await ground.server(TunnelServer(handler=hang)))
    waiting = asyncio.create_task(running.client.open_session(SSH))
    await eventually(
        lambda: bool(running.client._register_stream and running.client._register_stream.waiters)
    )
    running.client.stop()
    with pytest.raises(TunnelError, match="connection ended"):
        await waiting


async def test_targets_come_and_go_while_it_runs(ground: Ground) -> None:
    """Targets are added and removed by hand; a second removal is an error of its caller."""
    tunnel = TunnelServer()
    running = await ground.client(await ground.server(tunnel), handler=taking(echo))
    await running.client.add_target(SSH)
    assert SSH in tunnel.targets()
    await running.client.remove_target(SSH)
    assert SSH not in tunnel.targets()
    with pytest.raises(TunnelError, match="not registered"):
        await running.client.remove_target(SSH)


async def test_subscriber_hears_of_others_targets(ground: Ground) -> None:
    """Targets that were there, that come and that go, and none of its own."""
    heard: list[tuple[Target, bool]] = []
    address = await ground.server(TunnelServer(bridge=True))
    other = await ground.client(address, SSH, handler=taking(echo))
    await ground.client(
        address, Target("own"), subscribe=[""], on_news=lambda target, there: heard.append((target, there))
    )
    await eventually(lambda: heard == [(SSH, True)])
    await other.client.add_target(Target("late"))
    await other.client.remove_target(Target("late"))
    await eventually(lambda: heard[1:] == [(Target("late"), True), (Target("late"), False)])


async def test_answers_reach_whoever_asked_in_their_order(ground: Ground) -> None:
    """Three changes of one target on their way at once, each refused for a reason of its own."""
    tunnel = TunnelServer(may_claim=lambda peer, target: target != SSH)
    running = await ground.client(await ground.server(tunnel), handler=taking(echo))
    client = running.client
    answers = await asyncio.gather(
        client.add_target(SSH), client.remove_target(SSH), client.add_target(SSH), return_exceptions=True
    )
    assert ["may not be registered" in str(answer) for answer in answers] == [True, False, True]
    assert "is not registered by this client" in str(answers[1])


@pytest.mark.parametrize("asker", ["server", "client"])
async def test_session_whose_stream_cannot_be_opened_ends_in_time(ground: Ground, asker: str) -> None:
    """The connection has no room for another call: who asked is told, whichever end that was."""
    # The server itself would give up later than anybody waits here.
    tunnel = TunnelServer(handler=taking(echo), limits=Limits(set_up_within=120.0))
    address = await ground.server(tunnel, more=[("grpc.max_concurrent_streams", 1)])
    running = await ground.client(
        address, Target("mine"), handler=taking(echo), limits=Limits(set_up_within=0.3)
    )
    opening = tunnel.open_session(Target("mine")) if asker == "server" else running.client.open_session(SSH)
    with pytest.raises(TunnelError, match="could not be opened in time"):
        await asyncio.wait_for(opening, 60)
    await eventually(lambda: not running.client.streams)


async def test_run_on_a_closed_channel_says_so(ground: Ground) -> None:
    """It is the caller's mistake, in a sentence."""
    channel = ground.channel("127.0.0.1:1")
    client = TunnelClient(channel)
    await channel.close()
    with pytest.raises(RegisterEndedError, match="the channel is closed"):
        await client.run([SSH])


async def test_session_on_a_closed_channel_says_so(ground: Ground) -> None:
    """The same where the channel is closed between a session's being accepted and its stream."""
    channel = ground.channel(await ground.server(TunnelServer(handler=taking(echo))))
    running = await ground.client("", channel=channel)
    run = running.client._register_stream
    assert run is not None
    await channel.close()
    with pytest.raises(TunnelError, match="the channel is closed"):
        await running.client._open(run, OpenStream(-1, SSH))


async def test_news_that_break_their_hearer_break_nothing_else(ground: Ground) -> None:
    """A callback that raises is logged; the tunnel goes on."""
    ground.expected.append("a callback of the tunnel's user failed")
    heard: list[Target] = []

    def hear(target: Target, there: bool) -> None:
        del there
        heard.append(target)
        raise ZeroDivisionError

    address = await ground.server(TunnelServer(bridge=True, handler=taking(echo), local=[Target("local")]))
    await ground.client(address, SSH, handler=taking(echo))
    running = await ground.client(address, subscribe=[""], on_news=hear)
    await eventually(lambda: heard == [Target("local"), SSH])
    stream = await running.client.open_session(Target("local"))
    await still_works(stream)
    await stream.close()


async def test_register_handler_of_the_client_that_hangs_costs_its_session_alone(ground: Ground) -> None:
    """It is given up in time; meanwhile another session is taken and served."""

    async def hang(target: Target) -> AcceptedSession:
        if target == SSH:
            await asyncio.Event().wait()
        return await taking(echo)(target)

    tunnel = TunnelServer()
    limits = Limits(set_up_within=1.5)
    await ground.client(await ground.server(tunnel), SSH, Target("quick"), handler=hang, limits=limits)
    slow = asyncio.create_task(tunnel.open_session(SSH))
    quick = await tunnel.open_session(Target("quick"))
    await still_works(quick)
    with pytest.raises(TunnelError, match="the handler did not answer in time"):
        await slow
    await still_works(quick)
    await quick.close()


async def test_server_that_reads_nothing_is_left(ground: Ground) -> None:
    """What waits for it is bounded: the tunnel ends rather than grow."""
    running = await ground.client(await ground.server(TunnelServer()))
    run = running.client._register_stream
    assert run is not None
    for _ in range(10_001):
        run.send(b"")
    with pytest.raises(RegisterEndedError):
        await running.task
