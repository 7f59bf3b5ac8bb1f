"""Policies in a real console: the matrix, an edit with its preview, the plan, two at once, and a rollout as it goes."""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.async_api import Browser, Page, expect

from fleet.domain.node_policies import Observed
from fleet.processes import children
from fleet.protocol.announce import AUTH_TTL_VARIABLE
from fleet.protocol.policies import HTTP_CLOSE_VARIABLE
from fleet.protocol.service_config import RFD_VARIABLE
from fleet.state.policy_book import open_book
from tests.browser.conftest import DEADLINE_MS, NOTICE_VIOLATIONS
from tests.browser.test_networking import _accessible
from tests.fakes.waiting import eventually_sync
from tests.flow.web import PASSWORD, USERNAME, Console, web_console
from tests.meta.house import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="session"),
]

POLICY = json.dumps(
    {
        "grpc_client_lb_policy": {
            "loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect"}}],
            "healthCheckConfig": {"serviceName": ""},
        }
    }
)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A web process whose three auths and two proxies said what they run with."""
    with web_console(tmp_path_factory.mktemp("web")) as running:

        def answers() -> bool:
            try:
                return bool(urllib.request.urlopen(f"{running.url}/readyz", timeout=30).status == 200)
            except (OSError, urllib.error.URLError):
                return False

        eventually_sync(answers, seconds=180)
        env = {name: text for name, text in os.environ.items() if not name.startswith(("REFLOAT_", "REDIS_"))}
        env |= {"REFLOAT_HOME": str(running.data.parent), "REDIS_URL": running.server.url}
        worker = children.spawn([sys.executable, "-m", "tests.fakes.rollout_worker"], env=env, cwd=str(ROOT))
        try:
            eventually_sync(lambda: len(_book(running)) == 5, seconds=180)
            yield running
        finally:
            children.stop([worker])


def _book(console: Console) -> dict[str, Observed]:
    return open_book(console.server.url, "refloat").read("default")


async def _open(chromium: Browser, console: Console, errors: list[str], path: str) -> Page:
    context = await chromium.new_context(color_scheme="light")
    await context.add_init_script(NOTICE_VIOLATIONS)
    page = await context.new_page()
    page.set_default_timeout(DEADLINE_MS)
    # What is refused is a 400 with the page in it; a browser mentions that.
    page.on(
        "console",
        lambda line: (
            errors.append(line.text) if line.type == "error" and "status of 400" not in line.text else None
        ),
    )
    page.on("pageerror", lambda error: errors.append(str(error)))
    await page.goto(console.url + path)
    await page.fill("input[name=login]", USERNAME)
    await page.fill("input[type=password]", PASSWORD)
    await page.click("main button[type=submit]")
    await page.wait_for_url(console.url + path)
    return page


async def test_edit_preview_plan_and_rollout(console: Console, chromium: Browser) -> None:
    """From the matrix to a rollout that ends: what is wrong at its field, both dialects, numbers, three versions,
    progress that moves by itself; every page can be used by all."""
    errors: list[str] = []
    page = await _open(chromium, console, errors, "/policies/")
    await expect(page.locator(".matrix tbody tr")).to_have_count(7)
    await _accessible(page)
    other = await _open(chromium, console, errors, "/policies/auth/")

    await page.click("text=All auths")
    await page.fill(f"#{RFD_VARIABLE}", '{"grpc_client_lb_policy": {"mdoe": 1}}')
    await page.fill(f"#{AUTH_TTL_VARIABLE}", "soon")
    await page.fill("#at_once", "0")
    await page.click("text=Plan this change")
    await expect(page.locator("#at_once-error")).to_contain_text("whole number from 1 to 10")
    await expect(page.locator(f"#{RFD_VARIABLE}-error")).to_contain_text("there is no such field")
    await expect(page.locator(f"#{AUTH_TTL_VARIABLE}-error")).to_contain_text("soon")
    await _accessible(page)

    await page.fill("#at_once", "1")
    await page.fill(f"#{RFD_VARIABLE}", POLICY)
    await page.fill(f"#{AUTH_TTL_VARIABLE}", "30s")
    await page.click("text=Preview")
    await expect(page.get_by_label("As RFD 226 has it")).to_contain_text('"mode": "reconnect"')
    await expect(page.get_by_label("As Teleport has it")).to_contain_text("MODE_RECONNECT")
    await expect(page.locator("text=3 auths, TTL 10m0s to 30s")).to_be_visible()
    await _accessible(page)

    # Somebody else is quicker.
    await other.select_option(f"#{HTTP_CLOSE_VARIABLE}", "true")
    await other.uncheck("#roll_out")
    await other.click("text=Plan this change")
    await expect(other.locator("h1")).to_have_text("Want this from now on, and restart nobody?")
    await other.fill("#reason", "clients hang")
    await other.click(".panel-actions .button-main")
    await _prove(other)
    await expect(other.locator("#change-state .tag")).to_have_text("verified")

    await page.fill("#settle", "8")
    await page.fill("#drain", "0")
    await page.click("text=Plan this change")
    await expect(page.locator("#three-way tbody tr")).to_have_count(3)
    await _accessible(page)
    await page.click("text=Rebase my change")
    await expect(page.locator(f"#{HTTP_CLOSE_VARIABLE}")).to_have_value("true")
    await expect(page.locator(f"#{AUTH_TTL_VARIABLE}")).to_have_value("30s")
    await page.click("text=Plan this change")
    await expect(page.locator("h1")).to_have_text("Restart 3 auths that 6 agents rest on?")
    await expect(page.locator("text=Heartbeat writes a second")).to_be_visible()
    await _accessible(page)
    await page.fill("#reason", "agents must move")
    await page.click(".panel-actions .button-main")
    await _prove(page)
    await expect(page.locator("#rollout progress")).to_have_attribute("value", re.compile("[12]"))
    await _accessible(page)
    await expect(page.locator("#change-state .tag")).to_have_text("verified")
    await expect(page.locator("#rollout .tag-ok")).to_have_count(3)
    await page.reload()
    await expect(page.locator("text=Plan taking it back")).to_be_visible()
    await _accessible(page)

    await page.goto(f"{console.url}/policies/")
    await expect(page.locator("td .tag-same")).to_have_count(9)
    await _accessible(page)
    for one in (page, other):
        await one.context.close()
    assert errors == []


async def _prove(page: Page) -> None:
    """Say who one is, where that is asked for again."""
    await page.wait_for_load_state()
    if "reauthenticate" in page.url:
        await page.fill("input[type=password]", PASSWORD)
        await page.click("main button[type=submit]")
    await page.wait_for_url("**/changes/*/")
