"""The whole path in Chromium: a real fleet, polled into the record, seen in the page of the real console."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from fleet.vocabulary.verdicts import State
from tests.browser.map_page import read_cells, wait_cells
from tests.browser.visits import DEADLINE_MS, new_context, watch
from tests.fakes.waiting import eventually
from tests.flow.running import AGENTS, Demo

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def page(chromium: Browser, whole_demo: Demo) -> AsyncIterator[Page]:
    """A page signed in through the form; it must end without errors."""
    errors: list[str] = []
    context = await new_context(chromium)
    page = await context.new_page()
    watch(page, errors)
    await page.goto(whole_demo.url, wait_until="commit")
    await page.fill("[name=login]", "demo")
    await page.fill("[name=password]", whole_demo.password)
    await page.click("form .button-main")
    await expect(page.locator("#link-state")).to_have_text("Live updates: on")
    yield page
    await context.close()
    # A page of somebody who has just signed out may still ask for its instances, and be refused.
    assert [line for line in errors if "401 (Unauthorized)" not in line] == []


async def fleet(demo: Demo, *args: str) -> None:
    """Do something to the fleet."""
    await asyncio.to_thread(demo.fleet, *args)


async def wait_healthy(page: Page, healthy: bool) -> None:
    """Wait until all cells are healthy, or some are not."""

    async def has_reached_it() -> bool:
        cells = await read_cells(page)
        return len(cells) == AGENTS and (set(cells) == {State.HEALTHY}) is healthy

    # Killed pollers are started again first.
    await eventually(has_reached_it, seconds=2 * DEADLINE_MS / 1000)


async def test_frozen_proxy_changes_cells(page: Page, demo: Demo) -> None:
    """Exactly its agents are stranded on the map; resumed, all are healthy again. The page is not loaded again."""
    await page.click("text=Map")
    await wait_healthy(page, True)
    await page.evaluate("window.isSamePage = true")
    agents = (await asyncio.to_thread(demo.get, f"agents?limit={AGENTS}"))["agents"]
    on_it = sum("proxy-1" in {proxy["name"] for proxy in agent["proxies"]} for agent in agents)
    await fleet(demo, "freeze", "proxy-1")
    try:
        await wait_cells(page, State.STRANDED, on_it)
    finally:
        await fleet(demo, "resume", "proxy-1")
    await wait_healthy(page, True)
    assert await page.evaluate("window.isSamePage")


@pytest.mark.slow
async def test_dead_pollers_make_page_and_socket_unknown(page: Page, demo: Demo) -> None:
    """Both show every agent as unknown, the socket none as stranded meanwhile; killed pollers are started again.

    Stopped first: a killed one is back before the data is too old.
    """
    events: list[dict[str, dict[str, int]]] = []

    def hear(frame: str | bytes) -> None:
        if isinstance(frame, str):
            events.append(json.loads(frame))

    page.on("websocket", lambda socket: socket.on("framereceived", hear))
    await page.click("text=Map")
    await wait_healthy(page, True)
    pollers = demo.pollers()
    for poller in pollers:
        poller.send_signal(signal.SIGSTOP)
    await wait_cells(page, State.UNKNOWN, AGENTS)
    counts = [message["counts"] for message in events if "counts" in message]
    assert counts[-1]["unknown"] == AGENTS
    assert all(count.get("stranded", 0) == 0 for count in counts)
    for poller in pollers:
        poller.send_signal(signal.SIGKILL)
    await wait_healthy(page, True)


async def test_pages_agree_with_the_api(page: Page, demo: Demo) -> None:
    """Tiles, legend, list and API count the same."""
    counts = (await asyncio.to_thread(demo.get, "fleet/summary"))["counts"]
    for slug, count in counts.items():
        await expect(page.locator(f'[data-count="{slug}"]')).to_have_text(str(count))
    await page.click(".tile.state-healthy a")
    await expect(page.locator("#matches")).to_have_text(f"{counts['healthy']} matching agents")
    await page.click("tbody th a >> nth=0")
    await expect(page.locator(".agent-verdict")).to_contain_text("healthy")


async def test_signing_out_ends_the_live_link(page: Page, demo: Demo) -> None:
    """Another tab of the same session shows it without a reload. tests/dashboards/live has the limit of 10 s."""
    other_page = await page.context.new_page()
    await other_page.goto(demo.url, wait_until="commit")
    await other_page.click("#user-menu summary")
    await other_page.click("#user-menu form button")
    await expect(page.locator("#banner")).to_contain_text("You are signed out")
