"""File descriptors as one end of a connection: bytes in both directions, both ends, and a lost reader."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from fleet.nodes.shared.stdio import Stdio, open_stdio
from fleet.transport.tunnel import codec


class Pipes:
    """Standard input and output of a program, and the other ends of both pipes."""

    def __init__(self) -> None:
        self.source, self.feed = (
            os.fdopen(end, mode, 0) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True)
        )
        self.drain, self.sink = (
            os.fdopen(end, mode, 0) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True)
        )

    async def open(self) -> Stdio:
        return await open_stdio(self.source.fileno(), self.sink.fileno())


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    """Yield pipes that are closed after the test."""
    pipes = Pipes()
    yield pipes
    for end in (pipes.feed, pipes.source, pipes.drain, pipes.sink):
        end.close()


async def _read_all(stdio: Stdio) -> bytes:
    """Return everything up to the end of standard input."""
    content = b""
    while (message := await stdio.connection.read()) is not None:
        content += codec.read_data(message)[0]
    return content


async def test_input_is_read_to_its_end(pipes: Pipes) -> None:
    """The input exceeds every buffer and ends with end of stream."""
    content = bytes(range(256)) * 4096
    stdio = await pipes.open()

    def write() -> None:
        view = memoryview(content)
        while view:
            view = view[pipes.feed.write(view) or 0 :]
        pipes.feed.close()

    received_content, _ = await asyncio.gather(_read_all(stdio), asyncio.to_thread(write))
    assert received_content == content
    stdio.connection.close()
    await stdio.wait_until_written()


async def test_wait_until_written_returns_after_the_output(pipes: Pipes) -> None:
    """A program that exits afterwards loses no bytes."""
    stdio = await pipes.open()
    await stdio.connection.write(memoryview(b"answer"))
    stdio.connection.close()
    await stdio.wait_until_written()
    assert pipes.drain.read(100) == b"answer"


async def test_closed_output_ends_the_connection(pipes: Pipes) -> None:
    """Writing fails as with a lost TCP peer."""
    stdio = await pipes.open()
    pipes.drain.close()

    async def write() -> None:
        while True:
            await stdio.connection.write(memoryview(b"x" * 65536))
            await asyncio.sleep(0)

    with pytest.raises(OSError, match=r"."):
        await asyncio.wait_for(write(), 60)
