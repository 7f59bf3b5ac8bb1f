"""Saved views and columns of the list of agents: saved, opened and chosen, on a wide page and a phone."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.axe import accessible, accessible_everywhere
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_view_is_saved_and_columns_are_kept(visiting: Visiting) -> None:
    """The menu has the name of the view that the page shows; a reload keeps the columns."""
    visit = await visiting(color_scheme="light", viewport={"width": 1400, "height": 900})
    await visit.fleet.begin()
    await visit.fleet.silence(0)
    page = await visit.open("/agents/?group=cause")
    await expect(page.locator("#rows tbody tr")).to_have_count(2)
    await expect(page.locator("#rows tbody tr").first).to_contain_text("50 stranded")
    await page.locator("#views summary").click()
    await page.get_by_label("Name").fill("By cause")
    await page.get_by_role("button", name="Save view").click()
    await expect(page.locator("#views summary")).to_have_text("By cause")
    await page.locator("#views summary").click()
    await accessible_everywhere(page)
    await page.get_by_role("link", name="Manage saved views").click()
    await page.locator(".saved-view-edit summary").click()
    await accessible_everywhere(page)

    await page.goto(f"{visit.url}/agents/?q=state:stranded")
    await page.locator("#columns summary").click()
    await accessible(page)
    await page.get_by_role("checkbox", name="Recovery").uncheck()
    await expect(page.get_by_role("columnheader", name="Recovery")).to_have_count(0)
    await expect(page.get_by_role("columnheader", name="Reason")).to_be_visible()
    # The menu stays open for the next choice, and the address is that of the list.
    await expect(page.get_by_role("checkbox", name="Recovery")).to_be_visible()
    assert page.url == f"{visit.url}/agents/?q=state:stranded"
    assert "recovery" not in str(await page.locator("#csv").get_attribute("href"))
    await page.reload()
    await expect(page.get_by_role("columnheader", name="Recovery")).to_have_count(0)
