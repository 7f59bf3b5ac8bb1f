"""The map: agents in blocks by what holds them now, coloured by state, in Chromium."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from fleet.vocabulary.verdicts import State
from tests.browser.conftest import Visiting
from tests.browser.link import FaultyLink
from tests.browser.map_page import CELLS, find_centre, read_blocks, wait_cells, wait_painted, wait_pixels

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Number that a faded cell has more.
FADED = 100


def colour_of(state: State, theme: int = 0) -> str:
    """The colour of a state's cells; theme 0 is light, 1 is dark."""
    return (state.look.cell_colours or state.look.colours)[theme]


async def test_cells_change_on_a_delta(visiting: Visiting) -> None:
    """A proxy's block turns red and back, and its header counts the stranded."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/map/")
    await wait_cells(page, State.HEALTHY, 200)
    await visit.fleet.change(dict.fromkeys(visit.fleet.block(0), State.STRANDED))
    await wait_cells(page, State.STRANDED, 50)
    header = page.locator(".block-title").first
    await expect(header).to_contain_text("proxy-1")
    await expect(header.locator(".block-stranded")).to_have_text("50 stranded")
    await wait_pixels(page, colour_of(State.STRANDED), 1000)
    await visit.fleet.change(dict.fromkeys(visit.fleet.block(0), State.HEALTHY))
    await wait_cells(page, State.STRANDED, 0)
    await expect(header.locator(".block-stranded")).to_be_hidden()
    # The tooltip follows every state, also those that the header does not name.
    await visit.fleet.change(dict.fromkeys(visit.fleet.block(0)[:2], State.DEGRADED))
    await expect(header).to_have_attribute("title", re.compile("^proxy-1: 2 degraded, 48 healthy"))


async def test_block_of_a_silent_proxy_looks_dead(visiting: Visiting) -> None:
    """By its header, the card and the summary; and it names what failed."""
    visit = await visiting()
    await visit.fleet.begin(dict.fromkeys(range(200), State.HEALTHY))
    page = await visit.open("/map/")
    await wait_painted(page)
    await visit.fleet.silence(2)
    # No agent changed: the block looks dead because of the instance alone.
    await expect(page.locator(".block-dead b")).to_have_text("proxy-3")
    await expect(page.locator(".block-dead .block-state")).to_have_text("not responding")
    assert await page.evaluate(CELLS) == [State.HEALTHY] * 200
    await expect(page.locator(".card-problem")).to_have_text("proxy-3not responding")
    await expect(page.locator("#map-summary")).to_contain_text("Needs attention: proxy-3: not responding")
    await wait_pixels(page, State.AT_RISK.look.colours[0], 1000)


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("auth", ["auth-1", "auth-2", "auth-3"]),
        ("home", ["proxy-1", "proxy-2"]),
        ("state", ["healthy", "stranded"]),
        ("cause", ["No cause"]),
        ("region", ["No region known"]),
    ],
)
async def test_groups(visiting: Visiting, group: str, names: list[str]) -> None:
    """Every agent is in one block; the address keeps the choice."""
    visit = await visiting(proxies=2, agents_per_proxy=4)
    await visit.fleet.begin({0: State.STRANDED})
    page = await visit.open("/map/")
    await wait_painted(page)
    await page.select_option("#group", group)
    await expect(page.locator(".block-title b")).to_have_text(names)
    blocks = await read_blocks(page)
    assert sorted(agent for agents in blocks.values() for agent in agents) == list(range(8))
    await expect(page).to_have_url(f"{visit.url}/map/?group={group}")
    await page.reload()
    await expect(page.locator(".block-title b")).to_have_text(names)


@pytest.mark.parametrize(("scheme", "theme"), [("light", 0), ("dark", 1)])
async def test_pixels_have_the_colours_of_the_theme(visiting: Visiting, scheme: str, theme: int) -> None:
    """Stranded cells are drawn in that state's colour, light and dark; the theme button redraws them."""
    visit = await visiting(color_scheme=scheme)
    await visit.fleet.begin()
    page = await visit.open("/map/")
    await wait_painted(page)
    await wait_pixels(page, colour_of(State.STRANDED, theme), 0, 0)
    await visit.fleet.change({3: State.STRANDED})
    await wait_pixels(page, colour_of(State.STRANDED, theme), 100)
    await wait_pixels(page, colour_of(State.HEALTHY, theme), 10_000)
    await page.click("#theme")
    await page.click("#theme")
    await wait_pixels(page, colour_of(State.HEALTHY, 1), 10_000)


async def test_legend_and_search_filter(visiting: Visiting) -> None:
    """What is left out fades; the address and the link to the list carry the choice."""
    visit = await visiting()
    await visit.fleet.begin({0: State.STRANDED, 1: State.AT_RISK})
    page = await visit.open("/map/")
    await wait_painted(page)
    await page.click('.chip[data-state="stranded"]')
    await wait_cells(page, State.HEALTHY + FADED, 198)
    await wait_cells(page, State.AT_RISK + FADED, 1)
    await wait_cells(page, State.STRANDED, 1)
    await expect(page.locator("#list")).to_have_attribute("href", f"{visit.prefix}/agents/?state=stranded")
    assert page.url == f"{visit.url}/map/?state=stranded"
    await page.click("#show-all")
    await wait_cells(page, State.HEALTHY, 198)
    await page.fill("#search", "proxy:proxy-2")
    await expect(page.locator("#search-result")).to_have_text("50 matches")
    await wait_cells(page, State.HEALTHY, 50)
    visit.expected.append("status of 400")
    await page.fill("#search", "colour:red")
    await expect(page.locator("#search-result")).to_contain_text("Unknown filter 'colour'")
    await wait_cells(page, State.HEALTHY, 198)


async def test_keyboard_reads_the_map(visiting: Visiting) -> None:
    """Arrows move a cursor that is announced, n finds the sick, the card follows, Enter opens the agent."""
    visit = await visiting()
    await visit.fleet.begin({index: State.HEALTHY for index in visit.fleet.block(2) if index != 120})
    await visit.fleet.silence(2)
    page = await visit.open("/map/")
    await wait_painted(page)
    await page.focus("#map")
    announcement = page.locator("#live-region")
    await page.keyboard.press("ArrowRight")
    await expect(announcement).to_have_text("agent-1, healthy, proxy-1")
    await page.keyboard.press("ArrowRight")
    await expect(announcement).to_have_text("agent-2, healthy, proxy-1")
    await page.keyboard.press("n")
    await expect(announcement).to_have_text("agent-121, stranded, proxy-3")
    await expect(page.locator("#card-body")).to_contain_text(
        "The agent has no live tunnel: proxy-3 is not responding."
    )
    await page.keyboard.press("Escape")
    await expect(page.locator("#card-body")).to_contain_text("Needs attention")
    await page.keyboard.press("n")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{visit.url}/agents/agent-121-id/")


async def test_card_beside_the_map_shifts_nothing(visiting: Visiting) -> None:
    """The pointer's agent is named beside the map; the map keeps its place and its size."""
    visit = await visiting()
    await visit.fleet.begin({index: State.HEALTHY for index in visit.fleet.block(0) if index != 0})
    await visit.fleet.silence(0)
    page = await visit.open("/map/")
    await wait_painted(page)
    # The topology above the map comes with the first data.
    await expect(page.locator("#topology svg").first).to_be_visible()
    before = await page.locator("#map-frame").bounding_box()
    await page.mouse.move(*await find_centre(page, 0))
    await expect(page.locator("#card-body")).to_contain_text("proxy-1 is not responding")
    assert await page.locator("#map-frame").bounding_box() == before
    card = await page.locator(".map-card").bounding_box()
    assert before is not None
    assert card is not None
    assert card["x"] >= before["x"] + before["width"]
    await visit.fleet.change({0: State.HEALTHY})
    await expect(page.locator("#card-body .agent-verdict")).to_contain_text("healthy")


async def test_brush_selects_and_links(visiting: Visiting) -> None:
    """A rectangle selects agents, a header a block; the links carry the selection, and so does the address."""
    visit = await visiting(proxies=2, agents_per_proxy=8)
    await visit.fleet.begin()
    page = await visit.open("/map/")
    await wait_painted(page)
    await page.mouse.move(*await find_centre(page, 0))
    await page.mouse.down()
    await page.mouse.move(*await find_centre(page, 1), steps=4)
    await page.mouse.up()
    await expect(page.locator("#selection [data-number]")).to_have_text("2 agents selected")
    listing = page.locator('#selection [data-action="list"]')
    await expect(listing).to_have_attribute(
        "href", f"{visit.prefix}/agents/?q=id%3Aagent-1-id+id%3Aagent-2-id"
    )
    assert ":0-1" in page.url.replace("%3A", ":")
    await page.keyboard.press("b")
    await page.focus("#map")
    await page.mouse.click(*await find_centre(page, 8))
    await page.keyboard.press("b")
    await expect(page.locator("#selection [data-number]")).to_have_text("8 agents selected")
    await expect(listing).to_have_attribute("href", f"{visit.prefix}/agents/?q=proxy%3Aproxy-2")
    await expect(page.locator('#selection [data-action="silence"]')).to_have_attribute(
        "href", f"{visit.prefix}/silences/new/?matchers=cause%3Dproxy-2"
    )
    await page.reload()
    await expect(page.locator("#selection [data-number]")).to_have_text("8 agents selected")
    await listing.click()
    await expect(page.locator("#matches")).to_contain_text("8 matching agents")


async def test_shift_and_arrows_select(visiting: Visiting) -> None:
    """Without a pointer."""
    visit = await visiting(proxies=2, agents_per_proxy=40)
    await visit.fleet.begin()
    page = await visit.open("/map/")
    await wait_painted(page)
    await page.focus("#map")
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("Shift+ArrowRight")
    await page.keyboard.press("Shift+ArrowDown")
    await expect(page.locator("#selection [data-number]")).to_have_text("4 agents selected")


async def test_pause_stops_the_picture_only(visiting: Visiting) -> None:
    """While paused cells stand still; going on shows everything that came meanwhile."""
    visit = await visiting()
    await visit.fleet.begin()
    page, link = await visit.new_page(), FaultyLink()
    await link.attach(page)
    await page.goto(f"{visit.url}/map/", wait_until="commit")
    await wait_cells(page, State.HEALTHY, 200)
    await page.click("#pause")
    await expect(page.locator("#pause")).to_have_text("Resume updates")
    await visit.fleet.change({0: State.STRANDED})
    await expect(page.locator("#age-text")).to_contain_text("Paused")
    assert await page.evaluate(CELLS) == [State.HEALTHY] * 200
    await page.click("#pause")
    await wait_cells(page, State.STRANDED, 1)
    assert link.requests == []


async def test_stale_map_is_unknown(visiting: Visiting) -> None:
    """Every cell but the retired turns unknown, and comes back."""
    visit = await visiting()
    await visit.fleet.begin({0: State.RETIRED})
    page = await visit.open("/map/")
    await wait_painted(page)
    await visit.fleet.go_stale()
    await wait_cells(page, State.UNKNOWN, 199)
    await expect(page.locator("#banner")).to_contain_text("old")
    await visit.fleet.recover()
    await wait_cells(page, State.HEALTHY, 199)


async def test_new_agents_get_cells(visiting: Visiting) -> None:
    """Those who were there keep their order."""
    visit = await visiting()
    await visit.fleet.begin({0: State.STRANDED})
    page = await visit.open("/map/")
    await wait_painted(page)
    await visit.fleet.add_agents({203: State.WORKING}, homes=range(4))
    await wait_cells(page, State.WORKING, 1)
    await expect(page.locator("#map-total")).to_have_text("204")
    assert await page.evaluate(CELLS) == [State.STRANDED] + [State.HEALTHY] * 202 + [State.WORKING]


async def test_table_has_the_numbers_of_the_blocks(visiting: Visiting) -> None:
    """Name and state of each."""
    visit = await visiting(proxies=2, agents_per_proxy=8)
    await visit.fleet.begin({0: State.STRANDED})
    await visit.fleet.silence(0)
    page = await visit.open("/map/?view=table")
    await wait_painted(page)
    row = page.locator("#table-body tr").first
    await expect(row).to_contain_text("proxy-1")
    await expect(row).to_contain_text("not responding")


async def test_a_hundred_thousand_agents(visiting: Visiting) -> None:
    """An overview fits the screen; zoom leads to a cell for each; a change of 1 % arrives."""
    visit = await visiting(proxies=200, agents_per_proxy=500)
    await visit.fleet.begin()
    page = await visit.open("/map/")
    await wait_painted(page)
    await expect(page.locator("#per-cell")).to_contain_text("1 cell = ")
    frame = page.locator("#map-frame")
    assert await frame.evaluate("(frame) => frame.scrollHeight <= frame.clientHeight")
    await visit.fleet.change(dict.fromkeys(range(0, 100000, 100), State.STRANDED))
    await wait_cells(page, State.STRANDED, 1_000)
    await page.focus("#map")
    await page.keyboard.press("n")
    await page.keyboard.press("Enter")
    await expect(page.locator("#per-cell")).to_be_hidden()
