"""What axe finds in a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.async_api import Page, ViewportSize

_AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
# Ends all animations: while a colour still changes, its contrast is not the one that people read. Waiting for their end
# could last for ever, because Chromium does not advance animations in a closed <details>.
_FINISH_ANIMATIONS = """() => {
    for (const animation of document.getAnimations()) {
        if (animation.effect.getComputedTiming().endTime !== Infinity) animation.finish();
    }
}"""
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
#: The smallest window that every page fits, in pixels.
PHONE: ViewportSize = {"width": 360, "height": 760}
#: Rules whose findings depend on the width of the window: it hides parts, wraps lines and lets frames scroll.
_WIDTH_RULES = ["color-contrast", "scrollable-region-focusable", "target-size", "heading-order", "region"]


async def find_violations(page: Page, kind: str, values: list[str]) -> list[Any]:
    """Return axe's violations of these rules or tags, as (rule, element)."""
    # A page that is still being parsed has no headings and landmarks yet.
    await page.wait_for_load_state("domcontentloaded")
    await page.evaluate(_FINISH_ANIMATIONS)
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(_AXE)
    # Without what passes, and without fetching the style sheets once more, which no rule of these tags reads.
    options = {
        "runOnly": {"type": kind, "values": values},
        "resultTypes": ["violations"],
        "preload": False,
    }
    report = await page.evaluate("(options) => axe.run(options)", options)
    return [(rule["id"], node["html"][:160]) for rule in report["violations"] for node in rule["nodes"]]


async def accessible(page: Page) -> None:
    """See that a page has no findings in light and dark, and nothing wider than a phone."""
    violations = await find_violations(page, "tag", TAGS)
    await page.emulate_media(color_scheme="dark")
    violations += await find_violations(page, "rule", ["color-contrast"])
    assert not violations, violations
    await page.emulate_media(color_scheme="light")
    size = page.viewport_size
    assert size is not None
    await page.set_viewport_size(PHONE)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
    await page.set_viewport_size(size)


async def accessible_everywhere(page: Page) -> None:
    """See that a page has no findings in its window in light and dark, none on a phone in dark, and fits the phone.

    A phone shows less than a window does, in the same colours.
    """
    usual_size = page.viewport_size
    assert usual_size is not None
    violations: dict[str, list[Any]] = {"light": await find_violations(page, "tag", TAGS)}
    await page.emulate_media(color_scheme="dark")
    violations["dark"] = await find_violations(page, "rule", ["color-contrast"])
    await page.set_viewport_size(PHONE)
    violations["dark, phone"] = await find_violations(page, "rule", _WIDTH_RULES)
    await page.emulate_media(color_scheme="light")
    width = await page.evaluate("document.documentElement.scrollWidth")
    await page.set_viewport_size(usual_size)
    remaining_violations = {screen: findings for screen, findings in violations.items() if findings}
    assert not remaining_violations, remaining_violations
    assert width <= PHONE["width"]
