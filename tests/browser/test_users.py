"""Users in the browser: invite somebody, and accept the invitation in a browser that is not signed in."""

from __future__ import annotations

import secrets

import pytest
from playwright.async_api import expect

from tests.browser.axe import accessible_everywhere
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_invited_person_sets_a_password(visiting: Visiting) -> None:
    """An administrator copies the link; a second browser, which is not signed in, uses it."""
    visit = await visiting(color_scheme="light", viewport={"width": 1400, "height": 900})
    page = await visit.new_page()
    await page.goto(f"{visit.console.url}/users/", wait_until="domcontentloaded")
    username = f"u{secrets.token_hex(5)}"
    await page.get_by_label("Username").fill(username)
    await page.get_by_role("button", name="Invite user").click()
    link = await page.locator("code.secret").text_content()
    await accessible_everywhere(page)
    await page.goto(f"{visit.console.url}/users/{username}/", wait_until="domcontentloaded")
    await accessible_everywhere(page)
    assert link is not None
    await page.context.clear_cookies()
    await page.goto(link, wait_until="domcontentloaded")
    await page.get_by_label("Password", exact=True).fill("correct horse battery")
    await page.get_by_label("Password again").fill("correct horse battery")
    await page.get_by_role("button", name="Set password").click()
    await expect(page.get_by_text(f"Welcome, {username}")).to_be_visible()
