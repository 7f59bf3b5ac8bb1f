"""Selected agents of the list: across pages and orders, by mouse and by keyboard, up to the action."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Page, Route, expect

from fleet.models.inventory import Agent
from fleet.vocabulary.verdicts import State
from tests.browser.axe import PHONE, accessible_everywhere
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

COUNT = "#selected-count"
#: Pixels from the bar down to the banner, or without one to the edge of the window, and from the banner to that edge.
_GAPS = """() => {
  const [bar, banner] = ["selection", "banner"].map((id) => document.getElementById(id).getBoundingClientRect());
  const gaps = banner.height > 0 ? [banner.top - bar.bottom, innerHeight - banner.bottom] : [innerHeight - bar.bottom];
  return gaps.map(Math.round).join();
}"""
# The page paints its own banner twice per second, so the text is shown again at each look.
_SHOWS_BANNER_WITH = f"""([text, gaps]) => {{
  document.getElementById("banner-text").textContent = text;
  document.getElementById("banner").hidden = text === "";
  return ({_GAPS})() === gaps;
}}"""


async def _check(page: Page, *names: str) -> None:
    for name in names:
        await page.get_by_role("checkbox", name=f"Select {name}", exact=True).check()


async def _selected_numbers(page: Page) -> list[str]:
    """Return the numbers of the selected agents of this page, all of one moment."""
    numbers: list[str] = await page.evaluate(
        "[...document.querySelectorAll('#rows input[name=agent]:checked')]"
        ".map((box) => box.getAttribute('aria-label').replace('Select agent-', ''))"
    )
    return numbers


async def _follow(page: Page, query: str) -> None:
    """Open the list with another query, as a link of the list does."""
    await page.goto(f"{page.url.partition('?')[0]}{query}", referer=page.url)


async def test_selection_outlives_pages_and_orders(visiting: Visiting) -> None:
    """The bar counts the agents that the page does not show, and the action is about all of them."""
    visit = await visiting(color_scheme="light", viewport={"width": 1400, "height": 900})
    visit.fleet.offline_agents = frozenset(range(200))
    await visit.fleet.begin()
    page = await visit.open("/agents/?sort=name")
    await _check(page, "agent-1", "agent-2")
    await page.get_by_role("link", name="Next page").click()
    await expect(page.locator(COUNT)).to_have_text("2 selected, 2 of them not on this page")
    await page.get_by_label("Select all agents on this page").check()
    await expect(page.locator(COUNT)).to_have_text("102 selected, 2 of them not on this page")
    await page.get_by_role("link", name="First page").click()
    await expect(page.locator(COUNT)).to_have_text("102 selected, 100 of them not on this page")
    assert await _selected_numbers(page) == ["1", "2"]
    await page.get_by_role("columnheader", name="Agent").get_by_role("link").click()
    await expect(page.locator(COUNT)).to_have_text("102 selected, 2 of them not on this page")
    await accessible_everywhere(page)

    # Their ids are too long for an address.
    await page.get_by_role("button", name="Retire…").click()
    dialog = page.get_by_role("dialog", name="Retire 102 agents")
    await dialog.get_by_label("Reason").fill("scrapped with the old site")
    await dialog.get_by_role("button", name="Retire 102 agents").click()
    await page.wait_for_url("**/changes/*/")
    retired_count = await visit.rows(
        lambda: (
            Agent.objects.filter(cluster_id=visit.cluster, is_retired=True)
            .values_list("name", flat=True)
            .count()
        )
    )
    assert retired_count == 102
    await page.goto(f"{visit.url}/agents/")
    await expect(page.locator(COUNT)).to_have_text("Select agents")


async def test_agents_to_move_include_those_of_other_pages(visiting: Visiting) -> None:
    """On the page of the campaign, also more than an address takes. Then the selection has been used."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/agents/?sort=name")
    await page.get_by_label("Select all agents on this page").check()
    await page.get_by_role("link", name="Next page").click()
    await _check(page, "agent-199", "agent-200")
    await page.get_by_role("button", name="Reconnect agents…").click()
    await page.wait_for_url("**/reconnect/")
    agents = await page.locator("[name=agents]").input_value()
    assert len(agents.split()) == 102
    assert {"agent-1", "agent-200"} <= set(agents.split())
    # So many names do not fit into the address of the forecast either.
    names = " ".join(f"agent-{number:d}" for number in range(1, 201)) + " agent-1" * 40
    async with page.expect_request("**/reconnect/forecast/*") as request:
        await page.locator("[name=agents]").fill(names)
    assert (await request.value).method == "POST"
    await expect(page.locator("#forecast")).to_contain_text("of 200 matching agents")
    await page.goto(f"{visit.url}/agents/")
    await expect(page.locator(COUNT)).to_have_text("Select agents")
    assert await _selected_numbers(page) == []
    await page.goto(f"{visit.url}/agents/?auth=auth-1")
    await page.get_by_label("Select all agents on this page").check()
    await page.get_by_role("button", name="Reconnect agents…").click()
    await expect(page.locator("[name=connection][value=auth]")).to_be_checked()


async def test_all_matching_agents_last_as_long_as_the_filter(visiting: Visiting) -> None:
    """On its other pages and in another order; of single agents, another filter keeps those that match it."""
    visit = await visiting()
    await visit.fleet.begin({0: State.STRANDED})
    page = await visit.open("/agents/")
    await _check(page, "agent-1", "agent-3")
    await _follow(page, "?state=healthy")
    await expect(page.locator("#selection-dropped")).to_have_text(
        "1 of 2 selected agents does not match the filter and is no longer selected."
    )
    await expect(page.locator(COUNT)).to_contain_text("1 selected")
    await accessible_everywhere(page)
    await _check(page, "agent-2")
    await expect(page.locator("#selection-dropped")).to_have_text("")
    await page.get_by_role("button", name="Select all 199 matching agents").click()
    await page.get_by_role("link", name="Next page").click()
    await expect(page.locator(COUNT)).to_have_text("199 selected, 100 of them not on this page")
    await _follow(page, "?state=healthy&sort=-name")
    await expect(page.locator(COUNT)).to_have_text("199 selected, 99 of them not on this page")
    await _follow(page, "")
    await expect(page.locator(COUNT)).to_have_text("Select agents")


async def test_page_that_is_shown_again_has_the_newest_selection(visiting: Visiting) -> None:
    """After *Back*, which may show the page as it was left."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/agents/?sort=name")
    await _check(page, "agent-1")
    await page.get_by_role("link", name="Next page").click()
    await page.get_by_role("button", name="Clear selection").click()
    await page.go_back()
    await expect(page.locator(COUNT)).to_have_text("Select agents")
    assert await _selected_numbers(page) == []


async def test_selection_ends_when_the_list_is_left_for_another_page(visiting: Visiting) -> None:
    """The main navigation begins anew; filters, an agent's page and *Back*, and a reload keep the selection."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/agents/")
    main = page.get_by_role("navigation", name="Main")

    async def expect_selected(text: str) -> None:
        await expect(page.locator(COUNT)).to_have_text(text)

    await _check(page, "agent-1", "agent-3")
    await page.reload()
    await expect_selected("2 selected")
    await page.locator("a.chip.state-healthy").click()
    await expect_selected("2 selected")
    await page.get_by_role("link", name="Clear filters").click()
    await expect_selected("2 selected")
    await page.get_by_role("link", name="agent-1", exact=True).click()
    await page.wait_for_url("**/agents/*/")
    await page.go_back()
    await expect_selected("2 selected")

    await main.get_by_role("link", name="Fleet now").click()
    await page.wait_for_url(f"{visit.url}/")
    await page.go_back()
    await expect_selected("2 selected")
    await page.go_forward()
    await main.get_by_role("link", name="Agents").click()
    await expect_selected("Select agents")
    assert await _selected_numbers(page) == []

    await _check(page, "agent-1")
    await main.get_by_role("link", name="Agents").click()
    await expect_selected("Select agents")
    await _check(page, "agent-1")
    await page.get_by_role("link", name="agent-1", exact=True).click()
    await page.wait_for_url("**/agents/*/")
    await main.get_by_role("link", name="Agents").click()
    await expect_selected("Select agents")


async def test_ranges_by_mouse_and_keyboard(visiting: Visiting) -> None:
    """With Shift: a click, Space and the arrow keys; without text that looks selected."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/agents/?sort=name")
    boxes = page.locator("#rows input[name=agent]")
    await boxes.nth(1).click()
    await expect(page.locator(COUNT)).to_have_text("1 selected")
    await boxes.nth(3).click(modifiers=["Shift"])
    await expect(page.locator(COUNT)).to_have_text("3 selected")
    assert await _selected_numbers(page) == ["2", "3", "4"]
    assert await page.evaluate("getSelection().isCollapsed")
    await boxes.nth(2).click(modifiers=["Shift"])
    assert await _selected_numbers(page) == ["2"], "the state of the box that was clicked holds for the range"

    await page.get_by_role("button", name="Clear selection").click()
    await boxes.nth(0).focus()
    await page.keyboard.press("Space")
    for _ in range(3):
        await page.keyboard.press("Tab")
    await boxes.nth(4).focus()
    await page.keyboard.press("Shift+Space")
    assert await _selected_numbers(page) == ["1", "2", "3", "4", "5"]

    await page.keyboard.press("Shift+ArrowDown")
    await page.keyboard.press("Shift+ArrowDown")
    await expect(boxes.nth(6)).to_be_focused()
    assert await _selected_numbers(page) == ["1", "2", "3", "4", "5", "6", "7"]
    await page.keyboard.press("Shift+ArrowUp")
    assert await _selected_numbers(page) == ["1", "2", "3", "4", "5", "6"]
    await expect(page.locator(COUNT)).to_have_text("6 selected")
    await boxes.nth(0).focus()
    await page.keyboard.press("Shift+ArrowUp")
    await expect(boxes.nth(0)).to_be_focused()


async def test_bar_stays_above_the_banner(visiting: Visiting) -> None:
    """However many lines the banner has; without it, the bar is at the lower edge. A phone shows it for a selection."""
    visit = await visiting(viewport=PHONE)
    await visit.fleet.begin()
    page = await visit.open("/agents/")
    await expect(page.locator("#selection")).to_be_hidden()
    await _check(page, "agent-1")
    await expect(page.locator("#selection")).to_be_in_viewport(ratio=1)
    assert await page.evaluate(_GAPS) == "0"
    sentence = "Data is 47 s old: the console does not respond. Reconnecting in 12 s. "
    for text, gaps in ((sentence[:17], "0,0"), (sentence * 2, "0,0"), ("", "0")):
        await page.wait_for_function(_SHOWS_BANNER_WITH, arg=[text, gaps])


async def test_box_that_is_checked_before_the_script_runs_counts(visiting: Visiting) -> None:
    """Before all of the page has arrived: a range begins there; a reload restores only what is selected."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.new_page()
    release = asyncio.Event()

    async def delay(route: Route) -> None:
        await release.wait()
        await route.continue_()

    await page.route("**/agent-selection.js", delay)
    await page.goto(f"{visit.url}/agents/?sort=name", wait_until="commit")
    await _check(page, "agent-1", "agent-2")
    release.set()
    await expect(page.locator(COUNT)).to_have_text("2 selected")
    await page.unroute("**/agent-selection.js")
    await page.get_by_role("checkbox", name="Select agent-4", exact=True).click(modifiers=["Shift"])
    await expect(page.locator(COUNT)).to_have_text("4 selected")
    await page.get_by_role("checkbox", name="Select agent-1", exact=True).uncheck()
    await page.reload()
    await expect(page.locator(COUNT)).to_have_text("3 selected")
    assert await _selected_numbers(page) == ["2", "3", "4"]


async def test_state_filter_applies_at_once(visiting: Visiting) -> None:
    """The focus stays on the state, so that a keyboard can go on."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/agents/")
    await page.locator("a.chip.state-never").click()
    await expect(page).to_have_url(f"{visit.url}/agents/?q=state:never")
    await expect(page.locator("#matches")).to_contain_text("0 matching agents")
    await expect(page.locator("a.chip[data-state=never]")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#matches")).to_contain_text("200 matching agents")
