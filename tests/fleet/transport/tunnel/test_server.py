"""Tunnel server on real gRPC: an invalid client gets an error, and no other client is affected."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import grpc
import grpc.aio
import pytest

from fleet.protocol.tunnel.messages import Op, Registration, Session, Target, TunnelError, WireVersion
from fleet.protocol.tunnel.server_state import ClientConnection, Limits, Peer
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
    open_session,
    refusing,
    still_works,
    taking,
)
from tests.fakes.waiting import eventually

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("raw", "code", "expected_details"),
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
async def test_tunnel_stream_with_an_invalid_start_is_refused(
    ground: Ground, raw: bytes, code: grpc.StatusCode, expected_details: str
) -> None:
    """The sender gets the reason; another session on the same connection continues."""
    tunnel = TunnelServer()
    channel = ground.channel(await ground.server(tunnel))
    await ground.client("", SSH, channel=channel, handler=taking(echo))
    stream = await tunnel.open_session(SSH)
    call = ground.raw(channel, TUNNEL)
    await call.write(raw)
    actual_code, details = await failure_of(call)
    assert actual_code is code
    assert expected_details in details
    await still_works(stream)
    await stream.close()


async def test_tunnel_stream_on_another_connection_is_refused(ground: Ground) -> None:
    """A tag is valid only on the connection that registered."""
    tunnel = TunnelServer()
    address = await ground.server(tunnel)
    register = ground.raw(ground.channel(address), REGISTER)
    await register.write(codec.encode(WireVersion.V0_2, Registration(Op.ADD, SSH)))
    await register.read()
    session_task = asyncio.create_task(tunnel.open_session(SSH))
    request = codec.decode(WireVersion.V0_2, await register.read())
    assert isinstance(request, Session)
    other_tunnel = ground.raw(ground.channel(address), TUNNEL)
    await other_tunnel.write(codec.first_message(request.tag))
    code, details = await failure_of(other_tunnel)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "Open both streams on one connection" in details
    register.cancel()
    with pytest.raises(TunnelError, match="the client disconnected"):
        await session_task


async def test_second_tunnel_stream_of_a_session_is_refused(ground: Ground) -> None:
    """The first stream continues."""
    tunnel = TunnelServer()
    channel = ground.channel(await ground.server(tunnel))
    await ground.client("", SSH, channel=channel, handler=taking(echo))
    stream = await tunnel.open_session(SSH)
    second_client = ground.raw(channel, TUNNEL)
    await second_client.write(codec.first_message(stream.tag))
    assert (await failure_of(second_client))[0] is grpc.StatusCode.NOT_FOUND
    await still_works(stream)
    await stream.close()


async def test_register_twice_on_one_connection_is_refused(ground: Ground) -> None:
    """The first Register stream continues."""
    tunnel = TunnelServer()
    channel = ground.channel(await ground.server(tunnel))
    await ground.client("", SSH, channel=channel, handler=taking(echo))
    second_client = ground.raw(channel, REGISTER)
    code, details = await failure_of(second_client)
    assert code is grpc.StatusCode.ALREADY_EXISTS
    assert "already has a Register stream" in details
    stream = await tunnel.open_session(SSH)
    await still_works(stream)
    await stream.close()


@pytest.mark.parametrize("wire", WireVersion)
async def test_register_with_invalid_bytes_is_refused(ground: Ground, wire: WireVersion) -> None:
    """Only that Register stream ends."""
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
    """Other clients continue."""
    tunnel = TunnelServer()
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=taking(echo))
    stream = await tunnel.open_session(SSH)
    register = ground.raw(ground.channel(address), REGISTER)
    await register.write(bytes(MOST_MESSAGE + 1))
    code, details = await failure_of(register)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in details
    await still_works(stream)
    await stream.close()


async def test_register_of_another_version_is_refused_by_name(ground: Ground) -> None:
    """The metadata has the version; the error has the supported one."""
    address = await ground.server(TunnelServer(WireVersion.V0_2))
    call = ground.raw(ground.channel(address), REGISTER, ("x-grpctunnel-version", "0.1"))
    code, details = await failure_of(call)
    assert (code, details) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "the tunnel server supports only wire version 0.2 (refloat tunnel: --wire 0.2)",
    )


async def test_both_versions_on_one_listener_by_metadata(ground: Ground) -> None:
    """Our clients send their version, and get sessions of that version."""
    server_01, server_02 = TunnelServer(WireVersion.V0_1), TunnelServer(WireVersion.V0_2)
    address = await ground.server(server_02, server_01)
    await ground.client(address, wire=WireVersion.V0_1, handler=taking(echo))
    await ground.client(address, SSH, handler=taking(echo))
    for tunnel in (server_01, server_02):
        stream = await open_session(tunnel, SSH)
        await still_works(stream)
        await stream.close()


async def test_target_of_another_client_is_refused(ground: Ground) -> None:
    """Both clients stay registered."""
    tunnel = TunnelServer()
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=taking(echo))
    second_client = await ground.client(address, SSH, Target("other"), handler=taking(echo))
    assert "already registered by another client" in second_client.client.rejected_targets[SSH]
    for target in (SSH, Target("other")):
        stream = await tunnel.open_session(target)
        await still_works(stream)
        await stream.close()


async def test_reconnected_client_displaces_its_target(ground: Ground) -> None:
    """It has the same name and a higher generation."""
    tunnel = TunnelServer()
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=refusing("stale"), name="host-1", generation=1)
    await ground.client(address, SSH, handler=taking(echo), name="host-1", generation=2)
    stream = await tunnel.open_session(SSH)
    await still_works(stream)
    await stream.close()


async def test_client_with_an_earlier_clock_displaces_its_silent_connection(
    ground: Ground,
) -> None:
    """Its generation is lower: it is refused until its old connection is silent."""
    is_silent = False
    tunnel = TunnelServer(is_silent=lambda client: is_silent)
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=refusing("stale"), name="host-1", generation=2)
    reconnected_client = await ground.client(address, SSH, handler=taking(echo), name="host-1", generation=1)
    assert "already registered by another client" in reconnected_client.client.rejected_targets[SSH]
    is_silent = True
    other_client = await ground.client(address, SSH, handler=taking(echo), name="host-2", generation=3)
    assert "already registered by another client" in other_client.client.rejected_targets[SSH]
    await reconnected_client.client.add_target(SSH)
    stream = await tunnel.open_session(SSH)
    await still_works(stream)
    await stream.close()


async def test_refused_session_fails_only_its_caller(ground: Ground) -> None:
    """The caller gets the handler's error; the tunnel and other sessions continue."""
    tunnel = TunnelServer()
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=taking(echo))
    await ground.client(address, Target("bad"), handler=refusing("closed on Sundays"))
    stream = await tunnel.open_session(SSH)
    with pytest.raises(TunnelError, match="bad: closed on Sundays"):
        await tunnel.open_session(Target("bad"))
    with pytest.raises(TunnelError, match="target nobody is not registered"):
        await tunnel.open_session(Target("nobody"))
    await still_works(stream)
    await stream.close()


async def test_session_without_a_stream_fails_only_its_caller(ground: Ground) -> None:
    """A client that does not respond times out; sessions of others continue."""
    tunnel = TunnelServer(limits=Limits(set_up_timeout=1.5))
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=taking(echo))
    register = ground.raw(ground.channel(address), REGISTER)
    await register.write(codec.encode(WireVersion.V0_2, Registration(Op.ADD, Target("deaf"))))
    await register.read()
    slow_session = asyncio.create_task(tunnel.open_session(Target("deaf")))
    stream = await tunnel.open_session(SSH)
    await still_works(stream)
    with pytest.raises(TunnelError, match="did not open the stream in time"):
        await slow_session
    await stream.close()
    await eventually(lambda: no_sessions(tunnel))


async def test_failing_handler_ends_only_its_session(ground: Ground) -> None:
    """The error is logged, the session is aborted, and the next one is served."""
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


async def test_bridge_forwards_bytes_and_refusals(ground: Ground) -> None:
    """A client opens a session to another client's target; the owner's refusal reaches it."""
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


@pytest.mark.parametrize("callback_name", ["on_client", "on_target"])
async def test_callback_that_raises_leaves_no_registration_behind(ground: Ground, callback_name: str) -> None:
    """The error is logged, the client is served, and nothing remains after it."""
    ground.expected.append("a callback of the tunnel's user failed")

    def fail(*notification: object) -> None:
        raise ZeroDivisionError(notification)

    tunnel = TunnelServer(**{callback_name: fail})  # type: ignore[arg-type]
    tunnel_client = await ground.client(await ground.server(tunnel), SSH, handler=taking(echo))
    stream = await tunnel.open_session(SSH)
    await still_works(stream)
    await stream.close()
    await tunnel_client.client.close()
    await eventually(lambda: not tunnel._clients and not tunnel._clients_by_token and not tunnel.targets())
    assert not tunnel._state._connections


async def test_failing_claim_rule_refuses_the_target(ground: Ground) -> None:
    """The client continues."""
    ground.expected.append("checking the claim on target router-7 (SSH) failed")

    def may_claim(peer: Peer, target: Target) -> bool:
        if target == SSH:
            raise ZeroDivisionError
        return True

    tunnel = TunnelServer(may_claim=may_claim)
    address = await ground.server(tunnel)
    tunnel_client = await ground.client(address, SSH, Target("other"), handler=taking(echo))
    assert "may not be registered" in tunnel_client.client.rejected_targets[SSH]
    stream = await tunnel.open_session(Target("other"))
    await still_works(stream)
    await stream.close()


async def test_failing_register_reader_ends_its_client(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is logged, and the client gets a status."""
    ground.expected.append("reading a Register stream failed")
    tunnel = TunnelServer()
    register = ground.raw(ground.channel(await ground.server(tunnel)), REGISTER)

    def fail(*arguments: object) -> None:
        raise ZeroDivisionError(arguments)

    monkeypatch.setattr(tunnel._state, "receive", fail)
    await register.write(codec.encode(WireVersion.V0_2, Registration(Op.ADD, SSH)))
    assert await failure_of(register) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "internal error of the tunnel server",
    )


async def test_client_that_reads_nothing_is_ended(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Register stream is full, so it does not get the reason: it still ends, and its target is free."""
    monkeypatch.setattr(server_module, "_FINISH_WITHIN", 0.2)
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


async def test_refused_client_registers_nothing(ground: Ground) -> None:
    """Requests that arrive while the server is ending a client have no effect."""
    added_targets: list[Target] = []

    def refuse(client: ClientConnection, is_connected: bool) -> None:
        if is_connected:
            tunnel.end_client(client, "enough")

    tunnel = TunnelServer(
        on_client=refuse,
        on_target=lambda target, is_added: added_targets.append(target) if is_added else None,
    )
    address = await ground.server(tunnel)
    for _ in range(80):
        register = ground.raw(ground.channel(address), REGISTER)
        # The call may have ended already.
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            await register.write(codec.encode(WireVersion.V0_2, Registration(Op.ADD, SSH)))
        await failure_of(register)
    assert not added_targets


async def test_session_that_its_client_cancels_is_discarded(ground: Ground) -> None:
    """The client accepts and then refuses: the handler's session is discarded."""
    discarded = asyncio.Event()

    class DiscardableSession:
        async def serve(self, stream: TunnelStream) -> None:
            raise AssertionError(stream)

        def discard(self) -> None:
            discarded.set()

    async def accept_session(target: Target) -> AcceptedSession:
        del target
        return DiscardableSession()

    # Long before its timeout.
    tunnel = TunnelServer(handler=accept_session, limits=Limits(set_up_timeout=120.0))
    register = ground.raw(ground.channel(await ground.server(tunnel)), REGISTER)
    await register.write(codec.encode(WireVersion.V0_2, Session(-1, SSH)))
    assert codec.decode(WireVersion.V0_2, await register.read()) == Session(-1, SSH, accept=True)
    await register.write(codec.encode(WireVersion.V0_2, Session(-1, error="never mind")))
    async with asyncio.timeout(60):
        await discarded.wait()


async def test_handlers_of_withdrawn_sessions_end(ground: Ground) -> None:
    """Otherwise a client could have any number of pending sessions, all with the same tag."""
    running_count, started_count = 0, 0

    async def wait_for_ever(target: Target) -> AcceptedSession:
        nonlocal running_count, started_count
        del target
        running_count, started_count = running_count + 1, started_count + 1
        try:
            await asyncio.Event().wait()
        finally:
            running_count -= 1
        raise AssertionError("nothing sets the event")

    tunnel = TunnelServer(handler=wait_for_ever, limits=Limits(max_pending_sessions=1, set_up_timeout=600.0))
    register = ground.raw(ground.channel(await ground.server(tunnel)), REGISTER)
    for _ in range(3):
        await register.write(codec.encode(WireVersion.V0_2, Session(-1, SSH)))
        await eventually(lambda: running_count == 1)
        await register.write(codec.encode(WireVersion.V0_2, Session(-1, SSH, error="not any more")))
        await eventually(lambda: running_count == 0)
    assert started_count == 3


async def test_tunnel_stream_without_a_tag_times_out(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_TAG_WITHIN", 0.2)
    channel = ground.channel(await ground.server(TunnelServer()))
    await ground.client("", SSH, channel=channel, handler=taking(echo))
    silent_call = ground.raw(channel, TUNNEL)
    assert await failure_of(silent_call) == (
        grpc.StatusCode.DEADLINE_EXCEEDED,
        "the tag was not received in time",
    )


async def test_many_sessions_leave_nothing_behind(ground: Ground) -> None:
    """A hundred sessions are opened, used and closed."""
    tunnel = TunnelServer()
    tunnel_client = await ground.client(await ground.server(tunnel), SSH, handler=taking(echo))
    for _ in range(5):
        streams = await asyncio.gather(*(tunnel.open_session(SSH) for _ in range(20)))
        for stream in streams:
            await still_works(stream)
            await stream.close()
    await eventually(lambda: no_sessions(tunnel) and not tunnel_client.client.streams)


async def test_client_killed_by_sigkill_is_an_abort(ground: Ground) -> None:
    """The session is aborted, not ended, and the target is free again."""
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
