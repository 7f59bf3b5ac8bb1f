"""The palette: finds and opens by keyboard alone, with any name, on every screen."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from tests.browser.axe import PHONE, accessible_everywhere
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def open_palette(page: Page) -> None:
    """Open the palette by its key, and wait until it has the pages."""
    await expect(page.locator("#dialog")).to_be_attached()
    await page.keyboard.press("Control+k")
    await expect(page.locator("#palette-query")).to_be_focused()
    await expect(page.get_by_role("option", name="Audit log")).to_be_attached()


async def test_keyboard_finds_and_opens_an_agent(visiting: Visiting) -> None:
    """Enter opens the first match, also before its results have arrived."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/incidents/")
    await open_palette(page)
    await page.keyboard.type("agent-17")
    options = page.locator("#palette-list [role=option]")
    await expect(options.first).to_contain_text(re.compile("^agent-17"))
    await expect(page.locator("#palette-query")).to_have_attribute(
        "aria-activedescendant", "palette-option-0"
    )
    await page.keyboard.press("ArrowDown")
    await expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/agents/agent-17-id/")

    await open_palette(page)
    await page.keyboard.type("policies")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/policies/")
    await open_palette(page)
    await expect(page.locator("#palette-list [role=option]").first).to_have_text("Policies")


async def test_escape_gives_the_focus_back(visiting: Visiting) -> None:
    """To the button that opened the palette."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/agents/")
    button = page.get_by_role("button", name="Search…")
    await expect(page.locator("#dialog")).to_be_attached()
    await button.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog", name="Search and actions")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator("#palette")).to_be_hidden()
    await expect(button).to_be_focused()


async def test_opens_again_before_the_browser_has_moved_the_focus(visiting: Visiting) -> None:
    """Until its next frame, a browser leaves the focus in a closed dialog, and the event *close* is still to come."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/incidents/")
    await open_palette(page)
    await page.keyboard.type("theme dark")
    options = page.locator("#palette-list [role=option]")
    await expect(options).to_have_text(["Theme: dark"])
    await page.evaluate("""() => {
        const press = (init) => document.activeElement.dispatchEvent(
            new KeyboardEvent("keydown", { bubbles: true, cancelable: true, ...init }));
        press({ key: "Enter" });
        press({ key: "k", ctrlKey: true });
    }""")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await expect(page.locator("#palette-query")).to_be_focused()
    await expect(page.get_by_role("option", name="Audit log")).to_be_attached()


async def test_actions_open_their_form_or_take_effect(visiting: Visiting) -> None:
    """Forms that are dialogs open over the page; a theme applies at once."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/history/")
    await open_palette(page)
    await page.keyboard.type("theme dark")
    await page.keyboard.press("Enter")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await open_palette(page)
    await page.keyboard.type("take out of service proxy-1")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog", name="Take proxy-1 out of service")).to_be_visible()
    assert page.url.endswith("/history/")


async def test_accessible_with_results_and_without(visiting: Visiting) -> None:
    """Light and dark, wide and on a phone, where the button is an icon."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/agents/")
    await open_palette(page)
    await page.keyboard.type("agent-1")
    await expect(page.locator("#palette-status")).to_contain_text("results")
    await accessible_everywhere(page)
    await page.locator("#palette-query").fill("<b>nothing</b> (")
    await expect(page.locator("#palette-status")).to_contain_text("No results")
    await accessible_everywhere(page)


async def test_hostile_names_stay_text(visiting: Visiting) -> None:
    """Markup is shown as it is, and a name of 300 characters does not widen the list."""
    visit = await visiting(viewport=PHONE)
    await visit.fleet.begin()
    page = await visit.open("/agents/")
    await expect(page.locator("#dialog")).to_be_attached()
    names = ["<img src=x onerror=alert(1)>", "n" * 300, "\u05e9\u05dc\u05d5\u05dd \u202e abc", "a " * 150]
    entries = [
        {"label": name, "url": "/agents/x/", "note": "stranded", "state": "stranded"} for name in names
    ]
    answer = {"groups": [{"kind": "agent", "label": "Agents", "count": 4, "all_url": "", "entries": entries}]}
    await page.route("**/palette.json*", lambda route: route.fulfill(json={**answer, "notice": ""}))
    await page.locator("#palette-open").click()
    options = page.locator("#palette-list [role=option]")
    await expect(options).to_have_count(4)
    await expect(options.first).to_contain_text(names[0])
    assert await page.evaluate("document.querySelector('#palette-list').scrollWidth") <= PHONE["width"]
    assert await page.locator("#palette-list img").count() == 0


async def test_silent_console(visiting: Visiting) -> None:
    """The palette says so."""
    visit = await visiting()
    visit.expected.append("ERR_FAILED")
    await visit.fleet.begin()
    page = await visit.open("/agents/")
    await expect(page.locator("#dialog")).to_be_attached()
    await page.route("**/palette.json*", lambda route: route.abort())
    await page.keyboard.press("Control+k")
    await expect(page.locator("#palette-status")).to_have_text("The console does not respond.")


async def test_same_page_in_another_cluster(visiting: Visiting) -> None:
    """Lists stay, objects become their list, pages of the installation become Fleet now."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/agents/")
    pairs = {
        "/c/x/agents/a-id/?tab=b&q=c": "/c/y/agents/?tab=b",
        "/agents/": "/c/y/agents/",
        "/c/x/": "/c/y/",
        "/c/x/alerts/rules/?at=1": "/c/y/alerts/rules/?at=1",
        "/c/x/alerts/rules/12/": "/c/y/alerts/rules/",
        "/clusters/x/": "/c/y/",
    }
    addresses = await page.evaluate(
        """async (paths) => {
          const { pathInCluster } = await import("/static/dashboards/js/cluster-path.js");
          return paths.map((path) => {
            const prefix = path.startsWith("/c/x/") ? "/c/x" : "";
            return pathInCluster(new URL(path, location.origin), prefix, "/c/y");
          });
        }""",
        list(pairs),
    )
    assert addresses == list(pairs.values())
