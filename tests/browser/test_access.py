"""Accessibility: axe finds nothing in light and dark, on a desktop and a phone, and the keyboard reaches everything."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from itertools import groupby

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from dashboards.shared.rewind import format_at
from fleet.monitoring.agent_attributes import AgentAttributes
from fleet.vocabulary.verdicts import State
from tests.browser import past_scene
from tests.browser.axe import TAGS, accessible_everywhere, find_violations
from tests.browser.conftest import Visiting, Visitor
from tests.browser.map_page import wait_painted
from tests.browser.visits import Visit

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

Preparation = Callable[[Page], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster with a failed proxy, a past moment in its history, and the page that shows it."""

    visit: Visit
    page: Page
    past_at: str


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scene(visitor: Visitor) -> AsyncIterator[Scene]:
    """One cluster and one page for all states: agents with labels, a failed proxy, an incident, and a history."""
    visit = await visitor.begin(
        proxies=3, agents_per_proxy=8, color_scheme="light", viewport={"width": 1400, "height": 900}
    )
    visit.fleet.attributes = AgentAttributes("18.2.1", (("env", "prod"), ("site", "oslo")))
    await visit.fleet.begin({9: State.AT_RISK})
    await visit.fleet.silence(0)
    now = time.time()
    await visit.rows(
        past_scene.write, visit.console.writer(), visit.cluster, now - 600, range(1, 6), [20, 21], now + 900
    )
    await visit.rows(past_scene.add_incident, visit.cluster, now - 500, now - 300)
    # A moment without a record is answered with this status; the page may be left before its socket is open.
    visit.expected += ["status of 400", "before the connection is established"]
    yield Scene(visit, await visit.new_page(), format_at(now - 400))
    await visit.end()


async def _wait_age(page: Page) -> None:
    await expect(page.locator("#age-text")).to_contain_text("old")


async def _wait_past(page: Page) -> None:
    await expect(page.locator("#past-title")).to_be_visible()


async def _wait_map(page: Page) -> None:
    await wait_painted(page)
    await expect(page.locator(".flow-node").first).to_be_visible()


async def _unfold(page: Page) -> None:
    """Open the error of the failed proxy, and the table of the chart."""
    await _wait_age(page)
    for selector in (".error-details summary", "#fleet-chart-table summary"):
        await page.locator(selector).first.click()
    await expect(page.locator(".error-details code").first).to_contain_text("failed to connect")
    await expect(page.locator("#fleet-chart-periods")).to_be_visible()


async def _find(page: Page) -> None:
    await _wait_map(page)
    await expect(page.locator("#search-result")).to_have_text("8 matches")


async def _select(page: Page) -> None:
    """Select a block by keyboard; the card shows the agent at the cursor."""
    await _wait_map(page)
    await page.focus("#map")
    await page.keyboard.press("n")
    await page.keyboard.press("b")
    await expect(page.locator("#selection [data-number]")).to_have_text("8 agents selected")
    await expect(page.locator("#card-body .agent-verdict")).to_contain_text("stranded")


async def _replay(page: Page) -> None:
    """Leave the present with the slider, and unfold its list."""
    await _wait_map(page)
    await page.focus("#replay-slider")
    await page.keyboard.press("ArrowLeft")
    await _wait_past(page)
    await page.click("#replay-list summary")


async def _view_tables(page: Page) -> None:
    await _wait_map(page)
    await page.click(".topology-switch")
    await expect(page.locator(".topology-table tbody tr").first).to_be_visible()


async def _wait_refusal(page: Page) -> None:
    await expect(page.locator("h1")).to_have_text("No data for this moment")


@pytest.mark.parametrize(
    ("path", "prepare"),
    [
        pytest.param("/", _unfold, id="fleet now"),
        pytest.param("/?at={at}", _wait_past, id="fleet now in the past"),
        pytest.param("/?at=2020-01-01", _wait_refusal, id="no data for the moment"),
        pytest.param("/map/?q=proxy:proxy-2", _find, id="search on the map"),
        pytest.param("/map/", _select, id="selection and card on the map"),
        pytest.param("/map/?group=auth", _replay, id="replay on the map"),
        pytest.param("/map/?at={at}", _wait_map, id="map in the past"),
        pytest.param("/map/?view=table", _view_tables, id="tables of the map"),
        pytest.param("/agents/", _wait_age, id="agents"),
        pytest.param("/agents/?at={at}", _wait_past, id="agents in the past"),
        pytest.param("/agents/agent-1-id/", _wait_age, id="agent"),
        pytest.param("/agents/agent-1-id/?at={at}", _wait_past, id="agent in the past"),
    ],
)
async def test_no_findings(scene: Scene, path: str, prepare: Preparation) -> None:
    """Contrast, names, roles, landmarks, headings, size of targets, width; and nothing violates the content policy."""
    await scene.page.goto(scene.visit.url + path.format(at=scene.past_at), wait_until="commit")
    await prepare(scene.page)
    await accessible_everywhere(scene.page)
    assert [error for error in scene.visit.errors if "CSP" in error] == []


async def test_no_findings_while_stale(visiting: Visiting) -> None:
    """What lost its colour can still be read."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/")
    await expect(page.locator("#link-state")).to_have_text("Live updates: on")
    await visit.fleet.go_stale()
    await expect(page.locator("#banner")).to_be_visible()
    assert await find_violations(page, "tag", TAGS) == []


async def test_keyboard_reaches_everything(visiting: Visiting) -> None:
    """Tab goes from the skip link over the bar to the content, and what has the focus shows a ring."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/")
    await expect(page.locator("#link-state")).to_have_text("Live updates: on")
    await page.keyboard.press("Tab")
    await expect(page.locator(".skip")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await expect(page.locator(".tile a").first).to_be_focused()
    ring = "element => getComputedStyle(element).outlineStyle"
    assert await page.locator(".tile a").first.evaluate(ring) == "solid"


#: What has the focus: an id, or a class, or a label; and whether the focus is visible on it.
_FOCUSED = """() => {
  const element = document.activeElement;
  const { range, state } = element.dataset;
  const { outlineStyle, outlineWidth } = getComputedStyle(element);
  const name = element.id || range || state || element.className.baseVal || element.classList[0] || element.localName;
  return [name, outlineStyle !== "none" && parseFloat(outlineWidth) >= 1];
}"""
#: Replaces the table of instances on Fleet now, as its script does.
_REPLACE = """async () => {
  const { fetchPart, swap } = await import("/static/dashboards/js/page.js");
  const fresh = await fetchPart(`${location.pathname}?part=instances`, "instances");
  swap(document.getElementById("instances"), fresh);
}"""
#: Tab stops of the map in order: toolbar, topology (its button, one node), states, cells, card, replay, table.
_STOPS = [
    *[
        "group",
        "search",
        "zoom-in",
        "as-table",
        "list",
        "pause",
        "button",
        "flow-node",
        "stranded",
        "healthy",
    ],
    *["map", "card-problem", "replay-play", "hour", "day", "week", "replay-mark", "replay-slider", "table"],
]


async def test_keyboard_goes_through_the_map(scene: Scene) -> None:
    """Every control is reached in the order of the page and shows that it has the focus; nothing keeps the focus."""
    page = scene.page
    await page.goto(f"{scene.visit.url}/map/?view=table", wait_until="commit")
    await _wait_map(page)
    await expect(page.locator("a.replay-mark")).to_have_count(1)
    await page.focus("#main")
    stops: list[tuple[str, bool]] = []
    while len(stops) < 60:
        await page.keyboard.press("Tab")
        name, is_ringed = await page.evaluate(_FOCUSED)
        if name in ("body", "skip"):
            break
        stops.append((name, is_ringed))
    names = [name for name, _ in stops]
    assert len(stops) < 60, f"Tab does not leave the page: {names}"
    # The card has a button for each problem.
    assert [name for name, _ in groupby(names) if name in _STOPS] == _STOPS, " ".join(names)
    assert [name for name, is_ringed in stops if not is_ringed] == []


async def test_keyboard_works_on_the_map(scene: Scene) -> None:
    """Search, zoom, selection and filters; the focus never falls back to the top of the page."""
    page = scene.page
    await page.goto(f"{scene.visit.url}/map/", wait_until="commit")
    await _wait_map(page)
    await page.focus("#map")
    await page.keyboard.press("/")
    await expect(page.locator("#search")).to_be_focused()
    await page.keyboard.type("proxy:proxy-2")
    await expect(page.locator("#search-result")).to_have_text("8 matches")
    await page.keyboard.press("Escape")
    await expect(page.locator("#search")).to_have_value("")
    await expect(page.locator("#search-result")).to_be_empty()
    await page.focus("#map")
    await page.keyboard.press("+")
    await expect(page.locator("#zoom-out")).to_be_enabled()
    await page.keyboard.press("0")
    await expect(page.locator("#zoom-out")).to_be_disabled()
    # The button of the selection disappears with it, as that of the filter does.
    await page.keyboard.press("n")
    await page.keyboard.press("b")
    await expect(page.locator('#selection [data-action="reconnect"]')).to_be_visible()
    await page.focus("#selection [data-clear]")
    await page.keyboard.press("Enter")
    await expect(page.locator("#selection")).to_be_hidden()
    await expect(page.locator("#map")).to_be_focused()
    await page.focus('.chip[data-state="stranded"]')
    await page.keyboard.press("Space")
    await page.focus("#show-all")
    await page.keyboard.press("Space")
    await expect(page.locator("#show-all")).to_be_hidden()
    await expect(page.locator("#map")).to_be_focused()
    await page.focus("#group")
    await page.keyboard.press("ArrowDown")
    await expect(page.locator(".block-title b").first).to_have_text("auth-1")
    await page.focus(".card-problem")
    await page.keyboard.press("Enter")
    await expect(page.locator("#selection [data-number]")).to_have_text("8 agents selected")


async def test_focus_stays_where_a_part_is_replaced(scene: Scene) -> None:
    """The instances are requested again every few seconds, with a new table and a new error."""
    page = scene.page
    await page.goto(f"{scene.visit.url}/", wait_until="commit")
    await _wait_age(page)
    for selector in ("#instances .table-frame", "#instances .error-details summary"):
        await page.focus(selector)
        await page.evaluate(_REPLACE)
        await expect(page.locator(selector)).to_be_focused()
