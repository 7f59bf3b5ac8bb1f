"""The floor of the bench `push`: an ASGI application with one pub/sub reader per process and a queue per socket.

It knows no fleet, no access and no sequence numbers; it forwards the text of each message.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

from redis.asyncio import Redis

CHANNEL = "push-peer"
#: The environment variable with the URL of Redis.
REDIS_URL_VARIABLE = "PUSH_PEER_REDIS_URL"
_MAX_QUEUE_LENGTH = 64

_queues: set[asyncio.Queue[str]] = set()
_reader_tasks: set[asyncio.Task[None]] = set()


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Serve a socket until its client leaves."""
    if scope["type"] == "lifespan":
        await _serve_lifespan(receive, send)
        return
    await receive()
    queue: asyncio.Queue[str] = asyncio.Queue(_MAX_QUEUE_LENGTH)
    _queues.add(queue)
    await send({"type": "websocket.accept"})
    pump = asyncio.create_task(_send_all(queue, send))
    try:
        while (await receive())["type"] != "websocket.disconnect":
            pass
    finally:
        _queues.discard(queue)
        pump.cancel()


async def _serve_lifespan(receive: Any, send: Any) -> None:
    await receive()
    pubsub = Redis.from_url(os.environ[REDIS_URL_VARIABLE], decode_responses=True).pubsub()
    await pubsub.subscribe(CHANNEL)
    _reader_tasks.add(asyncio.create_task(_read(pubsub)))
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def _read(pubsub: Any) -> None:
    async for message in pubsub.listen():
        if message["type"] != "message":
            continue
        for queue in _queues:
            with contextlib.suppress(asyncio.QueueFull):
                queue.put_nowait(message["data"])


async def _send_all(queue: asyncio.Queue[str], send: Any) -> None:
    while True:
        await send({"type": "websocket.send", "text": await queue.get()})
