"""Chromium for the browser tests, and pages that notice every error."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from tests.browser.harness import Harness, ScriptedFleet, even_fleet

#: As chromium.sh looks for it.
NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
#: For anything a page must show; a machine shared with other tests is slow.
DEADLINE_MS = 90_000
#: Until Chromium answers.
LAUNCH_MS = 180_000
#: Runs in every page before its scripts: a violated policy is an error like any other.
NOTICE_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Where Chromium is. Without one: a loud skip, and in CI a failure."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        words = "Chromium is missing (as root: apt-get install chromium): the browser tests cannot run"
        if os.environ.get("CI"):
            pytest.fail(words)
        pytest.skip(words)
    return found


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium(chromium_path: str) -> AsyncIterator[Browser]:
    """Debian's Chromium, one for the whole run."""
    expect.set_options(timeout=DEADLINE_MS)
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=chromium_path, args=ARGUMENTS, timeout=LAUNCH_MS
        )
        yield browser
        await browser.close()


@dataclass
class Visit:
    """Open pages of one test, and what went wrong in them."""

    context: BrowserContext
    harness: Harness
    errors: list[str] = field(default_factory=list)

    @property
    def fleet(self) -> ScriptedFleet:
        """The fleet behind the pages."""
        return self.harness.fleet

    async def open(self, path: str) -> Page:
        """Open a page and collect its errors."""
        page = await self.context.new_page()
        page.on("pageerror", lambda error: self.errors.append(f"{path}: {error}"))
        page.on(
            "console",
            lambda line: self.errors.append(f"{path}: {line.text}") if line.type == "error" else None,
        )
        # What a test needs it waits for; "load" would wait for the last byte of every script.
        await page.goto(self.harness.url + path, wait_until="commit")
        return page


Visiting = Callable[..., Awaitable[Visit]]


@pytest_asyncio.fixture(loop_scope="session")
async def visiting(chromium: Browser) -> AsyncIterator[Visiting]:
    """Start a console for a fleet and a browser context of its own; all pages must end without errors."""
    visits: list[Visit] = []

    async def start(fleet: ScriptedFleet | None = None, **options: object) -> Visit:
        harness = Harness(fleet or even_fleet(4, 50))
        await harness.start()
        context = await chromium.new_context(**options)  # type: ignore[arg-type]
        await context.add_init_script(NOTICE_VIOLATIONS)
        context.set_default_timeout(DEADLINE_MS)
        visits.append(Visit(context, harness))
        return visits[-1]

    yield start
    for visit in visits:
        await visit.context.close()
        await visit.harness.stop()
    assert [error for visit in visits for error in visit.errors] == []
