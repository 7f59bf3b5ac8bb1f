"""A link between two connections: resets, lost ends, tasks that fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from fleet.nodes.shared.pump import ConnectionPair, Tasks
from tests.fakes.loop_faults import record_loop_faults
from tests.fakes.waiting import eventually


@dataclass
class Scene:
    """A server of links, which nobody dials on for."""

    port: int = 0
    accepted: list[ConnectionPair] = field(default_factory=list)
    ended: list[ConnectionPair] = field(default_factory=list)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: ConnectionPair(made.accepted.append, made.ended.append).near, "127.0.0.1", 0
    )
    made.port = server.sockets[0].getsockname()[1]
    yield made
    for link in made.accepted:
        link.reset()
    server.close()
    await eventually(lambda: len(made.ended) == len(made.accepted))


async def test_link_reset_tells_its_end_once(scene: Scene) -> None:
    """The client sees a reset, and the owner hears of the end one time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", scene.port)
    await eventually(lambda: len(scene.accepted) == 1)
    scene.accepted[0].reset()
    with pytest.raises(ConnectionResetError):
        await reader.read()
    await eventually(lambda: bool(scene.ended))
    scene.accepted[0].reset()
    assert scene.ended == scene.accepted
    writer.close()


async def test_dial_after_the_client_went_leaves_nothing_open(scene: Scene) -> None:
    """A client that was reset while we dialed: the far connection is reset too."""
    gone = asyncio.Event()

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        except ConnectionResetError:
            gone.set()
        writer.close()

    server = await asyncio.start_server(on_connect, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", scene.port)
    await eventually(lambda: len(scene.accepted) == 1)
    link = scene.accepted[0]
    link.reset()
    await eventually(lambda: bool(scene.ended))
    await link.dial("127.0.0.1", server.sockets[0].getsockname()[1], within=5.0)
    async with asyncio.timeout(60):
        await gone.wait()
    writer.close()
    server.close()


async def test_tasks_a_failure_is_told() -> None:
    """A connection's task that fails is in the log, not lost."""
    faults = record_loop_faults()

    async def fails() -> None:
        raise RuntimeError("a fault of ours")

    Tasks().start(fails())
    await eventually(lambda: bool(faults))
    assert str(faults[0]["exception"]) == "a fault of ours"
