"""An ASGI application that runs beside an instance's work."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fleet.nodes.shared import asgi_site
from fleet.nodes.shared.lifecycle import NodeStartError
from fleet.transport import certificate_authority
from fleet.transport.tls import SHARED_NAMES, TLSFiles

ANY_PORT = ("127.0.0.1", 0)


async def caller_app(scope: Any, receive: Any, send: Any) -> None:
    """Respond with the role and the names in the client's certificate."""
    peer = scope["state"][asgi_site.CALLER_KEY]
    body = f"{peer.role}: {sorted(set(peer.names) - SHARED_NAMES)}" if peer else ""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body.encode()})


async def test_application_is_served_until_the_block_ends() -> None:
    """The port is closed afterwards, even with idle connections."""
    async with aiohttp.ClientSession() as session:
        async with (
            asgi_site.serve(caller_app, ANY_PORT, TLSFiles()) as address,
            session.get(f"http://{address}/") as response,
        ):
            assert (response.status, await response.text()) == (200, "")
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://{address}/")


async def test_port_in_use_stops_the_start() -> None:
    """The error names the address."""
    async with asgi_site.serve(caller_app, ANY_PORT, TLSFiles()) as address:
        host, _, port = address.rpartition(":")
        with pytest.raises(NodeStartError, match=f"cannot listen on {address}"):
            async with asgi_site.serve(caller_app, (host, int(port)), TLSFiles()):
                raise AssertionError("it listens")


async def test_mutual_tls_requires_a_certificate(tmp_path: Path) -> None:
    """The application gets the role and the names of the client's certificate."""
    ca = certificate_authority.ensure_authority(tmp_path, now=datetime.now(UTC))
    server_certificate = certificate_authority.issue(ca, "auth-1", role="auth", now=datetime.now(UTC))
    client_certificate = certificate_authority.issue(ca, "proxy-1", role="proxy", now=datetime.now(UTC))
    anonymous_context = ssl.create_default_context(cafile=str(server_certificate.ca))
    client_context = ssl.create_default_context(cafile=str(server_certificate.ca))
    client_context.load_cert_chain(client_certificate.certificate, client_certificate.key)
    async with (
        asgi_site.serve(
            caller_app,
            ANY_PORT,
            TLSFiles(server_certificate.certificate, server_certificate.key, server_certificate.ca),
        ) as address,
        aiohttp.ClientSession() as session,
    ):
        async with session.get(f"https://{address}/", ssl=client_context) as response:
            assert await response.text() == "proxy: ['proxy-1']"
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"https://{address}/", ssl=anonymous_context)


async def test_invalid_key_files_stop_the_start(tmp_path: Path) -> None:
    """The error names the TLS files of the HTTP port."""
    invalid_file = tmp_path / "x.pem"
    invalid_file.write_text("nonsense")
    with pytest.raises(NodeStartError, match="TLS files of the HTTP port"):
        async with asgi_site.serve(caller_app, ANY_PORT, TLSFiles(invalid_file, invalid_file)):
            raise AssertionError("it serves")
