"""Everybody can use the pages: axe finds nothing serious, in light and in dark, also while the data is stale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.async_api import Page, expect

from fleet.domain.verdicts import State
from tests.browser.conftest import Visiting
from tests.browser.harness import block_of

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
# A colour on its way to another has a contrast nobody reads: asking for the animations starts those that are due.
SETTLED = "Promise.all(document.getAnimations().map((one) => one.finished.catch(() => null)))"
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


async def findings(page: Page, kind: str, values: list[str]) -> list[Any]:
    """What axe says of these rules or tags, as (rule, element)."""
    await page.evaluate(SETTLED)
    await page.evaluate(AXE)
    only = {"type": kind, "values": values}
    result = await page.evaluate("(only) => axe.run({ runOnly: only })", only)
    return [(found["id"], node["html"][:160]) for found in result["violations"] for node in found["nodes"]]


@pytest.mark.parametrize("path", ["/", "/map/", "/agents/", "/agents/id-agent-001/"])
async def test_no_findings(visiting: Visiting, path: str) -> None:
    """Contrast, names, roles, landmarks, order of headings, size of targets; contrast in the dark as well."""
    visit = await visiting(color_scheme="light")
    visit.fleet.apply(dict.fromkeys(block_of(visit.fleet, 0), State.STRANDED))
    visit.fleet.proxies[0] |= {"slug": "silent", "label": "silent", "sentence": "Two attempts failed."}
    visit.fleet.proxies[0] |= {"bad": [(State.STRANDED, 50)], "heartbeat_ms": 19_500}
    page = await visit.open(path)
    await expect(page.locator("#age-text")).to_contain_text("old")
    assert await findings(page, "tag", TAGS) == []
    await page.emulate_media(color_scheme="dark")
    assert await findings(page, "rule", ["color-contrast"]) == []


async def test_no_findings_while_stale(visiting: Visiting) -> None:
    """What lost its colour can still be read."""
    visit = await visiting()
    page = await visit.open("/")
    await expect(page.locator("#link-state")).to_have_text("Live updates: on")
    await visit.fleet.go_stale()
    await expect(page.locator("#banner")).to_be_visible()
    assert await findings(page, "tag", TAGS) == []


async def test_keyboard_reaches_everything(visiting: Visiting) -> None:
    """Tab goes from the skip link over the bar to the content, and what has the focus shows a ring."""
    visit = await visiting()
    page = await visit.open("/")
    await expect(page.locator("#link-state")).to_have_text("Live updates: on")
    await page.keyboard.press("Tab")
    await expect(page.locator(".skip")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await expect(page.locator(".tile a").first).to_be_focused()
    ring = "element => getComputedStyle(element).outlineStyle"
    assert await page.locator(".tile a").first.evaluate(ring) == "solid"


async def accessible(page: Page) -> None:
    """See that a page has no findings in light and dark, and nothing wider than a phone."""
    assert await findings(page, "tag", TAGS) == []
    await page.emulate_media(color_scheme="dark")
    assert await findings(page, "rule", ["color-contrast"]) == []
    await page.emulate_media(color_scheme="light")
    size = page.viewport_size
    assert size is not None
    await page.set_viewport_size({"width": 360, "height": 760})
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
    await page.set_viewport_size(size)
