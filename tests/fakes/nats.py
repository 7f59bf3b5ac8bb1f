"""A NATS hub whose responses a test sets byte by byte: its monitoring port, and its port for leaf nodes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from fleet.monitoring.sources.source import PollTarget, SourceContext
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import InstanceKind
from tests.fakes.tcp import serve_tcp

INFO_LINE = b'INFO {"server_id":"HUB","host":"0.0.0.0","port":7422} \r\n'


def varz(**fields: Any) -> dict[str, Any]:
    """Return a /varz document."""
    return {
        "server_id": "HUB",
        "server_name": "hub-1",
        "version": "2.15.2",
        "max_payload": 1048576,
        "leaf": {"host": "0.0.0.0", "port": 7422},
        "leafnodes": 0,
        "now": "1970-01-01T00:01:40.123456789Z",
    } | fields


def leafz(*names: str, **fields: Any) -> dict[str, Any]:
    """Return a /leafz document with leaf nodes of the default account."""
    entries = [
        {"name": name, "is_spoke": False, "account": "$G", "ip": "10.0.0.9", "port": 50000 + number}
        for number, name in enumerate(names)
    ]
    return {"server_id": "HUB", "leafnodes": len(entries), "leafs": entries} | fields


def as_response(document: object, status: int = 200) -> bytes:
    """Return a document as a whole HTTP response."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body


@dataclass(slots=True)
class FakeHub:
    """Responses by path, and the first bytes of the leaf port; None: it accepts connections and stays silent."""

    responses: dict[str, bytes] = field(default_factory=dict)
    #: Sent after the response again and again, as long as somebody reads.
    endless: bytes = b""
    first_bytes: bytes | None = INFO_LINE
    #: The leaf port answers the first bytes of a client with these.
    reply: bytes = b""
    port_checks: int = 0
    sent_byte_count: int = 0
    address: str = ""
    leaf_port: int = 0

    def set_documents(self, **documents: object) -> None:
        """Set the responses to /varz, /leafz and /healthz."""
        for name, document in documents.items():
            self.responses[f"/{name}"] = as_response(document)

    async def serve_http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests on one connection."""
        while request := await reader.readuntil(b"\r\n\r\n"):
            path = request.split(b" ")[1].decode()
            writer.write(self.responses.get(path, as_response({}, 404)))
            while self.endless:
                writer.write(self.endless)
                self.sent_byte_count += len(self.endless)
                await writer.drain()

    async def serve_leaf(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Say hello to a leaf node."""
        self.port_checks += 1
        if self.first_bytes is not None:
            writer.write(self.first_bytes)
        if await reader.read(65536) and self.reply:
            writer.write(self.reply)
            await reader.read()


@contextlib.asynccontextmanager
async def run_hub() -> AsyncIterator[FakeHub]:
    """Run a healthy hub without leaf nodes."""
    hub = FakeHub()

    async def serve_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            await hub.serve_http(reader, writer)

    async with serve_tcp(serve_http) as port, serve_tcp(hub.serve_leaf) as leaf_port:
        hub.address, hub.leaf_port = f"127.0.0.1:{port}", leaf_port
        leaf = {"host": "0.0.0.0", "port": leaf_port}
        hub.set_documents(varz=varz(leaf=leaf), leafz=leafz(), healthz={"status": "ok"})
        yield hub


def context_of(
    connections: Connections,
    hub: FakeHub,
    *,
    epoch: str = "",
    addresses: tuple[str, ...] = (),
    remaining_seconds: Callable[[], float] = lambda: 30.0,
    now: float = 100.0,
) -> SourceContext:
    """Return the context of a query to a hub, which has index 7."""
    target = PollTarget(7, InstanceKind.PROXY, f"127.0.0.1:{hub.leaf_port}", hub.address, epoch)
    channel = connections.channel(target.address, target.kind)
    return SourceContext(
        target, channel, connections, remaining_seconds, lambda: now, addresses or (hub.address,)
    )
