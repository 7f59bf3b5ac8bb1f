"""Polls of edge instances: real HTTP servers, good and bad."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from fleet.monitoring.pollers.edge_poll import LARGEST_RESPONSE, EdgeAnswer, poll_edge_instances
from fleet.vocabulary.edge_instances import GatewayReport, TunnelServerReport
from tests.fleet.monitoring.test_edge_documents import DESTINATIONS, ROUTES, TARGETS


@asynccontextmanager
async def _diag_port(**bodies: str) -> AsyncIterator[str]:
    """Serve bodies by the name of their path; `/readyz` always responds."""

    async def respond(request: web.Request) -> web.Response:
        name = request.path.removeprefix("/")
        if name == "readyz":
            return web.Response(status=int(bodies.get("readyz", "200")))
        return web.Response(text=bodies[name]) if name in bodies else web.Response(status=404)

    app = web.Application()
    app.router.add_get("/{name}", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _poll(address: str, deadline: float = 30.0) -> EdgeAnswer:
    async with aiohttp.ClientSession() as session:
        answers = await poll_edge_instances(session, {"edge-1": address}, deadline)
    return answers["edge-1"]


def _json(document: object) -> str:
    return web.json_response(document).text or ""


async def test_kind_follows_from_the_paths() -> None:
    """The documents of the kind are kept, as they were received."""
    async with _diag_port(routes=_json(ROUTES), destinations=_json(DESTINATIONS)) as address:
        answer = await _poll(address)
    assert isinstance(answer.response.report, GatewayReport)
    assert (answer.response.readyz, answer.response.error) == (200, "")
    assert answer.documents == {"/routes": ROUTES, "/destinations": DESTINATIONS}
    async with _diag_port(targets=_json(TARGETS), readyz="503") as address:
        answer = await _poll(address)
    assert isinstance(answer.response.report, TunnelServerReport)
    assert answer.response.readyz == 503
    assert answer.documents == {"/targets": TARGETS}


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        ({}, "has neither /routes nor /targets. Enter the --diag-listen address"),
        ({"routes": "<html>"}, "/routes is no JSON object"),
        ({"routes": "[]", "destinations": "{}"}, "/routes is no JSON object"),
        ({"routes": "{}", "destinations": "{}"}, "the response has no list of rules"),
        ({"routes": _json(ROUTES)}, "/destinations is no JSON object (HTTP 404)"),
        ({"targets": _json({"targets": []})}, "/targets is not that of a tunnel server"),
        ({"targets": " " * (LARGEST_RESPONSE + 1)}, "/targets is longer than 1 MB"),
    ],
)
async def test_bad_responses_are_clear_errors(bodies: dict[str, str], expected: str) -> None:
    """It responds, so it is not a failed poll: the report is missing, and the error says why."""
    async with _diag_port(**bodies) as address:
        answer = await _poll(address)
    assert answer.response.readyz == 200
    assert answer.response.report is None
    assert answer.documents is None
    assert answer.response.error.startswith(address)
    assert expected in answer.response.error


async def test_closed_port_is_a_failed_poll() -> None:
    """With the reason."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    answer = await _poll(address)
    assert answer.response.readyz is None
    assert address in answer.response.error


async def test_silent_port_is_a_failed_poll_after_the_deadline() -> None:
    """It accepts connections and never responds, like a frozen process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        answer = await _poll(address, deadline=0.2)
    assert answer.response.readyz is None
    assert "no response in time" in answer.response.error


async def test_address_that_is_none_is_a_failed_poll() -> None:
    """Rows of the database may have anything."""
    answer = await _poll("[::1:99999")
    assert answer.response.readyz is None
