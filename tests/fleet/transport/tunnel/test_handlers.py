"""Handlers of sessions: dialling, bridges and functions."""

from __future__ import annotations

import asyncio
import socket

import pytest

from fleet.protocol.tunnel.messages import TunnelError
from fleet.transport.tunnel.handlers import FunctionSession, call_back, dial
from fleet.transport.tunnel.pump import SessionPolicy
from fleet.transport.tunnel.server import TunnelServer
from fleet.transport.tunnel.stream import TunnelAbortedError, TunnelStream
from tests.fakes.tunnel import SSH, Ground, echo, echo_tcp, no_sessions, still_works, taking
from tests.fakes.waiting import eventually


async def test_dial_a_service_that_is_down_is_a_refusal_with_its_address() -> None:
    with socket.socket() as bound_socket:
        bound_socket.bind(("127.0.0.1", 0))
        port = bound_socket.getsockname()[1]
        with pytest.raises(TunnelError, match=f"cannot connect to 127.0.0.1:{port}: connection refused$"):
            await dial("127.0.0.1", port, SessionPolicy())


async def test_dial_an_unknown_name_is_a_refusal() -> None:
    """The error is the resolver's text, not a number."""
    with pytest.raises(TunnelError, match=r"^cannot connect to nobody.invalid:22: (?!Unknown error)\D+$"):
        await dial("nobody.invalid", 22, SessionPolicy())


async def test_bridge_whose_target_vanishes_aborts_the_caller(ground: Ground) -> None:
    """The error says which end of the bridge was lost."""
    tunnel = TunnelServer(bridge=True)
    address = await ground.server(tunnel)
    owner = await ground.client(address, SSH, handler=taking(echo))
    caller = await ground.client(address, subscribe=[""])
    stream = await caller.client.open_session(SSH)
    await still_works(stream)
    await owner.client.close()
    with pytest.raises(
        TunnelAbortedError, match="at the target's end of the bridge: the client disconnected"
    ):
        await stream.read()
    await eventually(lambda: no_sessions(tunnel))


async def test_bridge_whose_caller_vanishes_aborts_the_target(ground: Ground) -> None:
    """Even if the target finished sending and nobody reads its session."""
    stream_future: asyncio.Future[TunnelStream] = asyncio.get_running_loop().create_future()

    async def finish(stream: TunnelStream) -> None:
        await stream.write_eof()
        stream_future.set_result(stream)
        await stream.read()

    tunnel = TunnelServer(bridge=True)
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=taking(finish))
    caller = await ground.client(address, subscribe=[""])
    stream = await caller.client.open_session(SSH)
    assert await stream.read() == b""
    await caller.client.close()
    async with asyncio.timeout(60):
        target_stream = await stream_future
        await asyncio.wait((target_stream.call_over_future,))
        assert "caller" in await target_stream.failure_reason()
    await eventually(lambda: no_sessions(tunnel))


async def test_bridge_whose_finished_target_dies_aborts_the_caller(ground: Ground) -> None:
    """The bridge no longer reads the finished target; the caller, which sends nothing, gets the error."""
    tunnel = TunnelServer(bridge=True)
    address = await ground.server(tunnel)

    async def finish(stream: TunnelStream) -> None:
        await stream.write_eof()
        await stream.read()

    owner = await ground.client(address, SSH, handler=taking(finish))
    caller = await ground.client(address, subscribe=[""])
    stream = await caller.client.open_session(SSH)
    assert await stream.read() == b""
    await owner.client.close()
    async with asyncio.timeout(60):
        await asyncio.wait((stream.call_over_future,))
        assert "at the target's end of the bridge" in await stream.failure_reason()


def test_failing_callback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[object] = []
    call_back(calls.append, 1)
    call_back(None, 1)
    call_back(calls.remove, 2)
    assert calls == [1]
    assert "a callback of the tunnel's user failed" in caplog.text


async def test_dialled_and_discarded_closes_its_connection(ground: Ground) -> None:
    """A session whose stream did not open leaves no connection."""
    session = await dial("127.0.0.1", await ground.service(echo_tcp), SessionPolicy())
    session.discard()
    assert session._connection.transport is not None
    assert session._connection.transport.is_closing()


async def test_function_session_serves_with_its_function(ground: Ground) -> None:
    """A coroutine function is a sufficient handler."""
    pair = await ground.pair()
    await pair.client.write(b"x")
    await pair.client.write_eof()
    await FunctionSession(echo).serve(pair.server)
    await pair.server.write_eof()
    assert await pair.client.read() == b"x"
    FunctionSession(echo).discard()
