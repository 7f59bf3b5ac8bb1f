"""Keyboard shortcuts: every page lists its own, and none acts on text."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser.axe import accessible_everywhere
from tests.browser.conftest import Visiting
from tests.browser.visits import Visit

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def open_ready(visit: Visit, path: str) -> Page:
    """Open a page, and wait until its last script has run."""
    page = await visit.open(path)
    await expect(page.locator("#dialog")).to_be_attached()
    await page.wait_for_load_state("load")
    return page


async def test_keys_of_a_page_are_listed(visiting: Visiting) -> None:
    """Those of the page come first; Escape closes the list and gives the focus back."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await open_ready(visit, "/map/")
    await page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    await expect(dialog).to_contain_text("Next or previous agent that is not healthy")
    await expect(dialog).to_contain_text("Replay slider")
    await expect(dialog).to_contain_text("Search and actions")
    await accessible_everywhere(page)
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()


async def test_sequences_lead_to_pages(visiting: Visiting) -> None:
    """g and a letter; / is the search of the page."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await open_ready(visit, "/history/")
    await page.keyboard.press("g")
    await page.keyboard.press("a")
    await page.wait_for_url("**/agents/")
    await expect(page.locator("#dialog")).to_be_attached()
    await page.wait_for_load_state("load")
    await page.keyboard.press("/")
    await expect(page.get_by_role("main").get_by_role("combobox").first).to_be_focused()
    await page.keyboard.type("?gm")
    await expect(page.get_by_role("main").get_by_role("combobox").first).to_have_value("?gm")
    assert page.url.endswith("/agents/")


async def test_shortcuts_can_be_switched_off(visiting: Visiting) -> None:
    """The account menu still has the list, and switches them on again."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await open_ready(visit, "/policies/")
    await page.keyboard.press("?")
    box = page.get_by_label("Shortcuts without Ctrl or Shift are on")
    await box.uncheck()
    await page.keyboard.press("Escape")
    await page.keyboard.press("?")
    await expect(page.locator("#keys")).to_be_hidden()
    await page.locator("#user-menu summary").click()
    await page.get_by_role("button", name="Keyboard shortcuts").click()
    await box.check()
    await page.keyboard.press("Escape")
    await expect(page.locator("#user-menu summary")).to_be_focused()
    await page.keyboard.press("/")
    await expect(page.locator("#palette")).to_be_visible()
