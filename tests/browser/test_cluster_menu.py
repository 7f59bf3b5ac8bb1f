"""The menu of clusters in the bar."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.axe import accessible_everywhere
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_same_page_in_another_cluster(visiting: Visiting) -> None:
    """Opened by keyboard; Escape closes it and gives the focus back."""
    visit, other_visit = await visiting(), await visiting()
    await visit.fleet.begin()
    await other_visit.fleet.begin()
    page = await visit.open("/changes/")
    summary = page.locator("#cluster-menu summary")
    await expect(page.locator("#dialog")).to_be_attached()
    await summary.focus()
    await page.keyboard.press("Enter")
    entry = page.locator("#cluster-list a", has_text=other_visit.cluster)
    await expect(entry).to_have_attribute("href", f"/c/{other_visit.cluster}/changes/")
    await expect(page.locator("#cluster-list a[aria-current]")).to_contain_text(visit.cluster)
    await accessible_everywhere(page)
    # The menu is hidden on a phone, which took the focus.
    await summary.focus()
    await page.keyboard.press("Escape")
    await expect(summary).to_be_focused()
    await expect(page.locator("#cluster-list")).to_be_hidden()
    await page.keyboard.press("Enter")
    await entry.focus()
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/c/{other_visit.cluster}/changes/")
