from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.teleport.auth_http import get_resources
from tests.fakes.teleport_auth import FakeTeleportAuth
from tests.fakes.teleport_http import http_auth


async def test_documents_of_a_list_are_returned(teleport_auth: FakeTeleportAuth, tmp_path: Path) -> None:
    async def respond(_: web.Request) -> web.Response:
        return web.json_response([{"kind": "proxy"}, 5])

    async with http_auth({"/v2/proxies": respond}, teleport_auth, tmp_path) as context:
        assert await get_resources(context, "/v2/proxies") == [{"kind": "proxy"}, 5]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ({"status": 500}, "responds with 500"),
        ({"text": "<html>"}, "does not respond with JSON"),
        ({"text": "[" * 100_000}, "does not respond with JSON"),
        ({"text": "{}"}, "is not a list"),
        ({"body": b" " * 9_000_000}, "is too large"),
    ],
)
async def test_bad_http_response_is_an_error(
    teleport_auth: FakeTeleportAuth, tmp_path: Path, response: dict[str, object], expected: str
) -> None:
    async def respond(_: web.Request) -> web.Response:
        return web.Response(**response)  # type: ignore[arg-type]

    async with http_auth({"/v2/proxies": respond}, teleport_auth, tmp_path) as context:
        with pytest.raises(SourceError, match=expected):
            await get_resources(context, "/v2/proxies")
