"""Descriptors as a TCP end: bytes both ways, ends of both, and a reader that is gone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from fleet.nodes.shared.stdio import Stdio, open_stdio
from fleet.transport.tunnel import codec


class Pipes:
    """Standard input and output of a program, and the other ends of both."""

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
    """Closed afterwards."""
    pipes = Pipes()
    yield pipes
    for end in (pipes.feed, pipes.source, pipes.drain, pipes.sink):
        end.close()


async def _received(stdio: Stdio) -> bytes:
    """Everything until standard input ends."""
    got = b""
    while (message := await stdio.connection.read()) is not None:
        got += codec.read_data(message)[0]
    return got


async def test_input_reaches_the_pump_to_its_end(pipes: Pipes) -> None:
    """More than one buffer full, then the end of stream."""
    sent = bytes(range(256)) * 4096
    stdio = await pipes.open()

    def write() -> None:
        view = memoryview(sent)
        while view:
            view = view[pipes.feed.write(view) or 0 :]
        pipes.feed.close()

    received, _ = await asyncio.gather(_received(stdio), asyncio.to_thread(write))
    assert received == sent
    stdio.connection.close()
    await stdio.wait_until_written()


async def test_output_is_written_before_it_counts_as_written(pipes: Pipes) -> None:
    """Who exits afterwards loses nothing."""
    stdio = await pipes.open()
    await stdio.connection.write(memoryview(b"answer"))
    stdio.connection.close()
    await stdio.wait_until_written()
    assert pipes.drain.read(100) == b"answer"


async def test_output_that_nobody_reads_ends_the_connection(pipes: Pipes) -> None:
    """The pump learns of it as it does of a TCP peer that is gone."""
    stdio = await pipes.open()
    pipes.drain.close()

    async def write() -> None:
        while True:
            await stdio.connection.write(memoryview(b"x" * 65536))
            await asyncio.sleep(0)

    with pytest.raises(OSError, match=r"."):
        await asyncio.wait_for(write(), 60)
