"""The query bar of the list of agents: suggestions by keyboard and pointer, chips, errors, and refreshes meanwhile."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from fleet.monitoring.agent_attributes import AgentAttributes
from fleet.vocabulary.verdicts import State
from tests.browser.axe import PHONE, accessible_everywhere
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_filter_by_keyboard(visiting: Visiting) -> None:
    """Keys first, then values with their numbers; each becomes a chip, and Backspace leads to the last one."""
    visit = await visiting(viewport={"width": 1400, "height": 900})
    visit.fleet.attributes_by_agent = {0: AgentAttributes("18.2.0", (("env", "prod"),))}
    await visit.fleet.begin({0: State.STRANDED, 1: State.STRANDED})
    page = await visit.open("/agents/")
    field = page.get_by_role("combobox", name="Filter agents")
    options = page.get_by_role("option")
    await field.press_sequentially("sta")
    await expect(options.first).to_have_text("state:state of the agent")
    await field.press("ArrowDown")
    await expect(field).to_have_attribute("aria-activedescendant", "suggestion-0")
    await field.press("Enter")
    await expect(field).to_have_value("state:")
    await expect(options.first).to_have_text("state:stranded2 agents")
    await field.press("ArrowDown")
    await accessible_everywhere(page)
    await field.press("Enter")
    await page.wait_for_url("**/agents/?q=state%3Astranded")
    await expect(page.locator("#matches")).to_contain_text("2 matching agents")
    await expect(field).to_be_focused()
    await expect(field).to_have_value("")

    await field.press_sequentially("label.env:")
    await expect(options).to_have_text(["label.env:prod1 agent"])
    await options.first.click()
    await page.wait_for_url("**/agents/?q=state%3Astranded+label.env%3Aprod")
    await expect(page.locator("#matches")).to_contain_text("1 matching agent")
    await expect(page.locator(".filter-chip")).to_have_count(2)
    await field.press("Backspace")
    await expect(page.get_by_role("link", name="Remove filter label.env:prod")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/agents/?q=state:stranded")
    await expect(field).to_be_focused()
    await field.press_sequentially("v")
    await expect(options.first).to_be_visible()
    await field.press("Escape")
    await expect(page.locator("#suggestions-popup")).to_be_hidden()
    await expect(field).to_have_value("v")


async def test_wrong_filter_is_explained_at_the_field(visiting: Visiting) -> None:
    """What is right stays as chips, and one correction later the list is back."""
    visit = await visiting(viewport=PHONE)
    visit.expected.append("400 (Bad Request)")
    await visit.fleet.begin({0: State.STRANDED})
    page = await visit.open("/agents/?q=state:stranded+age:5m")
    field = page.get_by_role("combobox", name="Filter agents")
    await expect(field).to_have_value("age:5m")
    await expect(field).to_have_attribute("aria-invalid", "true")
    await expect(page.locator("#query-error")).to_contain_text("age:>5m")
    await expect(page.locator(".filter-chip")).to_have_count(1)
    await accessible_everywhere(page)
    await field.fill("-state:healthy")
    await field.press("Escape")
    await field.press("Enter")
    await page.wait_for_url("**/agents/?q=state%3Astranded+-state%3Ahealthy")
    await expect(page.locator("#matches")).to_contain_text("1 matching agent")


async def test_refresh_goes_on_beside_the_query_bar(visiting: Visiting) -> None:
    """With the focus in the field: the text, the suggestions and the selection stay."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/agents/?sort=name")
    await page.get_by_role("checkbox", name="Select agent-2", exact=True).check()
    field = page.get_by_role("combobox", name="Filter agents")
    await field.press_sequentially("state:h")
    await expect(page.get_by_role("option")).to_have_text(["state:healthy200 agents"])
    await visit.fleet.change({0: State.STRANDED})
    await expect(page.locator("#rows tbody tr").first).to_contain_text("stranded")
    await expect(field).to_be_focused()
    await expect(field).to_have_value("state:h")
    await expect(page.get_by_role("option")).to_be_visible()
    await expect(page.locator("#selected-count")).to_contain_text("1 selected")
    await page.get_by_role("checkbox", name="Select agent-3", exact=True).check()
    await visit.fleet.change({0: State.OFFLINE})
    await expect(page.locator("#rows tbody tr").first).to_contain_text("offline")
    await expect(page.get_by_role("checkbox", name="Select agent-3", exact=True)).to_be_focused()
