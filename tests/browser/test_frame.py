"""Parts of the frame that appear later: they move nothing and cover no controls."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import ViewportSize, expect

from tests.browser.axe import PHONE
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Top of the content, px.
_TOP = "document.getElementById('main').getBoundingClientRect().top"
#: Controls that are covered by the toasts, and were not cut off at the upper edge of the window before.
_COVERED = """() => {
  const box = document.getElementById("toasts").getBoundingClientRect();
  return [...document.querySelectorAll("main :is(a[href], button, input, select, summary)")].filter((control) => {
    const { left, right, top, bottom, width } = control.getBoundingClientRect();
    const wasInWindow = top - box.height >= 0;
    return width > 0 && wasInWindow && left < box.right && right > box.left && top < box.bottom && bottom > box.top;
  }).map((control) => control.outerHTML.slice(0, 80));
}"""
_ANNOUNCE = """() => window.dispatchEvent(new CustomEvent("refloat-incidents",
  { detail: { open: { critical: 1 }, text: "CRIT: 207 agents stranded", severity: "critical", number: 7 } }))"""

#: The page requests the state of the data again, as after its tab was in the background.
_WAKE = "document.dispatchEvent(new Event('visibilitychange'))"


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


@pytest.mark.parametrize("is_scrolled", [False, True])
@pytest.mark.parametrize(
    ("path", "last_part", "size"),
    [
        ("/map/", "#replay [data-range=week]", {"width": 1400, "height": 900}),
        ("/map/", "#replay [data-range=week]", PHONE),
        ("/incidents/", "h1", PHONE),
        ("/agents/", "h1", {"width": 1024, "height": 700}),
    ],
)
async def test_toast_covers_no_controls(
    visiting: Visiting, path: str, last_part: str, size: ViewportSize, *, is_scrolled: bool
) -> None:
    """Neither those of the replay nor those of the page; one that has the focus, neither."""
    visit = await visiting(viewport=size)
    await visit.fleet.begin()
    page = await visit.open(path)
    await expect(page.locator(last_part)).to_be_attached()
    # The script that adds it runs after the one that shows toasts.
    await expect(page.locator("#dialog")).to_be_attached()
    if is_scrolled:
        await page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    for _ in range(4):
        await page.evaluate(_ANNOUNCE)
    await expect(page.locator(".toast")).to_have_count(3)
    await expect(page.locator(".toast").first).to_be_in_viewport(ratio=1)
    top = await page.evaluate("window.scrollY")
    assert (top > 0) is is_scrolled or path == "/incidents/"
    assert await page.evaluate(_COVERED) == []
    assert await page.evaluate("document.documentElement.scrollWidth") <= size["width"]


@pytest.mark.parametrize("path", ["/incidents/", "/changes/", "/history/"])
async def test_toasts_move_nothing(visiting: Visiting, path: str) -> None:
    """They lie over a corner of the page without a control, and leave it as it was. Rows of agents fill their page."""
    visit = await visiting(viewport={"width": 1400, "height": 900})
    await visit.fleet.begin()
    page = await visit.open(path)
    await expect(page.locator("#dialog")).to_be_attached()
    await page.wait_for_load_state("load")
    top = await page.evaluate(_TOP)
    await page.evaluate(_ANNOUNCE)
    await expect(page.locator(".toast")).to_be_in_viewport(ratio=1)
    assert await page.evaluate(_TOP) == top
    assert await page.evaluate(_COVERED) == []
    await page.locator(".toast button").click()
    await expect(page.locator(".toast")).to_have_count(0)


async def test_toast_waits_for_the_pointer_to_rest(visiting: Visiting) -> None:
    """Somebody who is about to click would hit the toast."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/agents/")
    await expect(page.locator("#dialog")).to_be_attached()
    toast_count = await page.evaluate(
        f"""() => {{
          document.body.dispatchEvent(new PointerEvent("pointermove", {{ bubbles: true }}));
          ({_ANNOUNCE})();
          return document.querySelectorAll(".toast").length;
        }}"""
    )
    assert toast_count == 0
    await expect(page.locator(".toast")).to_have_count(1)


@pytest.mark.parametrize("path", ["/agents/", "/networking/", "/changes/", "/incidents/"])
async def test_pages_without_live_updates_say_that_polling_has_stopped(visiting: Visiting, path: str) -> None:
    """In the same banner as live pages; it disappears with new data."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open(path)
    await expect(page.locator("#headline-badge, #incident-badge").first).to_be_attached()
    await expect(page.locator("#banner")).to_be_hidden()
    await visit.fleet.go_stale()
    await page.evaluate(_WAKE)
    await expect(page.locator("#banner")).to_contain_text(
        re.compile(r"Data is \d.* old: polling has stopped.")
    )
    await visit.fleet.recover()
    await page.evaluate(_WAKE)
    await expect(page.locator("#banner")).to_be_hidden()


async def test_pages_without_live_updates_say_that_the_console_is_silent(visiting: Visiting) -> None:
    """After two requests without an answer: one may be lost."""
    visit = await visiting()
    visit.expected.append("ERR_FAILED")
    await visit.fleet.begin()
    page = await visit.open("/networking/")
    await expect(page.locator("#banner")).to_be_hidden()
    await page.route("**/incidents/badge.json*", lambda route: route.abort())
    await page.evaluate(_WAKE)
    await page.evaluate(_WAKE)
    await expect(page.locator("#banner")).to_contain_text("the console does not respond")
