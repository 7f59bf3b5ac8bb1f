"""Parts of the frame that appear later: they move nothing and cover no controls."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.axe import PHONE
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Top of the content, px.
_TOP = "document.getElementById('main').getBoundingClientRect().top"
#: Controls that are in the window, and covered by the toasts.
_COVERED = """() => {
  const box = document.getElementById("toasts").getBoundingClientRect();
  return [...document.querySelectorAll("main :is(a[href], button, input, select, summary)")].filter((control) => {
    const { left, right, top, bottom, width } = control.getBoundingClientRect();
    return width > 0 && left < box.right && right > box.left && top < box.bottom && bottom > box.top;
  }).map((control) => control.outerHTML.slice(0, 80));
}"""
_ANNOUNCE = """() => window.dispatchEvent(new CustomEvent("refloat-incidents",
  { detail: { open: { critical: 1 }, text: "CRIT: 207 agents stranded", severity: "critical", number: 7 } }))"""


@pytest.mark.parametrize("path", ["/", "/map/"])
async def test_banner_moves_nothing(visiting: Visiting, path: str) -> None:
    """On a phone, data that gets too old is announced at the lower edge of the window."""
    visit = await visiting(viewport=PHONE)
    await visit.fleet.begin()
    page = await visit.open(path)
    await expect(page.locator("#link-state, #map-total").first).to_be_visible()
    top = await page.evaluate(_TOP)
    await visit.fleet.go_stale()
    await expect(page.locator("#banner")).to_be_in_viewport(ratio=1)
    assert await page.evaluate(_TOP) == top
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.parametrize("size", [{"width": 1400, "height": 900}, {"width": 1024, "height": 700}])
async def test_toast_covers_no_controls_of_the_map(visiting: Visiting, size: dict[str, int]) -> None:
    """Neither those of the replay nor those of the page, also after scrolling."""
    visit = await visiting(viewport=size)
    await visit.fleet.begin()
    page = await visit.open("/map/")
    await expect(page.locator("#replay [data-range=week]")).to_be_visible()
    # The script that adds it runs after the one that shows toasts.
    await expect(page.locator("#dialog")).to_be_attached()
    await page.evaluate(_ANNOUNCE)
    await expect(page.locator(".toast")).to_be_visible()
    assert await page.evaluate(_COVERED) == []
    await page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    await page.wait_for_function(f"() => ({_COVERED})().length === 0")
