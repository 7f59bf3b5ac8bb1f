"""A backend on a real Valkey behind a forward that a test can cut, hold or reset."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from fleet.nodes.local.forwards import Forward
from fleet.transport.backend import Backend


@asynccontextmanager
async def forwarded_backend(valkey_url: str, prefix: str) -> AsyncIterator[tuple[Forward, Backend]]:
    """Run the forward and the backend, and close both at the end."""
    url = urlsplit(valkey_url)
    assert url.hostname is not None
    assert url.port is not None
    forward = Forward("backend", ("127.0.0.1", 0), (url.hostname, url.port))
    await forward.start()
    backend = Backend(
        f"redis://127.0.0.1:{forward.listen[1]}/0", "default", prefix=prefix, password=url.password
    )
    yield forward, backend
    await backend.close()
    await forward.stop()
