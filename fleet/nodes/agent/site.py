"""The diag port of a process of agents: `GET /metrics` only, without an HTTP server library.

The library that auths and proxies use (`http_site.py`) would cost each process of agents 12 MB and half a second.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from fleet.nodes.shared import addresses, lifecycle

#: Seconds within which a request must arrive; its longest head in bytes.
_REQUEST_TIMEOUT = 5.0
_MAX_HEAD_BYTES = 16_384


@asynccontextmanager
async def serve(registry: CollectorRegistry, listen: tuple[str, int] | None) -> AsyncIterator[str]:
    """Serve the metrics and yield host:port; empty if `listen` is None. Raises NodeStartError."""
    if listen is None:
        yield ""
        return

    async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response_of(head, registry))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # not a request of Prometheus, or the client has left
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await lifecycle.start_listening(
        listen, asyncio.start_server(handle_connection, *listen, limit=_MAX_HEAD_BYTES)
    )
    async with server:
        yield addresses.join(listen[0], server.sockets[0].getsockname()[1])


def _response_of(head: bytes, registry: CollectorRegistry) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if path != b"/metrics":
        return _build_response("404 Not Found", "text/plain", b"not found: this port serves /metrics only\n")
    if method != b"GET":
        return _build_response("405 Method Not Allowed", "text/plain", b"method not allowed: use GET\n")
    return _build_response("200 OK", CONTENT_TYPE_LATEST, generate_latest(registry))


def _build_response(status: str, content_type: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
