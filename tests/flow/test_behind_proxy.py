"""A web process behind a proxy that ends TLS: requests arrive over HTTP with the original scheme in a header."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Iterator

import aiohttp
import pytest
from django.core.management import call_command
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.flow.web import PASSWORD, USERNAME, Console, database, web_console

pytestmark = pytest.mark.slow

PUBLIC = "https://console.example"
#: What a reverse proxy adds to a request of somebody at 203.0.113.7.
FORWARDED = {"Host": "console.example", "X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7"}


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """One web process for all tests here. That it answers at all proves that its probes are not redirected."""
    settings = {
        "REFLOAT_HTTPS": "true",
        "REFLOAT_TRUSTED_PROXIES": "1",
        "REFLOAT_ALLOWED_HOSTS": "console.example,127.0.0.1",
    }
    with web_console(tmp_path_factory.mktemp("proxied"), settings) as console:
        yield console


async def test_pages_load_without_endless_redirects(console: Console) -> None:
    """Over HTTPS the sign-in page loads with secure cookies; over HTTP one redirect leads to HTTPS."""
    async with aiohttp.ClientSession(console.url) as http:
        async with http.get("/accounts/login/", headers=FORWARDED, allow_redirects=False) as answer:
            assert answer.status == 200
            assert "Secure" in answer.headers["Set-Cookie"]
            assert answer.headers["Strict-Transport-Security"]
        for headers in ({"Host": "console.example"}, {**FORWARDED, "X-Forwarded-Proto": "http"}):
            async with http.get("/accounts/login/", headers=headers, allow_redirects=False) as answer:
                assert (answer.status, answer.headers["Location"]) == (301, f"{PUBLIC}/accounts/login/")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_are_answered_without_tls(console: Console, path: str) -> None:
    """Probes connect to the process directly, without the proxy."""
    async with (
        aiohttp.ClientSession(console.url) as http,
        http.get(path, allow_redirects=False) as answer,
    ):
        assert answer.status == 200


def _create_token(console: Console) -> str:
    """Return a token for the metrics."""
    output = io.StringIO()
    with database(console.home):
        call_command(
            "token", "create", USERNAME, "--name", "prometheus", "--scope", "view_metrics", stdout=output
        )
    return output.getvalue().strip()


async def test_prometheus_scrapes_without_tls(console: Console) -> None:
    """Each process by itself, as in Kubernetes; a redirect would lead to any of them."""
    token = await asyncio.to_thread(_create_token, console)
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(console.url) as http,
        http.get("/metrics", headers=headers, allow_redirects=False) as response,
    ):
        assert response.status == 200


async def test_sign_in_and_live_link(console: Console) -> None:
    """Forms and sockets take the origin that people see."""
    browser = {**FORWARDED, "Origin": PUBLIC, "Referer": f"{PUBLIC}/accounts/login/"}
    async with aiohttp.ClientSession(console.url) as http:
        async with http.get("/accounts/login/", headers=browser) as page:
            field = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', await page.text())
            # The jar keeps no secure cookies of an address without TLS: the browser's is another.
            csrf = page.cookies["csrftoken"].value
        assert field is not None
        form = {"csrfmiddlewaretoken": field[1], "login": USERNAME, "password": PASSWORD}
        headers = {**browser, "Cookie": f"csrftoken={csrf}"}
        async with http.post("/accounts/login/", data=form, headers=headers, allow_redirects=False) as answer:
            assert answer.status == 302
            session = answer.cookies["sessionid"].value
    address = console.socket.replace("127.0.0.1", "console.example")
    port = int(console.url.rpartition(":")[2])
    headers = {"Cookie": f"sessionid={session}", "X-Forwarded-Proto": "https"}
    async with connect(
        address.replace(f":{port}", ""),
        host="127.0.0.1",
        port=port,
        origin=PUBLIC,  # type: ignore[arg-type] # a NewType of str
        additional_headers=headers,
    ) as link:
        assert await link.recv()
    with pytest.raises(InvalidStatus):
        async with connect(
            address.replace(f":{port}", ""),
            host="127.0.0.1",
            port=port,
            origin="https://evil.example",  # type: ignore[arg-type] # a NewType of str
            additional_headers=headers,
        ):
            raise AssertionError("a page of another origin has the live link")
