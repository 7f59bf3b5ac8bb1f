"""A session's stream: reads of any size, its ends, and that each end is told what kind of end it was."""

from __future__ import annotations

import asyncio

import pytest

from fleet.protocol.tunnel import TunnelError
from fleet.transport.tunnel.stream import TunnelAborted
from tests.fakes.tunnel import Ground


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
    with pytest.raises(TunnelError, match="finished already"):
        await ends[0].write(b"more")
    await asyncio.gather(pair.server.close(), pair.client.close())


@pytest.mark.parametrize("who", ["server", "client"])
async def test_abort_is_told_to_the_other_end(ground: Ground, who: str) -> None:
    """What was said before may be read or not; the end is never taken for a good one."""
    pair = await ground.pair()
    one, other = (pair.server, pair.client) if who == "server" else (pair.client, pair.server)
    one.abort("out of patience")
    with pytest.raises(TunnelAborted) as caught:
        await other.read()
    if who == "server":
        assert str(caught.value) == "out of patience"


async def test_read_wakes_on_a_local_close(ground: Ground) -> None:
    """A reader of ours that waits is not left behind."""
    pair = await ground.pair()
    waiting = asyncio.create_task(pair.server.read())
    await asyncio.sleep(0)
    closing = asyncio.create_task(pair.server.close())
    with pytest.raises(TunnelAborted, match="closed"):
        await waiting
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
