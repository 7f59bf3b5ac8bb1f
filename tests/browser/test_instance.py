"""The page of one instance: it follows the fleet, and everybody can read it."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from fleet.vocabulary.verdicts import State
from tests.browser.axe import accessible_everywhere
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Until a page asks anew.
REFRESH_MS = 6_000


async def test_name_leads_to_the_page_and_its_agents(visiting: Visiting) -> None:
    """From Fleet now to the instance, and on to the agents that its failure would strand."""
    visit = await visiting()
    await visit.fill([State.HEALTHY] * 6)
    page = await visit.open("/")
    await page.locator("#instances").get_by_role("link", name="proxy-2", exact=True).click()
    await expect(page.locator("h1")).to_contain_text("proxy-2")
    await expect(page.locator("#failure-forecast")).to_contain_text("3 agents lose their only tunnel.")
    await accessible_everywhere(page)
    await page.get_by_role("link", name="View these agents").click()
    await expect(page.locator("tbody tr")).to_have_count(3)


async def test_page_follows_the_instance(visiting: Visiting) -> None:
    """The agents of the proxy change without a reload."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.new_page()
    await page.clock.install()
    await page.goto(f"{visit.url}/instances/proxy-1/")
    chips = page.locator("#instance .legend .chip")
    await expect(chips).to_have_count(1)
    await visit.fleet.change({0: State.STRANDED})
    await page.clock.run_for(REFRESH_MS)
    await expect(page.locator("#instance .chip.state-stranded")).to_contain_text("1 stranded")


async def test_long_and_marked_names_fit_a_phone(visiting: Visiting) -> None:
    """Names of 300 characters, with markup, from right to left."""
    visit = await visiting()
    await visit.fill([State.HEALTHY] * 2, suffix=f"<b>\u05d0\u05d1{'x' * 280}")
    page = await visit.open("/instances/proxy-1-id/")
    await expect(page.locator("h1")).to_contain_text("<b>")
    await accessible_everywhere(page)
