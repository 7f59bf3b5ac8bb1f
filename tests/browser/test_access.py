"""Accessibility: axe finds nothing serious, in light and dark, also while the data is stale."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.axe import TAGS, find_violations
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize("path", ["/", "/map/", "/agents/", "/agents/agent-1-id/"])
async def test_no_findings(visiting: Visiting, path: str) -> None:
    """Contrast, names, roles, landmarks, order of headings, size of targets; contrast in the dark as well."""
    visit = await visiting(color_scheme="light")
    await visit.fleet.begin()
    await visit.fleet.silence(0)
    page = await visit.open(path)
    await expect(page.locator("#age-text")).to_contain_text("old")
    assert await find_violations(page, "tag", TAGS) == []
    await page.emulate_media(color_scheme="dark")
    assert await find_violations(page, "rule", ["color-contrast"]) == []


async def test_no_findings_while_stale(visiting: Visiting) -> None:
    """What lost its colour can still be read."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/")
    await expect(page.locator("#link-state")).to_have_text("Live updates: on")
    await visit.fleet.go_stale()
    await expect(page.locator("#banner")).to_be_visible()
    assert await find_violations(page, "tag", TAGS) == []


async def test_keyboard_reaches_everything(visiting: Visiting) -> None:
    """Tab goes from the skip link over the bar to the content, and what has the focus shows a ring."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/")
    await expect(page.locator("#link-state")).to_have_text("Live updates: on")
    await page.keyboard.press("Tab")
    await expect(page.locator(".skip")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await expect(page.locator(".tile a").first).to_be_focused()
    ring = "element => getComputedStyle(element).outlineStyle"
    assert await page.locator(".tile a").first.evaluate(ring) == "solid"
