"""Pages on paper: the content alone, black on white."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Visiting
from tests.browser.incident_scene import make_incident

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: A4 without margins, px.
_PAPER = {"width": 690, "height": 980}
#: Visible controls of the page.
_CONTROLS = """[...document.querySelectorAll("button, input, textarea, .button, nav")]
  .filter((control) => control.getBoundingClientRect().width > 0).map((control) => control.outerHTML.slice(0, 80))"""


async def test_incident_prints_its_timeline_without_controls(visiting: Visiting) -> None:
    """In a dark theme, too; nothing is wider than the paper."""
    visit = await visiting(viewport=_PAPER, color_scheme="dark")
    await visit.fleet.begin()
    number = await visit.rows(make_incident, visit.cluster)
    page = await visit.open(f"/incidents/{number}/")
    await expect(page.locator("#events li")).to_have_count(30)
    await page.emulate_media(media="print")
    await expect(page.locator("#events li").first).to_contain_text("Note 29")
    assert await page.evaluate(_CONTROLS) == []
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert await page.evaluate("getComputedStyle(document.querySelector('#events')).color") == "rgb(0, 0, 0)"
    time = await page.evaluate("getComputedStyle(document.querySelector('#events time'), '::before').content")
    assert re.fullmatch(r'"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"', time)
    assert await page.evaluate("document.documentElement.scrollWidth") <= _PAPER["width"]
    assert len(await page.pdf(format="A4")) > 10_000


async def test_lists_print_as_tables(visiting: Visiting) -> None:
    """All rows with their columns, not the cards of a phone."""
    visit = await visiting(viewport=_PAPER, agents_per_proxy=5)
    await visit.fleet.begin()
    page = await visit.open("/agents/")
    await expect(page.locator("#rows tbody tr, #rows tr").first).to_be_visible()
    await page.emulate_media(media="print")
    assert await page.evaluate(_CONTROLS) == []
    assert (
        await page.evaluate("getComputedStyle(document.querySelector('.table tbody tr')).display")
        == "table-row"
    )
