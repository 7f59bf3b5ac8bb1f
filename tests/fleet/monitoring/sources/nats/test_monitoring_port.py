"""Responses of servers that are not nats-server, or that are broken."""

from __future__ import annotations

import gzip
import json

import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.nats.monitoring_port import AuthenticationError, get_document
from fleet.transport.poll_connections import Connections
from tests.fakes.nats import as_response, run_hub

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (as_response(b"<!doctype html><title>Login</title>"), "/varz is not JSON$"),
        (as_response(b'{"server_id": "HUB", "leafs": ['), "/varz is not JSON"),
        (as_response(b"[" * 100_000), "/varz is not JSON"),
        (as_response(b"1" * 5000), "/varz is not JSON"),
        (as_response(b"\xff\xfe\x00"), "/varz is not JSON"),
        (as_response(b""), "/varz is not JSON"),
        (as_response([1, 2]), "/varz is not a JSON object"),
        (as_response(b"404 page not found", 404), r"/varz is not JSON \(HTTP 404\)"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "HTTP 302"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 40\r\n\r\n"
            + gzip.compress(b"{}", mtime=0),
            "compressed",
        ),
        (b"INFO {}\r\n\r\n", "INFO"),
        (b"", "in time"),
    ],
)
async def test_another_server(connections: Connections, response: bytes, text: str) -> None:
    """HTML, truncated JSON, deep JSON, a redirect, another protocol, a closed connection."""
    async with run_hub() as hub:
        hub.responses["/varz"] = response
        with pytest.raises(SourceError, match=text):
            await get_document(
                connections.session, hub.address, "/varz", timeout=1.0 if not response else 20.0
            )


async def test_a_response_of_a_gigabyte_is_cut_off(connections: Connections) -> None:
    """After 4 MB, and what is on its way."""
    async with run_hub() as hub:
        hub.responses["/varz"], hub.endless = _HEAD, b" " * 65536
        with pytest.raises(SourceError, match="longer than 4 MB"):
            await get_document(connections.session, hub.address, "/varz", timeout=60.0)
        assert hub.sent_byte_count < 40 * 2**20


async def test_a_response_that_never_ends_ends_in_time(connections: Connections) -> None:
    async with run_hub() as hub:
        hub.responses["/varz"] = _HEAD
        with pytest.raises(SourceError, match="in time"):
            await get_document(connections.session, hub.address, "/varz", timeout=0.3)


@pytest.mark.parametrize("status", [401, 403, 407])
async def test_a_password_is_asked_for(connections: Connections, status: int) -> None:
    """By a reverse proxy: nats-server has none for this port."""
    async with run_hub() as hub:
        hub.responses["/varz"] = as_response(b"<html>", status)
        with pytest.raises(AuthenticationError, match=f"HTTP {status}"):
            await get_document(connections.session, hub.address, "/varz", timeout=20.0)


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "no such address", "127.0.0.1:x", f"{'x' * 300}:8222", ""]
)
async def test_no_server(connections: Connections, address: str) -> None:
    with pytest.raises(SourceError) as failure:
        await get_document(connections.session, address, "/varz", timeout=20.0)
    assert not failure.value.has_response


async def test_an_error_with_a_document(connections: Connections) -> None:
    """An unhealthy hub explains itself."""
    async with run_hub() as hub:
        hub.responses["/healthz"] = as_response({"status": "unavailable"}, 503)
        response = await get_document(connections.session, hub.address, "/healthz", timeout=20.0)
    assert (response.status, json.dumps(response.document)) == (503, '{"status": "unavailable"}')
