"""A forward passes, holds and cuts; nothing is lost by holding."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop

from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.local.forwards import Forward
from tests.fakes.waiting import DEADLINE, eventually

#: Long enough that a byte over loopback would have come.
QUIET = 0.15


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[str, int]]:
    """A server that says back what it hears."""

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    server = await asyncio.start_server(on_connect, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[:2]
    server.close()


@pytest.fixture
async def echo() -> AsyncIterator[tuple[str, int]]:
    async with echoing() as address:
        yield address


@pytest.fixture
async def forward(echo: tuple[str, int]) -> AsyncIterator[Forward]:
    made = Forward("x", ("127.0.0.1", 0), echo)
    await made.start()
    yield made
    await made.stop()


async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, words: bytes) -> None:
    writer.write(words)
    async with asyncio.timeout(DEADLINE):
        assert await reader.readexactly(len(words)) == words


async def silent(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(QUIET):
            await reader.read(1)
    except TimeoutError:
        return True
    return False


async def test_pass_bytes_go_both_ways(forward: Forward) -> None:
    """What is sent comes back."""
    reader, writer = await asyncio.open_connection(*forward.listen)
    await say(reader, writer, b"hello")
    writer.close()


async def test_pass_much_at_once_arrives_whole(forward: Forward) -> None:
    """Backpressure: 8 MB through slow buffers, in order and complete."""
    reader, writer = await asyncio.open_connection(*forward.listen)
    words = bytes(range(256)) * 32768
    await say(reader, writer, words)
    writer.close()


async def test_pass_half_close_is_passed_on(forward: Forward) -> None:
    """The end of one direction leaves the other open until it ends too."""
    reader, writer = await asyncio.open_connection(*forward.listen)
    writer.write(b"last words")
    writer.write_eof()
    async with asyncio.timeout(DEADLINE):
        assert await reader.read() == b"last words"
    await eventually(lambda: not forward.links)
    writer.close()


async def test_hold_nothing_passes_then_everything(forward: Forward) -> None:
    """Held bytes are not lost, on an old connection and on one made meanwhile."""
    old_reader, old_writer = await asyncio.open_connection(*forward.listen)
    await say(old_reader, old_writer, b"before")
    await forward.change(mode=ForwardMode.HOLD)
    new_reader, new_writer = await asyncio.open_connection(*forward.listen)
    old_writer.write(b"old")
    new_writer.write(b"new")
    assert await silent(old_reader)
    assert await silent(new_reader)
    await forward.change(mode=ForwardMode.PASS)
    async with asyncio.timeout(DEADLINE):
        assert await old_reader.readexactly(3) == b"old"
        assert await new_reader.readexactly(3) == b"new"
    old_writer.close()
    new_writer.close()


def test_pass_on_uvloop_what_is_said_first_is_kept() -> None:
    """uvloop reads before we are connected onwards, paused or not; held bytes are kept there too."""

    async def one(forward: Forward, number: int) -> None:
        reader, writer = await asyncio.open_connection(*forward.listen)
        await say(reader, writer, f"client {number}".encode())
        writer.close()
        await writer.wait_closed()

    async def scene() -> None:
        async with echoing() as to:
            forward = Forward("x", ("127.0.0.1", 0), to)
            await forward.start()
            await asyncio.gather(*(one(forward, number) for number in range(50)))
            await eventually(lambda: not forward.links)
            await forward.change(mode=ForwardMode.HOLD)
            waiting = [asyncio.ensure_future(one(forward, number)) for number in range(50)]
            await eventually(lambda: len(forward.links) == 50)
            assert not any(task.done() for task in waiting)
            await forward.change(mode=ForwardMode.PASS)
            await asyncio.gather(*waiting)
            await eventually(lambda: not forward.links)
            await forward.stop()

    uvloop.run(scene())


async def test_hold_the_end_of_a_stream_does_not_pass_either(forward: Forward) -> None:
    """A blackhole does not tell that the peer is gone."""
    reader, writer = await asyncio.open_connection(*forward.listen)
    await say(reader, writer, b"before")
    await forward.change(mode=ForwardMode.HOLD)
    writer.close()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(QUIET):
            await eventually(lambda: not forward.links)
    await forward.change(mode=ForwardMode.PASS)
    await eventually(lambda: not forward.links)


async def test_cut_resets_and_refuses_until_it_passes_again(forward: Forward) -> None:
    """Existing connections are reset, new ones refused, and the port is the same after."""
    reader, writer = await asyncio.open_connection(*forward.listen)
    await say(reader, writer, b"before")
    await forward.change(mode=ForwardMode.CUT)
    with pytest.raises(ConnectionResetError):
        async with asyncio.timeout(DEADLINE):
            await reader.read()
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*forward.listen)
    await forward.change(mode=ForwardMode.PASS)
    reader, writer = await asyncio.open_connection(*forward.listen)
    await say(reader, writer, b"after")
    writer.close()


async def test_cut_then_hold_accepts_and_keeps_silent(forward: Forward) -> None:
    """From cut one may go to hold."""
    await forward.change(mode=ForwardMode.CUT)
    await forward.change(mode=ForwardMode.HOLD)
    reader, writer = await asyncio.open_connection(*forward.listen)
    writer.write(b"hello")
    assert await silent(reader)
    writer.close()


async def test_target_given_later_connections_waited_for_it(echo: tuple[str, int]) -> None:
    """A forward may be advertised before the port it goes to is known."""
    forward = Forward("x", ("127.0.0.1", 0), None)
    await forward.start()
    reader, writer = await asyncio.open_connection(*forward.listen)
    writer.write(b"early")
    assert await silent(reader)
    await forward.change(to=echo)
    async with asyncio.timeout(DEADLINE):
        assert await reader.readexactly(5) == b"early"
    assert forward.describe()["to"] == f"127.0.0.1:{echo[1]}"
    writer.close()
    await forward.stop()


async def test_target_refuses_the_client_is_reset(forward: Forward, unused_tcp_port: int) -> None:
    """A dead target looks dead, not slow."""
    await forward.change(to=("127.0.0.1", unused_tcp_port))
    reader, writer = await asyncio.open_connection(*forward.listen)
    with pytest.raises(ConnectionResetError):
        async with asyncio.timeout(DEADLINE):
            await reader.read()
    writer.close()


def test_cut_resets_a_connection_that_is_being_accepted() -> None:
    """On uvloop, as forwarders run: at whichever step of the loop the cut comes, no client is left open and silent."""

    async def scene() -> None:
        async with echoing() as to:
            for steps in range(8):
                forward = Forward("x", ("127.0.0.1", 0), to)
                await forward.start()
                # The kernel completes this connection before the event loop has accepted it.
                with socket.create_connection(forward.listen) as client:
                    client.setblocking(False)
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    await forward.change(mode=ForwardMode.CUT)
                    with pytest.raises(ConnectionResetError):
                        async with asyncio.timeout(DEADLINE):
                            await asyncio.get_running_loop().sock_recv(client, 1)
                await forward.stop()

    uvloop.run(scene())
