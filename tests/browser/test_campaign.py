"""A campaign in a real console, from the choice to its results, and the log of it: axe, and 360 pixels."""

from __future__ import annotations

import asyncio
import json
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

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="session"),
]

AGENTS = 150
#: What a worker does, on a clock of its own, until so many have moved; every tenth stays, the first canary too.
_STEPS = """
import sys, django; django.setup()
from fleet.control import campaigns, campaigns_run
from fleet.models.changes import Change
from tests.fakes.movers import Movers
change = Change.objects.select_related("cluster").get()
rows = list(change.campaign_agents.all())
def place(row):
    moved = row.state == "ok"
    return {2} if moved else {int(row.agent_id.split("-")[1]) % 2}
movers = Movers({row.agent_id: place(row) for row in rows})
movers.stubborn = {row.agent_id for row in rows if row.position % 10 == 0}
clock = [change.progress.get("stepped_at", change.created_at.timestamp())]
for _ in range(400):
    clock[0] += 1
    now = lambda: clock[0]
    campaigns_run.step(change, lambda: movers.table(clock[0]), movers, movers, now, lambda: 0.5, "a worker")
    movers.move()
    change.refresh_from_db()
    if campaigns.counts_of(change).ok >= int(sys.argv[1]) or change.state not in ("confirmed", "running"):
        break
"""


@pytest.fixture(scope="module")
def console(chromium_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A web process; started only where there is a browser."""
    with web_console(tmp_path_factory.mktemp("web")) as running:

        def answers() -> bool:
            try:
                return bool(urllib.request.urlopen(f"{running.url}/readyz", timeout=30).status == 200)
            except (OSError, urllib.error.URLError):
                return False

        eventually_sync(answers, seconds=180)
        yield running


def _work(console: Console, until: int) -> None:
    """Make steps."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("REFLOAT_", "REDIS_"))}
    env |= {
        "REFLOAT_HOME": str(console.data.parent),
        "REDIS_URL": console.server.url,
        "PYTHONPATH": str(ROOT),
    }
    env["DJANGO_SETTINGS_MODULE"] = "dashboards.config.settings"
    done = subprocess.run(
        [sys.executable, "-c", _STEPS, str(until)],
        cwd=ROOT,
        env=env,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


async def _signed_in(chromium: Browser, console: Console, errors: list[str]) -> Page:
    context = await chromium.new_context(color_scheme="light")
    await context.add_init_script(NOTICE_VIOLATIONS)
    page = await context.new_page()
    page.set_default_timeout(DEADLINE_MS)
    page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    await page.goto(f"{console.url}/accounts/login/?next=/reconnect/")
    await page.fill("input[name=login]", USERNAME)
    await page.fill("input[type=password]", PASSWORD)
    await asyncio.to_thread(_seen, console)
    await page.click("main button[type=submit]")
    await expect(page.locator("#rate")).to_be_visible()
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


async def test_campaign_from_choice_to_log(console: Console, chromium: Browser) -> None:
    """Chosen, planned, confirmed by number, reason and name; watched, paused, resumed, aborted; read in the log."""
    errors: list[str] = []
    page = await _signed_in(chromium, console, errors)
    await _choose_and_plan(page)
    await _confirm(page)
    await _watch(page, console)
    await _log(page, console)
    await page.context.close()
    assert [line for line in errors if "400" not in line] == []


def _seen(console: Console) -> None:
    """A round concluded that stays new for as long as looking at the form takes."""
    fill(console.writer(), [State.HEALTHY] * AGENTS, as_of=time.time() + 600, proxies=3)


async def _choose_and_plan(page: Page) -> None:
    await page.fill("#rate", "fast")
    await page.click("text=Plan this campaign")
    await expect(page.locator("#rate-error")).to_contain_text("whole number from 1")
    await expect(page.locator("#q-error")).to_have_count(0)
    await _accessible(page)
    await page.fill("#rate", "1200")
    await page.fill("#q", "agent")
    await page.fill("#patience", "5")
    await page.fill("#hold", "0")
    await page.fill("#max_failed", "50")
    await page.click("text=Plan this campaign")
    await expect(page.locator("h1")).to_have_text(f"Have {AGENTS} agents reconnect elsewhere?")
    await expect(page.locator("#campaign")).to_contain_text("By the proxy they leave")
    await _accessible(page)


async def _confirm(page: Page) -> None:
    agree = page.locator("section[aria-labelledby=confirm-title] .button-main")
    await expect(agree).to_have_text(f"Reconnect {AGENTS} agents")
    await agree.click()
    await expect(page.locator("#reason-error")).to_contain_text("Say why")
    await expect(page.locator("#typed-error")).to_contain_text("Type the cluster's name")
    await page.fill("#reason", "spread them over the new proxy")
    await page.fill("#typed", "default")
    await agree.click()
    await expect(page.locator("#change-state .tag")).to_have_text("confirmed")


async def _watch(page: Page, console: Console) -> None:
    """Each of these is seen without loading the page anew."""
    await asyncio.to_thread(_work, console, AGENTS)
    await expect(page.locator("#change-state .tag")).to_have_text("paused")
    await expect(page.locator("#change-state")).to_contain_text("a canary did not move")
    await page.click("button[value=resume]")
    await expect(page.locator("#change-state .tag")).to_have_text("running")
    await asyncio.to_thread(_work, console, 40)
    await expect(page.locator("#campaign .part-ok dd")).not_to_have_text("0")
    await page.wait_for_function("() => document.querySelector('#campaign progress').value >= 40")
    moved = page.locator("#results tbody tr", has=page.locator(".tag-ok")).first
    await expect(moved.locator(".moment")).to_contain_text(" s")
    await expect(moved.locator("td").nth(2)).to_contain_text("proxy-")
    await _accessible(page)
    await page.click("#campaign nav >> text=Failed")
    await expect(page.locator("#results tbody tr").first).to_contain_text("did not move within 5 s")
    await page.click("button[value=pause]")
    await expect(page.locator("#change-state")).to_contain_text(f"paused by {USERNAME}")
    await page.click("button[value=abort]")
    await expect(page.locator("#change-state .tag")).to_have_text("cancelled")
    await expect(page.locator("#campaign .status-line")).to_contain_text(f"{AGENTS} of {AGENTS} done")
    await expect(page.locator("button[value=resume]")).to_have_count(0)
    await _accessible(page)


async def _log(page: Page, console: Console) -> None:
    """Its attempts, the newest first, the same in the file."""
    await page.goto(f"{console.url}/audit/")
    await page.fill("input[name=q]", "reconnect")
    await page.select_option("select[name=outcome]", "refused")
    await page.click("text=Filter")
    await expect(page.locator("tbody tr")).to_have_count(2)
    await _accessible(page)
    await page.select_option("select[name=outcome]", "")
    await page.click("text=Filter")
    await expect(page.locator("tbody tr").first).to_contain_text("reconnect.cancelled")
    shown = await page.locator("tbody tr").count()
    async with page.expect_download() as waiting:
        await page.click("text=JSON")
    text = await asyncio.to_thread((await (await waiting.value).path()).read_text)
    lines = [json.loads(line) for line in text.splitlines()]
    assert len(lines) == shown
    assert {"reconnect.paused", "reconnect.running", "reconnect.cancelled"} <= {
        line["action"] for line in lines
    }
    assert all(line["request_id"] for line in lines if line["kind"] == "person")
