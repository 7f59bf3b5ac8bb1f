"""The editor, a plan and the log in a real console: two people at once, axe, and 360 pixels."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.async_api import Browser, Page, expect

from fleet.domain.verdicts import State
from tests.browser.conftest import DEADLINE_MS, NOTICE_VIOLATIONS
from tests.browser.test_access import TAGS, findings
from tests.fakes.record import fill
from tests.fakes.waiting import eventually_sync
from tests.flow.web import PASSWORD, USERNAME, Console, web_console
from tests.meta.house import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: What a worker does when it has read a config.
_READ = """
import sys, django; django.setup()
from datetime import UTC, datetime
from fleet.control import networking
from fleet.models.clusters import ensure_default_cluster
from fleet.protocol.networking_config import NetworkingConfig, Resource, with_defaults
ensure_default_cluster()
config = with_defaults(NetworkingConfig(
    tunnel_strategy="proxy_peering", agent_connection_count=1, web_idle_timeout=float(sys.argv[2])))
networking.remember("default", Resource(config, {"teleport.dev/origin": "dynamic"}, sys.argv[1]), datetime.now(UTC))
"""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A web process whose cluster's config was read."""
    with web_console(tmp_path_factory.mktemp("web")) as running:

        def answers() -> bool:
            try:
                return bool(urllib.request.urlopen(f"{running.url}/readyz", timeout=30).status == 200)
            except (OSError, urllib.error.URLError):
                return False

        eventually_sync(answers, seconds=180)
        _stored(running, "r1", 0)
        yield running


def _stored(console: Console, revision: str, web_idle_timeout: int) -> None:
    """Another config is stored, and was read."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("REFLOAT_", "REDIS_"))}
    env |= {"REFLOAT_HOME": str(console.data.parent), "REDIS_URL": console.server.url}
    argv = [sys.executable, "-c", _READ, revision, str(web_idle_timeout)]
    subprocess.run(argv, cwd=ROOT, env=env, check=True, capture_output=True)


async def _open(chromium: Browser, console: Console, errors: list[str]) -> Page:
    context = await chromium.new_context(color_scheme="light")
    await context.add_init_script(NOTICE_VIOLATIONS)
    page = await context.new_page()
    page.set_default_timeout(DEADLINE_MS)
    page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    await page.goto(f"{console.url}/networking/")
    await page.fill("input[name=login]", USERNAME)
    await page.fill("input[type=password]", PASSWORD)
    await page.click("main button[type=submit]")
    await expect(page.locator("#id_keep_alive_interval")).to_be_visible()
    return page


async def _accessible(page: Page) -> None:
    """No findings in light and dark, and nothing wider than a phone."""
    assert await findings(page, "tag", TAGS) == []
    await page.emulate_media(color_scheme="dark")
    assert await findings(page, "rule", ["color-contrast"]) == []
    await page.emulate_media(color_scheme="light")
    size = page.viewport_size
    assert size is not None
    await page.set_viewport_size({"width": 360, "height": 760})
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
    await page.set_viewport_size(size)


async def test_second_of_two_rebases_and_plans(console: Console, chromium: Browser) -> None:
    """The three versions, mine on top of theirs, then the plan with its question; every page can be used by all."""
    errors: list[str] = []
    page = await _open(chromium, console, errors)
    await page.fill("#id_keep_alive_interval", "9h")
    await page.click("text=Plan this change")
    await expect(page.locator("#id_keep_alive_interval_error")).to_contain_text("not within")
    await page.fill("#id_keep_alive_interval", "30s")
    await _accessible(page)

    await asyncio.to_thread(_stored, console, "r2", 60)
    await page.click("text=Plan this change")
    await expect(page.locator("#three-way tbody tr")).to_have_count(2)
    await _accessible(page)
    await page.click("text=Rebase my change")
    await expect(page.locator("#id_web_idle_timeout")).to_have_value("1m0s")
    await expect(page.locator("#id_keep_alive_interval")).to_have_value("30s")
    await page.click("button[value=yaml]")
    await expect(page.locator("#yaml")).to_contain_text("keep_alive_interval: 30s")
    await _accessible(page)
    await page.click("button[value=form]")
    await page.check("#id_graceful_tunnel_closing")
    await asyncio.to_thread(fill, console.writer(), [State.HEALTHY] * 4, as_of=time.time() + 600)
    await page.click("text=Plan this change")
    await expect(page.locator("h1")).to_have_text("Change the networking config? It closes no tunnel.")
    await _accessible(page)
    await page.goto(f"{console.url}/audit/?outcome=refused")
    await expect(page.locator("tbody tr")).to_have_count(2)
    await _accessible(page)
    await page.goto(f"{console.url}/changes/")
    await _accessible(page)
    await page.context.close()
    assert errors == []
