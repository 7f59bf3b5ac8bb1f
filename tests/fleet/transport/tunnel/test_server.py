"""A tunnel's server on real gRPC: what a wrong client is told, and that it is the only one who notices."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import grpc
import grpc.aio
import pytest

from fleet.protocol.tunnel.messages import Op, Registration, Session, Target, TunnelError, WireVersion
from fleet.protocol.tunnel.server_state import Limits, Peer
from fleet.transport.tunnel import codec
from fleet.transport.tunnel import server as server_module
from fleet.transport.tunnel.handlers import AcceptedSession
from fleet.transport.tunnel.options import MOST_MESSAGE
from fleet.transport.tunnel.server import TunnelServer
from fleet.transport.tunnel.stream import TunnelStream
from tests.fakes.tunnel import (
    REGISTER,
    SSH,
    TUNNEL,
    Ground,
    echo,
    failure_of,
    no_sessions,
    refusing,
    still_works,
    taking,
)
from tests.fakes.waiting import eventually

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("raw", "code", "says"),
    [
        (b"\x08\x01\x12\x01x", grpc.StatusCode.INVALID_ARGUMENT, "must contain only its tag"),
        (b"\x18\x01", grpc.StatusCode.INVALID_ARGUMENT, "must contain only its tag"),
        (b"", grpc.StatusCode.INVALID_ARGUMENT, "tag 0 is not a session's tag"),
        (b"\xff\xff", grpc.StatusCode.INVALID_ARGUMENT, "cannot be decoded as Data"),
        (
            codec.first_message(77),
            grpc.StatusCode.NOT_FOUND,
            "no session on this connection waits for tag 77",
        ),
        (
            codec.first_message(-9),
            grpc.StatusCode.NOT_FOUND,
            "no session on this connection waits for tag -9",
        ),
    ],
    ids=["payload", "close", "tag 0", "garbage", "unknown tag", "unknown client tag"],
)
async def test_tunnel_stream_that_begins_wrong_is_refused_alone(
    ground: Ground, raw: bytes, code: grpc.StatusCode, says: str
) -> None:
    """Who sent it is told what is wrong; another session on the same connection goes on."""
    tunnel = TunnelServer()
    channel = ground.channel(await ground.server(tunnel))
    await ground.client("", SSH, channel=channel, handler=taking(echo))
    good = await tunnel.open_session(SSH)
    bad = ground.raw(channel, TUNNEL)
    await bad.write(raw)
    found, details = await failure_of(bad)
    assert found is code
    assert says in details
    await still_works(good)
    await good.close()


async def test_tunnel_stream_on_another_connection_is_refused(ground: Ground) -> None:
    """A tag is good on the connection that registered only."""
    tunnel = TunnelServer()
    address = await ground.server(tunnel)
    register = ground.raw(ground.channel(address), REGISTER)
    await register.write(codec.encode(WireVersion.V0_2, Registration(Op.ADD, SSH)))
    await register.read()
    wanted = asyncio.create_task(tunnel.open_session(SSH))
    asked = codec.decode(WireVersion.V0_2, await register.read())
    assert isinstance(asked, Session)
    other = ground.raw(ground.channel(address), TUNNEL)
    await other.write(codec.first_message(asked.tag))
    code, details = await failure_of(other)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "Open both streams on one connection" in details
    register.cancel()
    with pytest.raises(TunnelError, match="the client disconnected"):
        await wanted


async def test_tunnel_stream_for_a_tag_that_is_taken_is_refused(ground: Ground) -> None:
    """The second stream of a session is refused, the first goes on."""
    tunnel = TunnelServer()
    channel = ground.channel(await ground.server(tunnel))
    await ground.client("", SSH, channel=channel, handler=taking(echo))
    good = await tunnel.open_session(SSH)
    again = ground.raw(channel, TUNNEL)
    await again.write(codec.first_message(good.tag))
    assert (await failure_of(again))[0] is grpc.StatusCode.NOT_FOUND
    await still_works(good)
    await good.close()


async def test_register_twice_on_one_connection_is_refused(ground: Ground) -> None:
    """One Register stream a connection; the first one goes on."""
    tunnel = TunnelServer()
    channel = ground.channel(await ground.server(tunnel))
    await ground.client("", SSH, channel=channel, handler=taking(echo))
    second = ground.raw(channel, REGISTER)
    code, details = await failure_of(second)
    assert code is grpc.StatusCode.ALREADY_EXISTS
    assert "already has a Register stream" in details
    good = await tunnel.open_session(SSH)
    await still_works(good)
    await good.close()


@pytest.mark.parametrize("wire", WireVersion)
async def test_register_with_garbage_ends_with_a_sentence(ground: Ground, wire: WireVersion) -> None:
    """What is no message of the version ends that Register stream, and no other client's."""
    tunnel = TunnelServer(wire, handler=taking(echo))
    address = await ground.server(tunnel)
    register = ground.raw(ground.channel(address), REGISTER)
    await register.write(b"\xff\xff\xff")
    if wire is WireVersion.V0_1:
        await register.read()  # the server's capabilities
    code, details = await failure_of(register)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert f"cannot be decoded as version {wire.value}" in details
    await eventually(lambda: no_sessions(tunnel))


async def test_register_with_an_oversized_message_ends_alone(ground: Ground) -> None:
    """A message above the limit ends the call that sent it; other clients go on."""
    tunnel = TunnelServer()
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=taking(echo))
    good = await tunnel.open_session(SSH)
    register = ground.raw(ground.channel(address), REGISTER)
    await register.write(bytes(MOST_MESSAGE + 1))
    code, details = await failure_of(register)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in details
    await still_works(good)
    await good.close()


async def test_register_of_another_version_is_refused_by_name(ground: Ground) -> None:
    """Metadata decides on the version; a server of one refuses the other, and says which it speaks."""
    address = await ground.server(TunnelServer(WireVersion.V0_2))
    call = ground.raw(ground.channel(address), REGISTER, ("x-grpctunnel-version", "0.1"))
    code, details = await failure_of(call)
    assert (code, details) == (grpc.StatusCode.FAILED_PRECONDITION, "this listener only supports version 0.2")


async def test_both_versions_on_one_listener_by_metadata(ground: Ground) -> None:
    """Clients of ours say which they speak, and each gets sessions of its own version."""
    old, new = TunnelServer(WireVersion.V0_1), TunnelServer(WireVersion.V0_2)
    address = await ground.server(new, old)
    await ground.client(address, wire=WireVersion.V0_1, handler=taking(echo))
    await ground.client(address, SSH, handler=taking(echo))
    for tunnel in (old, new):
        stream = await tunnel.open_session(SSH)
        await still_works(stream)
        await stream.close()


async def test_target_of_another_client_is_refused_and_both_live(ground: Ground) -> None:
    """A target belongs to who has it; the one refused is told and stays registered."""
    tunnel = TunnelServer()
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=taking(echo))
    second = await ground.client(address, SSH, Target("other"), handler=taking(echo))
    assert "already registered by another client" in second.client.rejected_targets[SSH]
    for target in (SSH, Target("other")):
        stream = await tunnel.open_session(target)
        await still_works(stream)
        await stream.close()


async def test_target_of_the_same_client_come_back_is_displaced(ground: Ground) -> None:
    """A client of the same name and a higher generation takes its target over at once."""
    tunnel = TunnelServer()
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=refusing("stale"), name="host-1", generation=1)
    await ground.client(address, SSH, handler=taking(echo), name="host-1", generation=2)
    stream = await tunnel.open_session(SSH)
    await still_works(stream)
    await stream.close()


async def test_client_come_back_with_an_earlier_clock_displaces_itself_once_it_is_silent(
    ground: Ground,
) -> None:
    """Its generation is lower then: while its old connection says something it is refused, and afterwards let in."""
    silent = False
    tunnel = TunnelServer(is_silent=lambda client: silent)
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=refusing("stale"), name="host-1", generation=2)
    early = await ground.client(address, SSH, handler=taking(echo), name="host-1", generation=1)
    assert "already registered by another client" in early.client.rejected_targets[SSH]
    silent = True
    stranger = await ground.client(address, SSH, handler=taking(echo), name="host-2", generation=3)
    assert "already registered by another client" in stranger.client.rejected_targets[SSH]
    await early.client.add_target(SSH)
    stream = await tunnel.open_session(SSH)
    await still_works(stream)
    await stream.close()


async def test_session_that_is_refused_reaches_its_caller_alone(ground: Ground) -> None:
    """The handler's sentence is the caller's error; the tunnel and other sessions go on."""
    tunnel = TunnelServer()
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=taking(echo))
    await ground.client(address, Target("bad"), handler=refusing("closed on Sundays"))
    good = await tunnel.open_session(SSH)
    with pytest.raises(TunnelError, match="bad: closed on Sundays"):
        await tunnel.open_session(Target("bad"))
    with pytest.raises(TunnelError, match="target nobody is not registered"):
        await tunnel.open_session(Target("nobody"))
    await still_works(good)
    await good.close()


async def test_session_whose_stream_never_comes_costs_only_its_caller(ground: Ground) -> None:
    """A client that answers nothing is given up in time; what it does not serve others do."""
    tunnel = TunnelServer(limits=Limits(set_up_within=1.5))
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=taking(echo))
    register = ground.raw(ground.channel(address), REGISTER)
    await register.write(codec.encode(WireVersion.V0_2, Registration(Op.ADD, Target("deaf"))))
    await register.read()
    slow = asyncio.create_task(tunnel.open_session(Target("deaf")))
    good = await tunnel.open_session(SSH)
    await still_works(good)
    with pytest.raises(TunnelError, match="did not open the stream in time"):
        await slow
    await good.close()
    await eventually(lambda: no_sessions(tunnel))


async def test_handler_that_raises_ends_its_session_alone(ground: Ground) -> None:
    """A fault in a stranger's code is logged, its session is aborted, and the next one is served."""
    ground.expected += [
        "the handler failed in a session to",
        "the handler failed on the request for a session to",
    ]

    async def fail(target: Target) -> AcceptedSession:
        if target.name == "at-once":
            raise ZeroDivisionError
        return await taking(divide)(target)

    async def divide(stream: TunnelStream) -> None:
        await stream.read()
        raise ZeroDivisionError

    tunnel = TunnelServer()
    address = await ground.server(tunnel)
    await ground.client(address, Target("at-once"), Target("later"), SSH, handler=fail)
    with pytest.raises(TunnelError, match="the handler failed"):
        await tunnel.open_session(Target("at-once"))
    stream = await tunnel.open_session(Target("later"))
    await stream.write(b"divide")
    with pytest.raises(TunnelError):
        await stream.read()
    assert SSH in tunnel.targets()


async def test_bridge_tells_its_caller_of_a_refusal_and_carries_bytes(ground: Ground) -> None:
    """One client's session to another's target; the owner's refusal reaches the caller."""
    tunnel = TunnelServer(bridge=True)
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=taking(echo))
    await ground.client(address, Target("bad"), handler=refusing("not for you"))
    caller = await ground.client(address, subscribe=[""])
    with pytest.raises(TunnelError, match="not for you"):
        await caller.client.open_session(Target("bad"))
    stream = await caller.client.open_session(SSH)
    await still_works(stream)
    await stream.write_eof()
    assert await stream.read() == b""
    await stream.close()
    await eventually(lambda: no_sessions(tunnel))


@pytest.mark.parametrize("which", ["on_client", "on_target"])
async def test_callback_that_raises_leaves_no_registration_behind(ground: Ground, which: str) -> None:
    """Its fault is logged, the client is served, and when it goes nothing of it is left."""
    ground.expected.append("a callback of the tunnel's user failed")

    def hear(*news: object) -> None:
        raise ZeroDivisionError(news)

    tunnel = TunnelServer(**{which: hear})  # type: ignore[arg-type]
    running = await ground.client(await ground.server(tunnel), SSH, handler=taking(echo))
    stream = await tunnel.open_session(SSH)
    await still_works(stream)
    await stream.close()
    await running.client.close()
    await eventually(lambda: not tunnel._clients and not tunnel._tokens and not tunnel.targets())
    assert not tunnel._state._connections


async def test_rule_that_raises_allows_nothing_and_ends_nothing(ground: Ground) -> None:
    """In doubt a target is refused; the client lives on."""
    ground.expected.append("checking the claim on target router-7 (SSH) failed")

    def rule(peer: Peer, target: Target) -> bool:
        if target == SSH:
            raise ZeroDivisionError
        return True

    tunnel = TunnelServer(may_claim=rule)
    address = await ground.server(tunnel)
    running = await ground.client(address, SSH, Target("other"), handler=taking(echo))
    assert "may not be registered" in running.client.rejected_targets[SSH]
    stream = await tunnel.open_session(Target("other"))
    await still_works(stream)
    await stream.close()


async def test_register_reader_that_fails_ends_its_client_with_a_sentence(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of ours is logged, and the client is told instead of being left."""
    ground.expected.append("reading a Register stream failed")
    tunnel = TunnelServer()
    register = ground.raw(ground.channel(await ground.server(tunnel)), REGISTER)

    def fail(*said: object) -> None:
        raise ZeroDivisionError(said)

    monkeypatch.setattr(tunnel._state, "receive", fail)
    await register.write(codec.encode(WireVersion.V0_2, Registration(Op.ADD, SSH)))
    assert await failure_of(register) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "internal error of the tunnel server",
    )


async def test_client_that_reads_nothing_is_ended_in_time(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Register stream is full, so the reason cannot reach it: it is ended all the same, and its target freed."""
    monkeypatch.setattr(server_module, "_SAID_WITHIN", 0.2)
    tunnel = TunnelServer()
    register = ground.raw(ground.channel(await ground.server(tunnel)), REGISTER)
    await register.write(codec.encode(WireVersion.V0_2, Registration(Op.ADD, SSH)))
    await eventually(lambda: SSH in tunnel.targets())
    owner = tunnel.owner(SSH)
    assert owner is not None
    for _ in range(64):
        tunnel._clients[owner].send(bytes(1024 * 1024))
    tunnel.end_client(owner, "enough")
    await eventually(lambda: SSH not in tunnel.targets())


async def test_session_that_its_client_takes_back_is_let_go(ground: Ground) -> None:
    """Accepted, and then refused by the client itself: what the handler took for it is discarded."""
    discarded = asyncio.Event()

    class Held:
        async def serve(self, stream: TunnelStream) -> None:
            raise AssertionError(stream)

        def discard(self) -> None:
            discarded.set()

    async def take(target: Target) -> AcceptedSession:
        del target
        return Held()

    # Not only when its time is over.
    patient = TunnelServer(handler=take, limits=Limits(set_up_within=120.0))
    register = ground.raw(ground.channel(await ground.server(patient)), REGISTER)
    await register.write(codec.encode(WireVersion.V0_2, Session(-1, SSH)))
    assert codec.decode(WireVersion.V0_2, await register.read()) == Session(-1, SSH, accept=True)
    await register.write(codec.encode(WireVersion.V0_2, Session(-1, error="never mind")))
    async with asyncio.timeout(60):
        await discarded.wait()


async def test_sessions_that_a_client_withdraws_do_not_go_on(ground: Ground) -> None:
    """Else it could have any number of them set up at once: asked for and withdrawn, each under the same tag."""
    under_way, begun = 0, 0

    async def never(target: Target) -> AcceptedSession:
        nonlocal under_way, begun
        del target
        under_way, begun = under_way + 1, begun + 1
        try:
            await asyncio.Event().wait()
        finally:
            under_way -= 1
        raise AssertionError("nothing sets the event")

    tunnel = TunnelServer(handler=never, limits=Limits(max_pending=1, set_up_within=600.0))
    register = ground.raw(ground.channel(await ground.server(tunnel)), REGISTER)
    for _ in range(3):
        await register.write(codec.encode(WireVersion.V0_2, Session(-1, SSH)))
        await eventually(lambda: under_way == 1)
        await register.write(codec.encode(WireVersion.V0_2, Session(-1, SSH, error="not any more")))
        await eventually(lambda: under_way == 0)
    assert begun == 3


async def test_tunnel_stream_that_never_says_its_tag_is_ended(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is opened and left costs nothing for long."""
    monkeypatch.setattr(server_module, "_TAG_WITHIN", 0.2)
    channel = ground.channel(await ground.server(TunnelServer()))
    await ground.client("", SSH, channel=channel, handler=taking(echo))
    silent = ground.raw(channel, TUNNEL)
    assert await failure_of(silent) == (grpc.StatusCode.DEADLINE_EXCEEDED, "the tag was not received in time")


async def test_many_sessions_leave_nothing_behind(ground: Ground) -> None:
    """A hundred sessions opened, used and closed: no state is left at either end."""
    tunnel = TunnelServer()
    running = await ground.client(await ground.server(tunnel), SSH, handler=taking(echo))
    for _ in range(5):
        streams = await asyncio.gather(*(tunnel.open_session(SSH) for _ in range(20)))
        for stream in streams:
            await still_works(stream)
            await stream.close()
    await eventually(lambda: no_sessions(tunnel) and not running.client.streams)


async def test_peer_killed_by_sigkill_is_an_abort_and_its_target_goes(ground: Ground) -> None:
    """A client's process that is killed: the session is aborted, not ended, and the target is free again."""
    tunnel = TunnelServer()
    address = await ground.server(tunnel)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CLIENT, address, cwd=ROOT, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await eventually(lambda: SSH in tunnel.targets())
        stream = await tunnel.open_session(SSH)
        await still_works(stream)
        process.send_signal(signal.SIGKILL)
        with pytest.raises(TunnelError, match="the client disconnected"):
            await stream.read()
        await eventually(lambda: SSH not in tunnel.targets())
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


_CLIENT = """
import asyncio, sys
import grpc.aio
from fleet.transport.tunnel.client import TunnelClient
from tests.fakes.tunnel import SSH, echo, taking

async def main():
    client = TunnelClient(grpc.aio.insecure_channel(sys.argv[1]), handler=taking(echo))
    await client.run([SSH])

asyncio.run(main())
"""
