"""The HTTP API of an auth of a Teleport cluster in this process, with mutual TLS."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from fleet.monitoring.sources.source import SourceContext
from fleet.transport import certificate_authority
from fleet.transport.poll_connections import Connections
from fleet.transport.tls import TLSFiles
from tests.fakes.source_contexts import make_source_context
from tests.fakes.teleport_auth import FakeTeleportAuth

Handler = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def http_auth(
    handlers: Mapping[str, Handler], teleport_auth: FakeTeleportAuth, folder: Path
) -> AsyncIterator[SourceContext]:
    """Serve an auth's HTTP API with mutual TLS, and yield the context of requests to it."""
    now = datetime.now(UTC)
    authority = certificate_authority.ensure_authority(folder, now=now)
    server, client = (
        certificate_authority.issue(authority, name, role=role, now=now)
        for name, role in (("auth-1", "auth"), ("console", "console"))
    )
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(server.ca))
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(server.certificate, server.key)
    application = web.Application()
    application.add_routes([web.get(path, handler) for path, handler in handlers.items()])
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    connections = Connections(TLSFiles(client.certificate, client.key, client.ca))
    # `teleport_auth` serves its gRPC API without TLS, at another port.
    grpc_connections = Connections()
    try:
        context = make_source_context(grpc_connections, teleport_auth)
        port = runner.addresses[0][1]
        target = replace(context.target, address=f"127.0.0.1:{port}")
        yield replace(context, target=target, connections=connections)
    finally:
        await grpc_connections.close()
        await connections.close()
        await runner.cleanup()
