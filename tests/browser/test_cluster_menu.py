"""The menu of clusters in the bar."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Route, expect

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


async def test_menu_that_was_opened_before_its_script_was_loaded(visiting: Visiting) -> None:
    """On a slow connection."""
    visit, other_visit = await visiting(), await visiting()
    await visit.fleet.begin()
    await other_visit.fleet.begin()
    page = await visit.open("/changes/")
    is_open = asyncio.Event()

    async def load_late(route: Route) -> None:
        await is_open.wait()
        await route.continue_()

    await page.route("**/js/cluster-menu*", load_late)
    await page.reload(wait_until="commit")
    await page.locator("#cluster-menu summary").click()
    is_open.set()
    await expect(page.locator("#cluster-list a", has_text=other_visit.cluster)).to_be_visible()


async def test_focus_stays_on_an_entry_when_the_answer_arrives(visiting: Visiting) -> None:
    """The menu was opened once before; now it is in use while it asks again."""
    visit, other_visit = await visiting(), await visiting()
    await visit.fleet.begin()
    await other_visit.fleet.begin()
    page = await visit.open("/changes/")
    summary = page.locator("#cluster-menu summary")
    entry = page.locator("#cluster-list a", has_text=other_visit.cluster)
    await summary.click()
    await expect(entry).to_be_visible()
    await summary.click()
    may_answer = asyncio.Event()

    async def answer_late(route: Route) -> None:
        await may_answer.wait()
        answer = await route.fetch()
        document = await answer.json()
        for cluster in document["clusters"]:
            cluster["stranded_count"] = 7
        await route.fulfill(response=answer, json=document)

    await page.route("**/clusters/menu.json", answer_late)
    await summary.click()
    await entry.focus()
    may_answer.set()
    await expect(entry).to_contain_text("7 stranded")
    await expect(entry).to_be_focused()
