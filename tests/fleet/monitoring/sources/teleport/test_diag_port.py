"""/readyz and /metrics of Teleport, also of programs that are not Teleport."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.source import PollTarget, SourceContext
from fleet.monitoring.sources.teleport.diag_port import (
    CONNECTION_COUNTS,
    LARGEST_METRICS,
    ConnectionCounts,
    get_connection_counts,
    get_process_state,
    parse_metrics,
)
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import InstanceKind, Poll

_METRICS = """\
# HELP proxy_missing_ssh_tunnels Number of missing SSH tunnels.
# TYPE proxy_missing_ssh_tunnels gauge
proxy_missing_ssh_tunnels 3
# TYPE teleport_reverse_tunnels_connected gauge
teleport_reverse_tunnels_connected{type="node"} 397
teleport_reverse_tunnels_connected{type="app"} 1.2e+01
process_state 0
go_goroutines 12
"""


async def _serve_and_query(
    respond: Callable[[web.Request], Awaitable[web.StreamResponse]],
    query: Callable[[SourceContext], Awaitable[Any]],
    seconds: float = 20.0,
) -> Any:
    app = web.Application()
    app.add_routes([web.get("/readyz", respond), web.get("/metrics", respond)])
    async with TestServer(app, host="127.0.0.1") as server:
        address = f"127.0.0.1:{server.port}"
        connections = Connections()
        target = PollTarget(0, InstanceKind.PROXY, address, address)
        try:
            channel = connections.channel(address, target.kind)
            return await query(SourceContext(target, channel, connections, lambda: seconds, lambda: 100.0))
        finally:
            await connections.close()


@pytest.mark.parametrize("code", [200, 400, 503])
async def test_process_state_is_the_status_code(code: int) -> None:
    """503 is degraded, 400 recovering or starting."""

    async def respond(_: web.Request) -> web.Response:
        return web.json_response({"status": "x", "pid": 1}, status=code)

    assert (await _serve_and_query(respond, get_process_state)).code == code


@pytest.mark.parametrize("code", [204, 302, 404, 500])
async def test_another_program_is_not_a_process_state(code: int) -> None:
    """Its response does not make the instance unhealthy: the error names the address that is wrong."""

    async def respond(_: web.Request) -> web.Response:
        return web.Response(status=code, headers={"Location": "/elsewhere"})

    with pytest.raises(SourceError, match=f"responds with {code}, so this is not the --diag-addr"):
        await _serve_and_query(respond, get_process_state)


async def test_counts_by_type() -> None:
    async def respond(_: web.Request) -> web.Response:
        return web.Response(text=_METRICS)

    counts = await _serve_and_query(respond, get_connection_counts)
    assert counts == ConnectionCounts((("app", 12), ("node", 397)), 3)
    poll = CONNECTION_COUNTS.update_poll(Poll(), counts, 100.0)
    assert (poll.connection_counts, poll.missing_tunnel_count, poll.counted_at) == (
        (("app", 12), ("node", 397)),
        3,
        100.0,
    )


async def test_response_that_is_too_long_is_an_error() -> None:
    """It is not read to its end, which never comes."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 2**16)

    with pytest.raises(SourceError, match=f"longer than {LARGEST_METRICS // 2**20} MB"):
        await _serve_and_query(respond, get_connection_counts)


async def test_response_that_does_not_end_is_an_error() -> None:
    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    with pytest.raises(SourceError, match="no response in time"):
        await _serve_and_query(respond, get_connection_counts, seconds=0.3)


async def test_status_without_metrics_is_an_error() -> None:
    async def respond(_: web.Request) -> web.Response:
        return web.Response(status=404)

    with pytest.raises(SourceError, match="/metrics responds with 404"):
        await _serve_and_query(respond, get_connection_counts)


@pytest.mark.parametrize(
    "line",
    [
        "proxy_missing_ssh_tunnels",
        "proxy_missing_ssh_tunnels NaN",
        "proxy_missing_ssh_tunnels -1",
        "proxy_missing_ssh_tunnels +Inf",
        "proxy_missing_ssh_tunnels 1e300",
        "proxy_missing_ssh_tunnels_total 4",
        'teleport_reverse_tunnels_connected{kind="node"} 4',
        "teleport_reverse_tunnels_connected 4",
        'teleport_reverse_tunnels_connected{type=""} 4',
        'teleport_reverse_tunnels_connected{type="a\x1bb"} 4',
        f'teleport_reverse_tunnels_connected{{type="{"x" * 65}"}} 4',
    ],
)
def test_samples_that_are_no_counts(line: str) -> None:
    """They are left out; the other ones count."""
    counts = parse_metrics([line, 'teleport_connected_resources{type="kube"} 2'])
    assert counts == ConnectionCounts((("kube", 2),), None)


def test_number_of_types_has_a_limit() -> None:
    """An instance cannot fill the record."""
    counts = parse_metrics(f'teleport_connected_resources{{type="t{n}"}} 1' for n in range(1000))
    assert len(counts.connection_counts) == 32
