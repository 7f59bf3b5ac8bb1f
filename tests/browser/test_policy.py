"""Every page of the console in Chromium: no script, style or frame against the policy, no error."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser

from fleet.vocabulary.verdicts import State
from tests.browser.conftest import Visiting
from tests.browser.visits import new_context, watch
from tests.flow.web import PASSWORD, USERNAME, Console

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PAGES = ["/", "/map/", "/agents/", "/agents/agent-2-id/", "/history/", "/history/compare/"]
PAGES_OF_NO_CLUSTER = [
    "/",
    "/tokens/",
    "/accounts/2fa/",
    "/accounts/2fa/totp/activate/",
    "/accounts/2fa/webauthn/add/",
    "/accounts/password/change/",
    "/api/v1/docs",
]


async def test_no_page_breaks_the_policy(chromium: Browser, console: Console, visiting: Visiting) -> None:
    """After signing in, every page loads all its assets and violates no content policy."""
    visit = await visiting()
    await visit.fleet.begin({1: State.STRANDED})
    context = await new_context(chromium)
    page = await context.new_page()
    errors: list[str] = []
    watch(page, errors)
    page.on(
        "response",
        lambda response: (
            errors.append(f"{response.url}: {response.status}") if response.status >= 400 else None
        ),
    )
    await page.goto(f"{console.url}/accounts/login/")
    await page.fill("input[name=login]", USERNAME)
    await page.fill("input[name=password]", PASSWORD)
    await page.press("input[name=password]", "Enter")
    await page.wait_for_url(f"{console.url}/")
    await page.goto(f"{console.url}/accounts/reauthenticate/?next=/tokens/")
    await page.fill("input[name=password]", PASSWORD)
    await page.press("input[name=password]", "Enter")
    await page.wait_for_url(f"{console.url}/tokens/")
    for path in [visit.prefix + path for path in PAGES] + PAGES_OF_NO_CLUSTER:
        await page.goto(console.url + path)
        assert page.url == console.url + path
    await page.wait_for_selector("#swagger-ui .opblock")
    await context.close()
    assert errors == []
