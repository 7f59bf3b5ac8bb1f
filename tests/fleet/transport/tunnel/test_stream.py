"""A session's stream: reads of any size, its ends, and that each end is told what kind of end it was."""

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
    """Twelve bytes in one message, read in pieces."""
    pair = await ground.pair()
    await pair.server.write(b"twelve bytes")
    got = b""
    while len(got) < 12:
        part = await pair.client.read(limit)
        assert 0 < len(part) <= limit
        got += part
    assert got == b"twelve bytes"


@pytest.mark.parametrize("first", ["server", "client"])
async def test_write_eof_ends_one_direction(ground: Ground, first: str) -> None:
    """Between peers of ours the other direction goes on, as in TCP."""
    pair = await ground.pair()
    ends = [pair.server, pair.client] if first == "server" else [pair.client, pair.server]
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


@pytest.mark.parametrize("who", ["server", "client"])
async def test_abort_is_told_to_the_other_end(ground: Ground, who: str) -> None:
    """What was said before may be read or not; the end is never taken for a good one."""
    pair = await ground.pair()
    one, other = (pair.server, pair.client) if who == "server" else (pair.client, pair.server)
    one.abort("out of patience")
    with pytest.raises(TunnelAbortedError) as caught:
        await other.read()
    if who == "server":
        assert str(caught.value) == "out of patience"


async def test_read_wakes_on_a_local_close(ground: Ground) -> None:
    """A reader of ours that waits is not left behind."""
    pair = await ground.pair()
    waiting = asyncio.create_task(pair.server.read())
    await asyncio.sleep(0)
    closing = asyncio.create_task(pair.server.close())
    with pytest.raises(TunnelAbortedError, match="closed"):
        await waiting
    await pair.client.close()
    await closing


async def test_much_data_both_ways_at_once_arrives_whole(ground: Ground) -> None:
    """Four mebibytes each way, in messages of up to one."""
    pair = await ground.pair()
    ours, theirs = bytes(range(256)) * 16384, bytes(reversed(range(256))) * 16384

    async def read_all(stream: object) -> bytes:
        got = bytearray()
        while part := await stream.read():  # type: ignore[attr-defined]
            got += part
        return bytes(got)

    async def write_all(stream: object, data: bytes) -> None:
        await stream.write(data)  # type: ignore[attr-defined]
        await stream.write_eof()  # type: ignore[attr-defined]

    got = await asyncio.gather(
        read_all(pair.server),
        read_all(pair.client),
        write_all(pair.server, ours),
        write_all(pair.client, theirs),
    )
    assert (got[0], got[1]) == (theirs, ours)
    await asyncio.gather(pair.server.close(), pair.client.close())


async def test_close_with_unread_data_does_not_wait_for_a_reader(ground: Ground) -> None:
    """What nobody wants to read is dropped, so that the end behind it is seen."""
    pair = await ground.pair()
    await pair.server.write(bytes(3 * 1024 * 1024))
    closing = asyncio.create_task(pair.server.close())
    async with asyncio.timeout(60):
        await pair.client.close()
        await closing


@pytest.mark.parametrize("who", ["server", "client"])
async def test_read_that_is_given_up_leaves_no_error_behind(ground: Ground, who: str) -> None:
    """Its caller is gone when the session is aborted: nobody is told of an exception that was never retrieved."""
    await _give_up(await ground.pair(), who)
    gc.collect()


async def _give_up(pair: Pair, who: str) -> None:
    stream, other = (pair.server, pair.client) if who == "server" else (pair.client, pair.server)
    reading = asyncio.create_task(stream.read())
    await eventually(lambda: stream._read_task is not None)
    reading.cancel()
    await asyncio.wait((reading,))
    other.abort("enough")
    await eventually(stream.over_future.done)


async def test_write_after_the_server_closed_says_so(ground: Ground) -> None:
    """The call ended well, and "OK" is no reason."""
    pair = await ground.pair()
    closing = asyncio.create_task(pair.server.close())
    assert await pair.client.read() == b""
    await pair.client.write(b"data instead of an end")
    await closing
    await eventually(pair.client.over_future.done)
    with pytest.raises(TunnelAbortedError, match="the other end has closed the session"):
        await pair.client.write(b"x")


async def test_end_that_meets_the_server_s_end_is_a_good_one(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that did not wait has closed both directions: nothing was lost, so nothing is aborted."""
    monkeypatch.setattr("fleet.transport.tunnel.stream._LAST_WORD_WITHIN", 0.0)
    pair = await ground.pair()
    await pair.server.close()
    assert await pair.client.read() == b""
    await eventually(pair.client.over_future.done)
    await pair.client.write_eof()
    await pair.client.close()


@pytest.mark.parametrize("wire", list(WireVersion))
async def test_client_that_ends_late_reads_the_whole_answer(ground: Ground, wire: WireVersion) -> None:
    """The server answers and closes; a client that only then ends its own direction loses nothing unread."""
    answered = asyncio.Event()

    async def answer(stream: TunnelStream) -> None:
        await stream.write(b"the answer")
        await stream.write_eof()
        answered.set()

    running = await ground.client(await ground.server(TunnelServer(wire, handler=taking(answer))), wire=wire)
    for _ in range(20):
        answered.clear()
        stream = await running.client.open_session(SSH)
        await answered.wait()
        await asyncio.wait(
            (stream.over_future,), timeout=0.02
        )  # so that an early end of the call would be there
        await stream.write_eof()
        assert await stream.read() == b"the answer"
        assert await stream.read() == b""
        await stream.close()


async def test_message_that_is_too_large_is_told_to_both_ends(ground: Ground) -> None:
    """The sender hears gRPC's words; the server, to whom gRPC tells nothing, names it among what it may be."""
    pair = await ground.pair()
    reading = asyncio.gather(pair.client.read(), pair.server.read(), return_exceptions=True)
    with contextlib.suppress(TunnelAbortedError):
        await pair.client.send(codec.data_message(bytes(MOST_MESSAGE)))
    at_client, at_server = await reading
    assert isinstance(at_client, TunnelAbortedError)
    assert isinstance(at_server, TunnelAbortedError)
    assert "larger than max" in str(at_client)
    assert "a message that is too large" in str(at_server)
