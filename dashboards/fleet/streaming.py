"""Long responses that are made while they are sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async


async def iterate_in_thread(chunks: Iterator[str]) -> AsyncIterator[str]:
    """Yield the chunks. Each is made in a thread, after the previous one has been sent."""
    read_next_chunk = sync_to_async(lambda: next(chunks, None), thread_sensitive=False)
    while (chunk := await read_next_chunk()) is not None:
        yield chunk
