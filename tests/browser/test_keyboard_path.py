"""The main path of an operator by keyboard alone: from the sign-in to the drain of the failing proxy."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser.conftest import Visiting
from tests.browser.incident_scene import make_incident
from tests.browser.visits import Visitor, new_context, watch
from tests.flow.web import PASSWORD, USERNAME

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Most stops of the Tab key before a control.
_MAX_STOPS = 60


async def move_to(page: Page, control: Locator) -> None:
    """Press Tab until a control has the focus, and see that the focus is visible there."""
    for _ in range(_MAX_STOPS):
        if await control.evaluate("(element) => element === document.activeElement"):
            assert await control.evaluate("(element) => element.matches(':focus-visible')")
            return
        await page.keyboard.press("Tab")
    pytest.fail(f"Tab does not reach {control}")


async def choose(page: Page, query: str, label: str) -> None:
    """Open the palette, search, and open the first option that contains the label."""
    await expect(page.locator("#dialog")).to_be_attached()
    await page.wait_for_load_state("load")
    await page.keyboard.press("Control+k")
    await expect(page.locator("#palette-query")).to_be_focused()
    await page.keyboard.type(query)
    await expect(page.locator("#palette-list")).to_have_attribute("data-query", query)
    options = await page.locator("#palette-list [role=option]").all_inner_texts()
    for _ in range(next(number for number, text in enumerate(options) if label in text)):
        await page.keyboard.press("ArrowDown")
    await expect(page.locator("#palette-list [aria-selected=true]")).to_contain_text(label)
    await page.keyboard.press("Enter")


async def test_from_sign_in_to_a_drain(visitor: Visitor, visiting: Visiting) -> None:
    """A stranded agent, its incident, the acknowledgement, and the proxy out of service up to its plan."""
    visit = await visiting()
    await visit.fleet.begin()
    await visit.fleet.silence(0)
    number = await visit.rows(make_incident, visit.cluster)
    context = await new_context(visitor.chromium)
    page = await context.new_page()
    watch(page, visit.errors)
    await page.goto(f"{visit.console.url}/accounts/login/?next={visit.prefix}/agents/")
    await move_to(page, page.locator("input[name=login]"))
    await page.keyboard.type(USERNAME)
    await page.keyboard.press("Tab")
    await page.keyboard.type(PASSWORD)
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**{visit.prefix}/agents/")

    await choose(page, "agent-1", "agent-1")
    await page.wait_for_url("**/agents/agent-1-id/")
    await expect(page.locator("#agent")).to_contain_text("stranded")

    await choose(page, "proxy-1", f"Incident {number}")
    await page.wait_for_url(f"**/incidents/{number}/")
    await move_to(page, page.locator("#acts button[value=acknowledge]"))
    await page.keyboard.press("Enter")
    await expect(page.locator("#acts")).to_contain_text("Remove acknowledgement")

    await choose(page, "take out of service proxy-2", "Take out of service proxy-2")
    dialog = page.get_by_role("dialog", name="Take proxy-2 out of service")
    await expect(dialog.get_by_label("Reason")).to_be_focused()
    await page.keyboard.type("replaced by a new one")
    await move_to(
        page, dialog.get_by_role("button", name=re.compile("Take proxy-2 out of service|Request approval"))
    )
    await context.close()
