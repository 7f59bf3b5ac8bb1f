"""An operator in the browser who counts clicks, from Fleet now."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.async_api import Locator, Page, expect

from tests.browser.visits import Visit

REASON = "planned maintenance"


@dataclass
class Operator:
    """A person with a pointer and a keyboard, who starts on Fleet now."""

    page: Page
    click_count: int = 0

    async def click(self, target: Locator) -> None:
        """Click what is visible."""
        self.click_count += 1
        await target.click()

    async def open_section(self, name: str) -> None:
        """Click an entry of the navigation."""
        await self.click(self.page.get_by_label("Main", exact=True).get_by_role("link", name=name))

    async def type(self, text: str, *, field: str) -> None:
        """Type into the field that has the focus, which must be the field with this name."""
        await expect(self.page.locator(f"[name={field}]:focus")).to_be_visible()
        await self.page.keyboard.type(text)

    async def confirm(self) -> None:
        """Type the reason, and the name of the cluster where it is asked for, and confirm the plan."""
        await self.type(REASON, field="reason")
        if await self.page.locator("#confirmation").count():
            await self.page.keyboard.press("Tab")
            await self.type(self.page.url.split("/")[4], field="confirmation")
        await self.click(self.page.locator("section[aria-labelledby=confirm-title] .button-main"))
        await expect(self.page.locator("#change-state .tag")).not_to_have_text("planned")


async def start_operator(visit: Visit) -> Operator:
    """Open Fleet now."""
    page = await visit.open("/")
    # The script that adds it opens links in it; before, they lead to a page.
    await expect(page.locator("#dialog")).to_be_attached()
    return Operator(page)
