"""The web process as it runs: uvicorn, http and sockets, a Valkey that goes away and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from fleet.processes import valkey
from fleet.vocabulary.verdicts import State
from tests.fakes.record import conclude, fill
from tests.fakes.waiting import eventually
from tests.flow.web import PASSWORD, USERNAME, Console, web_console

PATIENCE = 120.0
#: Seconds that the record is ahead of now where it must be fresh for as long as a test runs.
AHEAD = 600.0
STATES = [State.HEALTHY, State.STRANDED, State.RETIRED]


@pytest.fixture(scope="module")
def started_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """One web process for all tests here."""
    with web_console(tmp_path_factory.mktemp("web")) as console:
        yield console


@pytest.fixture
def console(started_console: Console) -> Console:
    """The web process; `http` gives it a record of three agents."""
    return started_console


@pytest.fixture
async def http(console: Console) -> AsyncIterator[aiohttp.ClientSession]:
    """A browser's cookies, once the console has a record."""
    async with aiohttp.ClientSession(console.url, cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        fill(console.writer(), STATES, as_of=time.time() + AHEAD)
        yield session
        console.writer().redis.flushdb()


async def _sign_in(http: aiohttp.ClientSession) -> None:
    async with http.get("/accounts/login/") as page:
        csrf = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', await page.text())
    assert csrf is not None
    form = {"csrfmiddlewaretoken": csrf[1], "login": USERNAME, "password": PASSWORD}
    async with http.post("/accounts/login/", data=form, allow_redirects=False) as answer:
        assert answer.status == 302


def _cookies(http: aiohttp.ClientSession) -> dict[str, str]:
    return {cookie.key: cookie.value for cookie in http.cookie_jar}


async def _await_frame(link: ClientConnection, kind: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while True:
            frame = await link.recv()
            message = json.loads(frame) if isinstance(frame, str) else {"type": "bytes", "bytes": frame}
            if message["type"] == kind:
                return message


async def _summary(http: aiohttp.ClientSession, headers: dict[str, str]) -> int:
    async with http.get("/api/v1/fleet/summary", headers=headers) as answer:
        return answer.status


async def test_static_files_and_pages(console: Console, http: aiohttp.ClientSession) -> None:
    """One process serves the bundle out of the wheel, the sign-in page, and the API to a token."""
    async with http.get("/accounts/login/", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        script = re.search(r'src="(/static/[0-9a-f]{16}/dashboards/js/page.js)"', await answer.text())
    assert script is not None
    async with http.get(script[1]) as answer:
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer.headers["Content-Encoding"] == "gzip"
        assert "export function" in await answer.text()
    async with http.get("/static/plotly/plotly.min.js") as answer:
        assert answer.status == 200
        assert len(await answer.read()) > 1_000_000
    async with http.get("/", allow_redirects=False) as answer:
        assert answer.headers["Location"] == "/accounts/login/?next=/"
    async with http.get(
        "/api/v1/fleet/summary", headers={"Authorization": f"Bearer {console.token}"}
    ) as answer:
        assert (await answer.json())["counts"]["stranded"] == 1


async def test_export_is_one_compressed_file(console: Console, http: aiohttp.ClientSession) -> None:
    """The response is streamed, and a browser reads only the first file of a gzip response."""
    await _sign_in(http)
    async with http.get("/agents.csv", headers={"Accept-Encoding": "identity"}) as answer:
        plain = await answer.read()
    async with http.get("/agents.csv", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert await answer.read() == plain


async def test_sign_out_ends_the_socket(console: Console, http: aiohttp.ClientSession) -> None:
    """Signed in, a socket opens; signed out in another request, it closes with 4401."""
    await _sign_in(http)
    cookies = _cookies(http)
    headers = {"Cookie": f"sessionid={cookies['sessionid']}"}
    async with connect(
        console.socket, origin=console.url, additional_headers=headers, open_timeout=PATIENCE
    ) as link:  # type: ignore[arg-type]
        await _await_frame(link, "bytes")
        form = {"csrfmiddlewaretoken": cookies["csrftoken"]}
        async with http.post("/accounts/logout/", data=form, allow_redirects=False) as answer:
            assert answer.status == 302
        with pytest.raises(ConnectionClosed) as closed:
            await _await_frame(link, "never")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401


async def test_idle_socket_lives_and_valkey_may_restart(
    console: Console, http: aiohttp.ClientSession
) -> None:
    """The socket survives idle times longer than any timeout; without Valkey its data is stale until Valkey is back.

    The API refuses meanwhile: nobody reads *healthy* of a record that is not there.
    """
    headers = {"Authorization": f"Bearer {console.token}"}
    async with connect(
        console.socket, additional_headers=headers, open_timeout=PATIENCE, ping_timeout=PATIENCE
    ) as link:
        hello = await _await_frame(link, "hello")
        assert (hello["agents"], hello["stale"]) == (3, False)
        assert await asyncio.to_thread(conclude, console.writer(), STATES, as_of=time.time())
        # Beats come every 5 s: two of them are more than 5 s of nothing else, and the data is stale by then.
        await _await_frame(link, "stale")
        await _await_frame(link, "beat")
        console.server.stop()
        beat = await _await_frame(link, "beat")
        assert beat["stale"] is True
        assert await _summary(http, headers) == 503
        port = int(console.server.url.rpartition(":")[2].partition("/")[0])
        console.server = valkey.start(console.data, port=port)
        new_states = [State.AT_RISK, *STATES[1:]]
        assert await asyncio.to_thread(conclude, console.writer(), new_states, as_of=time.time() + AHEAD)
        fresh = await _await_frame(link, "hello")
        assert (fresh["stale"], fresh["epoch"]) == (False, hello["epoch"])
        assert (await _await_frame(link, "bytes"))["bytes"] == bytes(new_states)
        assert await _summary(http, headers) == 200


async def test_large_frame_ends_the_socket_alone(console: Console, http: aiohttp.ClientSession) -> None:
    """Two hundred thousand brackets are refused unread, and nothing of that socket stays."""
    headers = {"Authorization": f"Bearer {console.token}"}
    async with connect(console.socket, additional_headers=headers, open_timeout=PATIENCE) as link:
        await _await_frame(link, "bytes")
        await link.send("[" * 200_000)
        with pytest.raises(ConnectionClosed) as closed:
            await _await_frame(link, "never")
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009

    async def is_gone() -> bool:
        async with http.get("/metrics", headers=headers) as answer:
            lines = (await answer.text()).splitlines()
        return (
            sum(
                float(line.split()[-1]) for line in lines if line.startswith("refloat_websocket_connections{")
            )
            == 0
        )

    await eventually(is_gone)


async def test_endless_head_is_cut(console: Console, http: aiohttp.ClientSession) -> None:
    """A stranger's headers take no more memory than the limit, and others are served meanwhile."""
    host, _, port = console.url.removeprefix("http://").rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.1\r\n")
    sent_bytes = 0
    with contextlib.suppress(ConnectionError):
        while sent_bytes < 64 * 1024 * 1024:
            writer.write(b"x: " + b"a" * 16_384 + b"\r\n")
            await writer.drain()
            sent_bytes += 16_384
    writer.close()
    assert sent_bytes < 16 * 1024 * 1024
    assert await _summary(http, {"Authorization": f"Bearer {console.token}"}) == 200
