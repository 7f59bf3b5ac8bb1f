"""Tables of agents: they follow the fleet, keep still when asked to, and filter by address."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from fleet.domain.verdicts import State
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_list_follows_the_fleet(visiting: Visiting) -> None:
    """A row changes its verdict without a reload, and the focus stays where it was."""
    visit = await visiting()
    page = await visit.open("/agents/")
    row = page.locator("tbody tr").first
    await expect(row).to_contain_text("healthy")
    await row.locator("a").focus()
    visit.fleet.apply({0: State.STRANDED})
    await expect(row).to_contain_text("stranded")
    await expect(row.locator("a")).to_be_focused()


async def test_paused_list_stands_still(visiting: Visiting) -> None:
    """While paused nothing is asked for; going on asks at once."""
    visit = await visiting()
    page = await visit.context.new_page()
    await page.clock.install()
    await page.goto(visit.harness.url + "/agents/")
    row = page.locator("tbody tr").first
    await page.click("#pause")
    visit.fleet.apply({0: State.STRANDED})
    await page.clock.run_for(20_000)
    await expect(row).to_contain_text("healthy")
    await page.click("#pause")
    await expect(row).to_contain_text("stranded")


async def test_filter_is_the_address(visiting: Visiting) -> None:
    """Choosing a verdict and sending the form gives a list of it, and the way to the same cells."""
    visit = await visiting()
    visit.fleet.apply({0: State.STRANDED, 1: State.OFFLINE})
    page = await visit.open("/agents/")
    await page.click(".chip.state-stranded")
    await page.click("text=Filter")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator("#matches")).to_have_text("1 matches")
    await page.click("text=View on the map")
    await expect(page.locator('.chip[data-state="stranded"]')).to_have_attribute("aria-pressed", "true")


async def test_agent_page_follows_the_agent(visiting: Visiting) -> None:
    """Verdict, sentence and recovery change as the agent does."""
    visit = await visiting()
    page = await visit.open("/agents/id-agent-001/")
    await expect(page.locator(".agent-verdict")).to_contain_text("healthy")
    visit.fleet.apply({0: State.STRANDED})
    await expect(page.locator(".agent-verdict")).to_contain_text("stranded")
    await expect(page.locator(".recovery")).to_contain_text("yes, by 03:21:40 UTC")
