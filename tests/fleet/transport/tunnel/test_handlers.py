"""What serves sessions."""

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
    """Who asked for the session learns what could not be reached."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(TunnelError, match=f"cannot connect to 127.0.0.1:{port}: Connection refused$"):
            await dial("127.0.0.1", port, SessionPolicy())


async def test_dial_a_name_that_nobody_knows_says_so() -> None:
    """The resolver's words, whichever they are, and not a number."""
    with pytest.raises(TunnelError, match=r"^cannot connect to nobody.invalid:22: (?!Unknown error)\D+$"):
        await dial("nobody.invalid", 22, SessionPolicy())


async def test_bridge_whose_target_vanishes_tells_the_caller_where_it_broke(ground: Ground) -> None:
    """The owner of the target goes in the middle of a session: the caller's is aborted, with the end that was lost."""
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


async def test_bridge_whose_caller_vanishes_tells_the_target(ground: Ground) -> None:
    """And the other way round, though the target had ended its own sending and nobody reads its session."""
    given: asyncio.Future[TunnelStream] = asyncio.get_running_loop().create_future()

    async def finish(stream: TunnelStream) -> None:
        await stream.write_eof()
        given.set_result(stream)
        await stream.read()

    tunnel = TunnelServer(bridge=True)
    address = await ground.server(tunnel)
    await ground.client(address, SSH, handler=taking(finish))
    caller = await ground.client(address, subscribe=[""])
    stream = await caller.client.open_session(SSH)
    assert await stream.read() == b""
    await caller.client.close()
    async with asyncio.timeout(60):
        far = await given
        await asyncio.wait((far.over_future,))
        assert "caller" in await far.verdict()
    await eventually(lambda: no_sessions(tunnel))


async def test_bridge_whose_target_dies_when_it_was_finished_ends_its_caller(ground: Ground) -> None:
    """Its sending had ended, so the bridge reads it no more; the caller, who still sends nothing, is told."""
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
        await asyncio.wait((stream.over_future,))
        assert "at the target's end of the bridge" in await stream.verdict()


def test_tell_a_callback_that_fails_is_logged_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """A stranger's fault is not the tunnel's."""
    heard: list[object] = []
    call_back(heard.append, 1)
    call_back(None, 1)
    call_back(heard.remove, 2)
    assert heard == [1]
    assert "a callback of the tunnel's user failed" in caplog.text


async def test_dialled_and_discarded_closes_its_connection(ground: Ground) -> None:
    """A session whose stream never came leaves no connection open."""
    taken = await dial("127.0.0.1", await ground.service(echo_tcp), SessionPolicy())
    taken.discard()
    assert taken._connection.transport is not None
    assert taken._connection.transport.is_closing()


async def test_serve_serves_with_its_function(ground: Ground) -> None:
    """A coroutine function is enough of a handler."""
    pair = await ground.pair()
    await pair.client.write(b"x")
    await pair.client.write_eof()
    await FunctionSession(echo).serve(pair.server)
    await pair.server.write_eof()
    assert await pair.client.read() == b"x"
    FunctionSession(echo).discard()
