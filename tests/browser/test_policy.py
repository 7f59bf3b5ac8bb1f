"""Every page of a real web process in Chromium: no script, style or frame against the policy, no error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import aiohttp
import pytest
from playwright.async_api import Browser

from fleet.domain.verdicts import State
from tests.browser.conftest import DEADLINE_MS, NOTICE_VIOLATIONS
from tests.fakes.record import fill
from tests.fakes.waiting import eventually
from tests.flow.web import PASSWORD, USERNAME, Console, web_console

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PAGES = [
    "/",
    "/map/",
    "/agents/",
    "/agents/agent-2-id/",
    "/tokens/",
    "/accounts/2fa/",
    "/accounts/2fa/totp/activate/",
    "/accounts/2fa/webauthn/add/",
    "/accounts/password/change/",
    "/api/v1/docs",
]


@pytest.fixture(scope="module")
def console(chromium_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A web process; started only where there is a browser."""
    with web_console(tmp_path_factory.mktemp("policy")) as running:
        yield running


async def test_no_page_breaks_the_policy(chromium: Browser, console: Console) -> None:
    """Signed in by the form, every page loads all it names and asks for nothing that is forbidden."""

    async def answers() -> bool:
        try:
            async with aiohttp.ClientSession() as http, http.get(f"{console.url}/healthz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    await eventually(answers, seconds=180)
    await asyncio.to_thread(fill, console.writer(), [State.HEALTHY, State.STRANDED], as_of=time.time())
    context = await chromium.new_context()
    context.set_default_timeout(DEADLINE_MS)
    await context.add_init_script(NOTICE_VIOLATIONS)
    page = await context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(f"{page.url}: {error}"))
    page.on(
        "console", lambda said: errors.append(f"{page.url}: {said.text}") if said.type == "error" else None
    )
    page.on("response", lambda got: errors.append(f"{got.url}: {got.status}") if got.status >= 400 else None)
    await page.goto(f"{console.url}/accounts/login/")
    await page.fill("input[name=login]", USERNAME)
    await page.fill("input[name=password]", PASSWORD)
    await page.press("input[name=password]", "Enter")
    await page.wait_for_url(f"{console.url}/")
    await page.goto(f"{console.url}/accounts/reauthenticate/?next=/tokens/")
    await page.fill("input[name=password]", PASSWORD)
    await page.press("input[name=password]", "Enter")
    await page.wait_for_url(f"{console.url}/tokens/")
    for path in PAGES:
        await page.goto(console.url + path)
        assert page.url == console.url + path
    await page.wait_for_selector("#swagger-ui .opblock")
    await context.close()
    assert errors == []
