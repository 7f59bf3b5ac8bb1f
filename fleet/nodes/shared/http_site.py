"""An aiohttp application served beside an instance's gRPC port. Agents do not import it, to save memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from fleet.nodes.shared import addresses, lifecycle
from fleet.transport import listen_sockets


@asynccontextmanager
async def serve(app: web.Application, listen: tuple[str, int]) -> AsyncIterator[str]:
    """Serve an application and yield its host:port. Raises NodeStartError if the port cannot be used."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        bound = await lifecycle.start_listening(listen, listen_sockets.bind(*listen))
        await web.SockSite(runner, bound).start()
        yield addresses.join(listen[0], bound.getsockname()[1])
        await listen_sockets.stop_accepting([bound])
    finally:
        await runner.cleanup()
