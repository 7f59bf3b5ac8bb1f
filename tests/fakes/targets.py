"""A fake instance for the balancer: a TCP port that sends its name, and a configurable `/readyz`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from fleet.nodes.shared import http_site
from fleet.transport.listen_sockets import stop_listening
from tests.fakes.waiting import eventually


class FakeInstance:
    """Set `readyz` to a code, or clear `answer_event` for a port that accepts and stays silent."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.readyz = 200
        #: Headers of `/readyz`.
        self.announcements: dict[str, str] = {}
        self.answer_event = asyncio.Event()
        self.answer_event.set()
        self.address = ""
        self.diag = ""

    @property
    def target(self) -> str:
        """Return the value of the balancer's --target flag."""
        return f"{self.name}={self.address},{self.diag}"


@asynccontextmanager
async def run_fake_instance(name: str) -> AsyncIterator[FakeInstance]:
    """Run a fake instance on free ports."""
    instance = FakeInstance(name)

    writers: set[asyncio.StreamWriter] = set()

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        writer.write(f"{name}\n".encode())
        with contextlib.suppress(ConnectionError):
            await reader.read()
            writer.close()
            await writer.wait_closed()
        writers.discard(writer)

    async def readyz(request: web.Request) -> web.Response:
        await instance.answer_event.wait()
        return web.json_response({}, status=instance.readyz, headers=instance.announcements)

    server = await asyncio.start_server(on_connect, "127.0.0.1", 0)
    instance.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    app = web.Application()
    app.router.add_get("/readyz", readyz)
    async with http_site.serve(app, ("127.0.0.1", 0)) as instance.diag:
        yield instance
        instance.answer_event.set()
        await stop_listening(server)
        await asyncio.sleep(0)  # who came last begins
        for writer in list(writers):
            writer.transport.abort()
        await eventually(lambda: not writers)
