"""The local time beside UTC."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from tests.browser.axe import accessible_everywhere
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_local_time_is_the_tooltip_or_stands_beside_utc(visiting: Visiting) -> None:
    """By choice in the account menu, which other pages and refreshed parts follow."""
    visit = await visiting(timezone_id="Asia/Kolkata")
    await visit.fleet.begin()
    page = await visit.open("/agents/agent-1-id/")
    time = page.locator("main time[datetime]").first
    await expect(time).to_have_attribute(
        "title", re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d .*\(Asia/Calcutta|Kolkata\)")
    )
    await expect(page.locator(".local-time")).to_have_count(0)
    await page.locator("#user-menu summary").click()
    button = page.get_by_role("button", name="Show local time")
    await button.click()
    await expect(button).to_have_attribute("aria-pressed", "true")
    await expect(time.locator(".local-time")).to_have_text(re.compile(r"\(.*\d\d:\d\d:\d\d GMT\+5:30\)"))
    await page.keyboard.press("Escape")
    await page.goto(f"{visit.url}/agents/")
    await expect(page.locator("#rows .local-time").first).to_be_visible()
    await accessible_everywhere(page)


async def test_forms_of_local_times(visiting: Visiting) -> None:
    """As precise as the text in UTC; with the date where the day differs."""
    visit = await visiting(timezone_id="Asia/Kolkata")
    await visit.fleet.begin()
    page = await visit.open("/changes/")
    texts = await page.evaluate(
        """async (pairs) => {
          const { formatLocal } = await import("/static/dashboards/js/local-times.js");
          return pairs.map(([at, text]) => formatLocal(new Date(at), text));
        }""",
        [
            ["2026-11-28T10:00:05Z", "10:00:05 UTC"],
            ["2026-11-28T10:00:05Z", "2026-11-28 10:00 UTC"],
            ["2026-11-28T20:00:05Z", "20:00:05 UTC"],
        ],
    )
    assert texts == ["15:30:05 GMT+5:30", "2026-11-28 15:30 GMT+5:30", "2026-11-29 01:30:05 GMT+5:30"]
