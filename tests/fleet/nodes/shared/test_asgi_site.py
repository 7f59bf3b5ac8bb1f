"""An ASGI application beside a node's work."""

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

ANY = ("127.0.0.1", 0)


async def caller(scope: Any, receive: Any, send: Any) -> None:
    """Answers the role and the names in the client's certificate."""
    found = scope["state"][asgi_site.CALLER_KEY]
    body = f"{found.role}: {sorted(set(found.names) - SHARED_NAMES)}" if found else ""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body.encode()})


async def test_serves_and_ends() -> None:
    """It answers on the port it was given, and is gone afterwards, whatever idle connections there are."""
    async with aiohttp.ClientSession() as session:
        async with (
            asgi_site.serve(caller, ANY, TLSFiles()) as address,
            session.get(f"http://{address}/") as answer,
        ):
            assert (answer.status, await answer.text()) == (200, "")
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://{address}/")


async def test_port_in_use() -> None:
    """A port that somebody has is one sentence."""
    async with asgi_site.serve(caller, ANY, TLSFiles()) as address:
        host, _, port = address.rpartition(":")
        with pytest.raises(NodeStartError, match=f"cannot listen on {address}"):
            async with asgi_site.serve(caller, (host, int(port)), TLSFiles()):
                raise AssertionError("it listens")


async def test_mutual_tls(tmp_path: Path) -> None:
    """Nobody comes in without a certificate, and the application learns the role and the names of who does."""
    ca = certificate_authority.ensure_authority(tmp_path, now=datetime.now(UTC))
    own = certificate_authority.issue(ca, "auth-1", role="auth", now=datetime.now(UTC))
    theirs = certificate_authority.issue(ca, "proxy-1", role="proxy", now=datetime.now(UTC))
    trusting = ssl.create_default_context(cafile=str(own.ca))
    showing = ssl.create_default_context(cafile=str(own.ca))
    showing.load_cert_chain(theirs.certificate, theirs.key)
    async with (
        asgi_site.serve(caller, ANY, TLSFiles(own.certificate, own.key, own.ca)) as address,
        aiohttp.ClientSession() as session,
    ):
        async with session.get(f"https://{address}/", ssl=showing) as answer:
            assert await answer.text() == "proxy: ['proxy-1']"
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"https://{address}/", ssl=trusting)


async def test_keys_that_are_none(tmp_path: Path) -> None:
    """One sentence."""
    wrong = tmp_path / "x.pem"
    wrong.write_text("nonsense")
    with pytest.raises(NodeStartError, match="TLS files of the HTTP port"):
        async with asgi_site.serve(caller, ANY, TLSFiles(wrong, wrong)):
            raise AssertionError("it serves")
