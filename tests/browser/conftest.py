"""One Chromium and one real console for all browser tests of a process; a browser context and a cluster per test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from tests.browser.chromium import ARGUMENTS, LAUNCH_MS, executable
from tests.browser.visits import DEADLINE_MS, Sessions, Visit, Visitor
from tests.flow.web import Console, web_console


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Where Chromium is; a skip without one."""
    return executable()


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


@pytest.fixture(scope="session")
def console(chromium_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """The console that all browser tests of this process share, where there is a browser.

    A test writes into a cluster of its own. Channels and routes belong to all clusters: tests of alerting share those
    of incident_rows.
    """
    with web_console(tmp_path_factory.mktemp("console")) as started_console:
        yield started_console


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def visitor(chromium: Browser, console: Console) -> AsyncIterator[Visitor]:
    """Begin visits that a module shares; a test uses `visiting`."""
    layer = console.layer()
    yield Visitor(chromium, console, Sessions(console), layer)
    await layer.flush()


Visiting = Callable[..., Awaitable[Visit]]


@pytest_asyncio.fixture(loop_scope="session")
async def visiting(visitor: Visitor) -> AsyncIterator[Visiting]:
    """Begin visits as `Visitor.begin` does, and end them with the test; all pages must end without errors."""
    visits: list[Visit] = []

    async def begin(**options: Any) -> Visit:
        visits.append(await visitor.begin(**options))
        return visits[-1]

    yield begin
    for visit in visits:
        await visit.end()
