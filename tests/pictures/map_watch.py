"""An operator's browser with the map of a demo open: signed in, live, photographed on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import Page, async_playwright

from tests.browser.chromium import ARGUMENTS, LAUNCH_MS, executable

#: Size of the window, px.
_WIDTH, _HEIGHT = 1400, 900
#: For anything that the page must show, ms.
_DEADLINE_MS = 90_000
_IS_PAINTED = """() => performance.getEntriesByName("map-painted").length > 0"""


@dataclass(frozen=True, slots=True)
class MapWatch:
    """The map in a window that an operator left open."""

    page: Page

    async def photograph(self, path: Path) -> None:
        """Save what the window shows as PATH.png, the whole page as PATH-full.png, and its text as PATH.txt."""
        await self.page.screenshot(path=f"{path}.png")
        text = await self.page.inner_text("body")
        title = await self.page.title()
        path.with_name(f"{path.name}.txt").write_text(f"{title}\n\n{text}\n", "utf-8")
        await self.page.screenshot(path=f"{path}-full.png", full_page=True)


@asynccontextmanager
async def watch_map(url: str, username: str, password: str, *, dark: bool = False) -> AsyncIterator[MapWatch]:
    """Sign in with Chromium, and open the map. The page stays open, and live, until the block ends."""
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=executable(), args=ARGUMENTS, timeout=LAUNCH_MS
        )
        try:
            page = await browser.new_page(
                viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme="dark" if dark else "light"
            )
            page.set_default_timeout(_DEADLINE_MS)
            address = url.rstrip("/")
            await page.goto(f"{address}/accounts/login/?next=/map/")
            await page.fill("[name=login]", username)
            await page.fill("[name=password]", password)
            await page.press("[name=password]", "Enter")
            await page.wait_for_url("**/map/**")
            await page.wait_for_function(_IS_PAINTED)
            yield MapWatch(page)
        finally:
            await browser.close()
