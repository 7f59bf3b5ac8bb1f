"""Stream of a session: reads of any size, and the kinds of its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import pytest

from fleet.protocol.tunnel.messages import TunnelError, WireVersion
from fleet.transport.tunnel import codec
from fleet.transport.tunnel.options import MOST_MESSAGE
from fleet.transport.tunnel.server import TunnelServer
from fleet.transport.tunnel.stream import TunnelAbortedError, TunnelStream
from tests.fakes.tunnel import SSH, Ground, Pair, taking
from tests.fakes.waiting import eventually


@pytest.mark.parametrize("limit", [1, 3, 7, 15, 20, 50, 100])
async def test_read_of_any_size_keeps_the_rest(ground: Ground, limit: int) -> None:
    pair = await ground.pair()
    await pair.server.write(b"twelve bytes")
    received_data = b""
    while len(received_data) < 12:
        part = await pair.client.read(limit)
        assert 0 < len(part) <= limit
        received_data += part
    assert received_data == b"twelve bytes"


@pytest.mark.parametrize("ending_side", ["server", "client"])
async def test_write_eof_ends_one_direction(ground: Ground, ending_side: str) -> None:
    """Between our own peers the other direction continues, as in TCP."""
    pair = await ground.pair()
    ends = [pair.server, pair.client] if ending_side == "server" else [pair.client, pair.server]
    await ends[0].write(b"question")
    await ends[0].write_eof()
    assert await ends[1].read() == b"question"
    assert await ends[1].read() == b""
    await ends[1].write(b"answer")
    await ends[1].write_eof()
    assert await ends[0].read() == b"answer"
    assert await ends[0].read() == b""
    with pytest.raises(TunnelError, match="already finished sending"):
        await ends[0].write(b"more")
    await asyncio.gather(pair.server.close(), pair.client.close())


@pytest.mark.parametrize("aborting_side", ["server", "client"])
async def test_abort_reaches_the_other_end(ground: Ground, aborting_side: str) -> None:
    """Earlier bytes may be lost; the end is never an orderly one."""
    pair = await ground.pair()
    stream, other_stream = (
        (pair.server, pair.client) if aborting_side == "server" else (pair.client, pair.server)
    )
    stream.abort("out of patience")
    with pytest.raises(TunnelAbortedError) as caught:
        await other_stream.read()
    if aborting_side == "server":
        assert str(caught.value) == "out of patience"


async def test_read_wakes_on_a_local_close(ground: Ground) -> None:
    pair = await ground.pair()
    read_task = asyncio.create_task(pair.server.read())
    await asyncio.sleep(0)
    close_task = asyncio.create_task(pair.server.close())
    with pytest.raises(TunnelAbortedError, match="closed"):
        await read_task
    await pair.client.close()
    await close_task


async def test_large_data_arrives_in_both_directions_at_once(ground: Ground) -> None:
    """4 MiB in each direction, in messages of up to 1 MiB."""
    pair = await ground.pair()
    server_data, client_data = bytes(range(256)) * 16384, bytes(reversed(range(256))) * 16384

    async def read_all(stream: object) -> bytes:
        received_data = bytearray()
        while part := await stream.read():  # type: ignore[attr-defined]
            received_data += part
        return bytes(received_data)

    async def write_all(stream: object, data: bytes) -> None:
        await stream.write(data)  # type: ignore[attr-defined]
        await stream.write_eof()  # type: ignore[attr-defined]

    received_data = await asyncio.gather(
        read_all(pair.server),
        read_all(pair.client),
        write_all(pair.server, server_data),
        write_all(pair.client, client_data),
    )
    assert (received_data[0], received_data[1]) == (client_data, server_data)
    await asyncio.gather(pair.server.close(), pair.client.close())


async def test_close_drops_unread_data(ground: Ground) -> None:
    """Otherwise the end behind the data would not be read."""
    pair = await ground.pair()
    await pair.server.write(bytes(3 * 1024 * 1024))
    close_task = asyncio.create_task(pair.server.close())
    async with asyncio.timeout(60):
        await pair.client.close()
        await close_task


@pytest.mark.parametrize("aborting_side", ["server", "client"])
async def test_cancelled_read_leaves_no_error(ground: Ground, aborting_side: str) -> None:
    """The session is aborted after the caller is gone: no unretrieved exception is logged."""
    await _cancel_read_and_abort(await ground.pair(), aborting_side)
    gc.collect()


async def _cancel_read_and_abort(pair: Pair, aborting_side: str) -> None:
    stream, other_stream = (
        (pair.server, pair.client) if aborting_side == "server" else (pair.client, pair.server)
    )
    read_task = asyncio.create_task(stream.read())
    await eventually(lambda: stream._read_task is not None)
    read_task.cancel()
    await asyncio.wait((read_task,))
    other_stream.abort("enough")
    await eventually(stream.call_over_future.done)


async def test_write_after_the_server_closed_is_refused(ground: Ground) -> None:
    """The error has a reason, although the call's status is OK."""
    pair = await ground.pair()
    close_task = asyncio.create_task(pair.server.close())
    assert await pair.client.read() == b""
    await pair.client.write(b"data instead of an end")
    await close_task
    await eventually(pair.client.call_over_future.done)
    with pytest.raises(TunnelAbortedError, match="the other end has closed the session"):
        await pair.client.write(b"x")


async def test_simultaneous_ends_are_orderly(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that did not wait has closed both directions: nothing was lost, so there is no abort."""
    monkeypatch.setattr("fleet.transport.tunnel.stream._CLIENT_END_WITHIN", 0.0)
    pair = await ground.pair()
    await pair.server.close()
    assert await pair.client.read() == b""
    await eventually(pair.client.call_over_future.done)
    await pair.client.write_eof()
    await pair.client.close()


@pytest.mark.parametrize("wire", list(WireVersion))
async def test_client_that_ends_late_reads_the_whole_response(ground: Ground, wire: WireVersion) -> None:
    """The server responds and closes; a client that ends later loses no unread bytes."""
    is_sent = asyncio.Event()

    async def respond(stream: TunnelStream) -> None:
        await stream.write(b"the answer")
        await stream.write_eof()
        is_sent.set()

    tunnel_client = await ground.client(
        await ground.server(TunnelServer(wire, handler=taking(respond))), wire=wire
    )
    for _ in range(20):
        is_sent.clear()
        stream = await tunnel_client.client.open_session(SSH)
        await is_sent.wait()
        await asyncio.wait((stream.call_over_future,), timeout=0.02)  # time for an early end of the call
        await stream.write_eof()
        assert await stream.read() == b"the answer"
        assert await stream.read() == b""
        await stream.close()


async def test_oversized_message_fails_both_ends(ground: Ground) -> None:
    """The sender gets gRPC's text; the server, which gets none, lists it among the possible reasons."""
    pair = await ground.pair()
    reads = asyncio.gather(pair.client.read(), pair.server.read(), return_exceptions=True)
    with contextlib.suppress(TunnelAbortedError):
        await pair.client.send(codec.data_message(bytes(MOST_MESSAGE)))
    at_client, at_server = await reads
    assert isinstance(at_client, TunnelAbortedError)
    assert isinstance(at_server, TunnelAbortedError)
    assert "larger than max" in str(at_client)
    assert "a message that is too large" in str(at_server)
