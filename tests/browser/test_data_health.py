"""Data health in the browser: reached from the banner of old data, accessible, and readable on a phone."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from fleet.vocabulary.verdicts import State
from tests.browser.axe import accessible_everywhere
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_old_data_leads_to_what_is_broken(visiting: Visiting) -> None:
    """The banner of Fleet now has a link; the page says that the data is blind, and why."""
    visit = await visiting(color_scheme="light", viewport={"width": 360, "height": 800})
    await visit.fill([State.HEALTHY] * 4, as_of=1_700_000_000.0)
    page = await visit.open("/")
    await page.locator("#banner-link").click()
    await expect(page.locator("#verdict-title")).to_have_text("Blind")
    await expect(page.locator("#problems")).to_contain_text("Refloat does not poll it")
    overflow = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert overflow <= 0
    await accessible_everywhere(page)
