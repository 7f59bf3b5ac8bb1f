"""An operator's browser with pages of a demo open: signed in, live, photographed on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser, Page, async_playwright

from tests.browser.chromium import ARGUMENTS, LAUNCH_MS, executable
from tests.flow.running import Demo

Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")

#: Size of the window, px.
_WIDTH, _HEIGHT = 1400, 900
#: For anything that the page must show, ms.
_DEADLINE_MS = 90_000
_IS_PAINTED = """() => performance.getEntriesByName("map-painted").length > 0"""
_NEXT_FRAMES = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"""
_CLOSE_TOASTS = """() => document.querySelectorAll(".toast button").forEach((button) => button.click())"""


@dataclass(frozen=True, slots=True)
class Window:
    """A window that an operator left open."""

    page: Page
    theme: Theme
    #: Of the console, without a slash at the end.
    url: str

    async def open(self, path: str) -> None:
        """Open a page, and wait until it is complete: the map is painted, the data has an age, fonts are loaded."""
        await self.page.goto(f"{self.url}{path}")
        if path.startswith("/map/"):
            await self.page.wait_for_function(_IS_PAINTED)
        await self.page.evaluate("document.fonts.ready")

    async def photograph(self, path: Path, width: int, height: int) -> None:
        """Save the top of the page, of this size in px, as PATH.png. Messages about incidents are closed before."""
        await self.page.set_viewport_size({"width": width, "height": height})
        await self.page.evaluate(_CLOSE_TOASTS)
        # The page is drawn in its new size.
        await self.page.evaluate(_NEXT_FRAMES)
        await self.page.screenshot(path=f"{path}.png", animations="disabled")

    async def photograph_whole(self, path: Path) -> None:
        """Save what the window shows as PATH.png, the whole page as PATH-full.png, and its text as PATH.txt."""
        await self.page.screenshot(path=f"{path}.png")
        text = await self.page.inner_text("body")
        title = await self.page.title()
        path.with_name(f"{path.name}.txt").write_text(f"{title}\n\n{text}\n", "utf-8")
        await self.page.screenshot(path=f"{path}-full.png", full_page=True)


@asynccontextmanager
async def open_windows(demo: Demo, *themes: Theme) -> AsyncIterator[list[Window]]:
    """Sign in with Chromium, one window per theme, and open the map. The pages stay live until the block ends."""
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=executable(), args=ARGUMENTS, timeout=LAUNCH_MS
        )
        try:
            yield [await _open_window(browser, demo, theme) for theme in themes]
        finally:
            await browser.close()


async def _open_window(browser: Browser, demo: Demo, theme: Theme) -> Window:
    page = await browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme=theme)
    page.set_default_timeout(_DEADLINE_MS)
    window = Window(page, theme, demo.url.rstrip("/"))
    await page.goto(f"{window.url}/accounts/login/")
    await page.fill("[name=login]", "demo")
    await page.fill("[name=password]", demo.password)
    await page.press("[name=password]", "Enter")
    await page.wait_for_url(lambda url: "/login/" not in url)
    await window.open("/map/")
    return window
