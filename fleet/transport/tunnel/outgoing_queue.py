"""Bounded queue of Register messages that the other end has not read yet. docs/reference/tunnel.md."""

from __future__ import annotations

import asyncio

#: Maximum number and total bytes of queued messages: a response repeats the target's name, which the other end chose.
_MOST_MESSAGES = 10_000
_MOST_BYTES = 4 * 1024 * 1024


class OutgoingQueue:
    """The queued messages of one end, in order."""

    def __init__(self, most_messages: int = _MOST_MESSAGES, most_bytes: int = _MOST_BYTES) -> None:
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._queued_bytes = 0
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    def put(self, raw: bytes) -> bool:
        """Add a message; return False if the queue is full because the other end does not read."""
        if self._queue.qsize() >= self._most_messages or self._queued_bytes + len(raw) > self._most_bytes:
            return False
        self._queued_bytes += len(raw)
        self._queue.put_nowait(raw)
        return True

    def end(self) -> None:
        """Add the end marker: no message follows it."""
        self._queue.put_nowait(None)

    async def get(self) -> bytes | None:
        """Wait for the next message and remove it; None at the end."""
        raw = await self._queue.get()
        self._queued_bytes -= len(raw or b"")
        return raw
