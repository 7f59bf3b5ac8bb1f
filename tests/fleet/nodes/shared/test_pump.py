"""A pair of connections: resets, lost ends and failing tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from fleet.nodes.shared.pump import ConnectionPair, Tasks
from tests.fakes.loop_faults import record_loop_faults
from tests.fakes.waiting import eventually


@dataclass
class PairServer:
    """A server of connection pairs whose second connection is not dialled."""

    port: int = 0
    accepted_pairs: list[ConnectionPair] = field(default_factory=list)
    ended_pairs: list[ConnectionPair] = field(default_factory=list)


@pytest.fixture
async def pair_server() -> AsyncIterator[PairServer]:
    started_server = PairServer()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: ConnectionPair(started_server.accepted_pairs.append, started_server.ended_pairs.append).near,
        "127.0.0.1",
        0,
    )
    started_server.port = server.sockets[0].getsockname()[1]
    yield started_server
    for link in started_server.accepted_pairs:
        link.reset()
    server.close()
    await eventually(lambda: len(started_server.ended_pairs) == len(started_server.accepted_pairs))


async def test_reset_pair_reports_its_end_once(pair_server: PairServer) -> None:
    """The client sees a reset, and the owner is called once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", pair_server.port)
    await eventually(lambda: len(pair_server.accepted_pairs) == 1)
    pair_server.accepted_pairs[0].reset()
    with pytest.raises(ConnectionResetError):
        await reader.read()
    await eventually(lambda: bool(pair_server.ended_pairs))
    pair_server.accepted_pairs[0].reset()
    assert pair_server.ended_pairs == pair_server.accepted_pairs
    writer.close()


async def test_dial_after_client_reset_closes_the_far_connection(pair_server: PairServer) -> None:
    """A client that was reset during the dial leaves no open connection."""
    is_reset = asyncio.Event()

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        except ConnectionResetError:
            is_reset.set()
        writer.close()

    server = await asyncio.start_server(on_connect, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", pair_server.port)
    await eventually(lambda: len(pair_server.accepted_pairs) == 1)
    link = pair_server.accepted_pairs[0]
    link.reset()
    await eventually(lambda: bool(pair_server.ended_pairs))
    await link.dial("127.0.0.1", server.sockets[0].getsockname()[1], within=5.0)
    async with asyncio.timeout(60):
        await is_reset.wait()
    writer.close()
    server.close()


async def test_failing_task_is_reported() -> None:
    """The loop's exception handler gets the error."""
    faults = record_loop_faults()

    async def raise_error() -> None:
        raise RuntimeError("an internal error")

    Tasks().start(raise_error())
    await eventually(lambda: bool(faults))
    assert str(faults[0]["exception"]) == "an internal error"
