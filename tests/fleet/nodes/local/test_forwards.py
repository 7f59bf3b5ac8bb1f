"""A forward passes, holds and cuts connections, and loses no held bytes."""

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

#: Seconds within which a byte over loopback would have arrived.
SILENCE_SECONDS = 0.15


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[str, int]]:
    """Yield the address of a server that returns every byte it receives."""

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
    started_forward = Forward("x", ("127.0.0.1", 0), echo)
    await started_forward.start()
    yield started_forward
    await started_forward.stop()


async def send_and_expect_echo(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: bytes
) -> None:
    writer.write(message)
    async with asyncio.timeout(DEADLINE):
        assert await reader.readexactly(len(message)) == message


async def is_silent(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(SILENCE_SECONDS):
            await reader.read(1)
    except TimeoutError:
        return True
    return False


async def test_pass_forwards_bytes_in_both_directions(forward: Forward) -> None:
    """The echo of the sent bytes arrives."""
    reader, writer = await asyncio.open_connection(*forward.listen)
    await send_and_expect_echo(reader, writer, b"hello")
    writer.close()


async def test_pass_forwards_large_data_unchanged(forward: Forward) -> None:
    """8 MB arrive in order and complete, with backpressure."""
    reader, writer = await asyncio.open_connection(*forward.listen)
    message = bytes(range(256)) * 32768
    await send_and_expect_echo(reader, writer, message)
    writer.close()


async def test_pass_forwards_half_close(forward: Forward) -> None:
    """The end of one direction leaves the other direction open until it ends as well."""
    reader, writer = await asyncio.open_connection(*forward.listen)
    writer.write(b"last words")
    writer.write_eof()
    async with asyncio.timeout(DEADLINE):
        assert await reader.read() == b"last words"
    await eventually(lambda: not forward.pairs)
    writer.close()


async def test_hold_delays_all_bytes_until_pass(forward: Forward) -> None:
    """Held bytes are not lost, on old connections and on those that were opened meanwhile."""
    old_reader, old_writer = await asyncio.open_connection(*forward.listen)
    await send_and_expect_echo(old_reader, old_writer, b"before")
    await forward.change(mode=ForwardMode.HOLD)
    new_reader, new_writer = await asyncio.open_connection(*forward.listen)
    old_writer.write(b"old")
    new_writer.write(b"new")
    assert await is_silent(old_reader)
    assert await is_silent(new_reader)
    await forward.change(mode=ForwardMode.PASS)
    async with asyncio.timeout(DEADLINE):
        assert await old_reader.readexactly(3) == b"old"
        assert await new_reader.readexactly(3) == b"new"
    old_writer.close()
    new_writer.close()


def test_uvloop_keeps_bytes_sent_before_the_target_is_connected() -> None:
    """uvloop reads before the forward has a target connection; held bytes are kept there too."""

    async def connect_and_echo(forward: Forward, number: int) -> None:
        reader, writer = await asyncio.open_connection(*forward.listen)
        await send_and_expect_echo(reader, writer, f"client {number}".encode())
        writer.close()
        await writer.wait_closed()

    async def run_scenario() -> None:
        async with echoing() as target_address:
            forward = Forward("x", ("127.0.0.1", 0), target_address)
            await forward.start()
            await asyncio.gather(*(connect_and_echo(forward, number) for number in range(50)))
            await eventually(lambda: not forward.pairs)
            await forward.change(mode=ForwardMode.HOLD)
            held_tasks = [asyncio.ensure_future(connect_and_echo(forward, number)) for number in range(50)]
            await eventually(lambda: len(forward.pairs) == 50)
            assert not any(task.done() for task in held_tasks)
            await forward.change(mode=ForwardMode.PASS)
            await asyncio.gather(*held_tasks)
            await eventually(lambda: not forward.pairs)
            await forward.stop()

    uvloop.run(run_scenario())


async def test_hold_delays_the_end_of_a_connection(forward: Forward) -> None:
    """During a blackhole a peer does not learn that the other side has closed."""
    reader, writer = await asyncio.open_connection(*forward.listen)
    await send_and_expect_echo(reader, writer, b"before")
    await forward.change(mode=ForwardMode.HOLD)
    writer.close()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SILENCE_SECONDS):
            await eventually(lambda: not forward.pairs)
    await forward.change(mode=ForwardMode.PASS)
    await eventually(lambda: not forward.pairs)


async def test_cut_resets_and_refuses_connections_until_pass(forward: Forward) -> None:
    """Open connections are reset, new ones refused, and the port stays the same."""
    reader, writer = await asyncio.open_connection(*forward.listen)
    await send_and_expect_echo(reader, writer, b"before")
    await forward.change(mode=ForwardMode.CUT)
    with pytest.raises(ConnectionResetError):
        async with asyncio.timeout(DEADLINE):
            await reader.read()
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*forward.listen)
    await forward.change(mode=ForwardMode.PASS)
    reader, writer = await asyncio.open_connection(*forward.listen)
    await send_and_expect_echo(reader, writer, b"after")
    writer.close()


async def test_hold_after_cut_accepts_connections(forward: Forward) -> None:
    """New connections are accepted, and no bytes pass."""
    await forward.change(mode=ForwardMode.CUT)
    await forward.change(mode=ForwardMode.HOLD)
    reader, writer = await asyncio.open_connection(*forward.listen)
    writer.write(b"hello")
    assert await is_silent(reader)
    writer.close()


async def test_connections_wait_for_a_later_target(echo: tuple[str, int]) -> None:
    """A forward may be advertised before its target is known."""
    forward = Forward("x", ("127.0.0.1", 0), None)
    await forward.start()
    reader, writer = await asyncio.open_connection(*forward.listen)
    writer.write(b"early")
    assert await is_silent(reader)
    await forward.change(target_address=echo)
    async with asyncio.timeout(DEADLINE):
        assert await reader.readexactly(5) == b"early"
    assert forward.describe()["target_address"] == f"127.0.0.1:{echo[1]}"
    writer.close()
    await forward.stop()


async def test_client_is_reset_if_the_target_refuses(forward: Forward, unused_tcp_port: int) -> None:
    """A dead target is visible as dead and not as slow."""
    await forward.change(target_address=("127.0.0.1", unused_tcp_port))
    reader, writer = await asyncio.open_connection(*forward.listen)
    with pytest.raises(ConnectionResetError):
        async with asyncio.timeout(DEADLINE):
            await reader.read()
    writer.close()


def test_cut_resets_a_connection_that_is_being_accepted() -> None:
    """At whichever step of uvloop the cut happens, no client stays open and silent."""

    async def run_scenario() -> None:
        async with echoing() as target_address:
            for steps in range(8):
                forward = Forward("x", ("127.0.0.1", 0), target_address)
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

    uvloop.run(run_scenario())
