"""The map: one cell per agent that keeps its place, coloured by its state, seen in Chromium."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from dashboards.fleet import figures
from fleet.vocabulary.verdicts import State
from tests.browser.conftest import Visiting
from tests.browser.link import FaultyLink
from tests.browser.visits import DEADLINE_MS
from tests.fakes.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: z of every agent in reading order, as plotly holds it.
CELLS = """() => (document.getElementById("plot")?.data?.[0].z ?? [])
  .flatMap((row) => [...row]).filter((z) => !Number.isNaN(z))"""
#: How many pixels of the drawn heatmap, one per cell, have this colour.
PIXELS = """async (colour) => {
  const image = new Image();
  const drawn = document.querySelector("#plot image");
  if (drawn === null) return -1;
  image.src = drawn.href.baseVal;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  let found = 0;
  for (let at = 0; at < data.length; at += 4) found += data[at] === r && data[at + 1] === g && data[at + 2] === b;
  return found;
}"""


#: Between two looks at the cells: reading 100,000 of them in every frame would keep the page from drawing.
POLL_MS = 100


async def wait_drawn(page: Page) -> None:
    """Wait until the cells are there."""
    await page.wait_for_function(f"() => ({CELLS})().length > 0", polling=POLL_MS)


async def wait_cells(page: Page, z: int, count: int) -> None:
    """Wait until exactly `count` cells have this z."""
    await page.wait_for_function(
        f"([z, count]) => ({CELLS})().filter((cell) => cell === z).length === count",
        arg=[z, count],
        polling=POLL_MS,
    )


async def wait_pixels(page: Page, colour: str, count: int) -> None:
    """Wait until exactly `count` cells are drawn in this colour: the picture follows what plotly holds."""

    async def is_painted() -> bool:
        return bool(await page.evaluate(PIXELS, colour) == count)

    await eventually(is_painted, seconds=DEADLINE_MS / 1000)


async def test_cells_change_on_a_delta(visiting: Visiting) -> None:
    """A proxy's block turns red and back, and its title counts the stranded."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/map/")
    await wait_cells(page, State.HEALTHY, 200)
    await visit.fleet.change(dict.fromkeys(visit.fleet.block(0), State.STRANDED))
    await wait_cells(page, State.STRANDED, 50)
    await expect(page.locator(".block-title").first).to_contain_text("proxy-1")
    await expect(page.locator(".block-title .block-bad").first).to_have_text("50")
    await visit.fleet.change(dict.fromkeys(visit.fleet.block(0), State.HEALTHY))
    await wait_cells(page, State.STRANDED, 0)
    await expect(page.locator(".block-title .block-bad").first).to_be_hidden()


async def test_an_agent_keeps_its_cell(visiting: Visiting) -> None:
    """A change of state changes one cell, and its neighbours stay as they are."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/map/")
    await wait_drawn(page)
    await visit.fleet.change({0: State.OFFLINE})
    await wait_cells(page, State.OFFLINE, 1)
    cells = await page.evaluate(CELLS)
    assert cells[0] == State.OFFLINE
    assert cells[1:] == [State.HEALTHY] * 199


@pytest.mark.parametrize(("scheme", "theme"), [("light", 0), ("dark", 1)])
async def test_pixels_have_the_colours_of_the_theme(visiting: Visiting, scheme: str, theme: int) -> None:
    """Stranded cells are drawn in that state's colour, light and dark."""
    visit = await visiting(color_scheme=scheme)
    await visit.fleet.begin()
    page = await visit.open("/map/")
    await wait_drawn(page)
    red = figures.cell_colour_of(State.STRANDED, theme)
    await wait_pixels(page, red, 0)
    await visit.fleet.change({3: State.STRANDED})
    await wait_cells(page, State.STRANDED, 1)
    await wait_pixels(page, red, 1)
    await wait_pixels(page, figures.cell_colour_of(State.HEALTHY, theme), 199)


async def test_theme_button_redraws_in_its_colours(visiting: Visiting) -> None:
    """The choice holds over a reload."""
    visit = await visiting(color_scheme="light")
    await visit.fleet.begin()
    page = await visit.open("/map/")
    await wait_drawn(page)
    await page.click("#theme")
    await page.click("#theme")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await page.reload()
    await wait_drawn(page)
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await wait_pixels(page, figures.cell_colour_of(State.HEALTHY, 1), 200)


async def test_legend_filters(visiting: Visiting) -> None:
    """A chosen verdict keeps its colour, the others fade, and the table link and the address carry the choice."""
    visit = await visiting()
    await visit.fleet.begin({0: State.STRANDED, 1: State.AT_RISK})
    page = await visit.open("/map/")
    await wait_drawn(page)
    await page.click('.chip[data-state="stranded"]')
    await wait_cells(page, State.HEALTHY + 10, 198)
    await wait_cells(page, State.AT_RISK + len(State), 1)
    await wait_cells(page, State.STRANDED, 1)
    await expect(page.locator("#as-table")).to_have_attribute(
        "href", f"{visit.prefix}/agents/?state=stranded"
    )
    assert page.url == f"{visit.url}/map/?state=stranded"
    await page.click("#show-all")
    await wait_cells(page, State.HEALTHY, 198)


async def test_keyboard_reads_the_map(visiting: Visiting) -> None:
    """Arrows move a cursor that is announced, n finds the sick, Enter opens the agent, Escape goes back."""
    visit = await visiting()
    await visit.fleet.begin({index: State.HEALTHY for index in visit.fleet.block(2) if index != 120})
    await visit.fleet.silence(2)
    page = await visit.open("/map/")
    await wait_drawn(page)
    await page.focus("#map")
    announcement = page.locator("#live-region")
    await page.keyboard.press("ArrowRight")
    await expect(announcement).to_have_text("agent-1, healthy, home proxy: proxy-1")
    await page.keyboard.press("ArrowRight")
    await expect(announcement).to_have_text("agent-2, healthy, home proxy: proxy-1")
    await page.keyboard.press("n")
    await expect(announcement).to_have_text("agent-121, stranded, home proxy: proxy-3")
    await page.keyboard.press("Enter")
    await expect(page.locator("#panel")).to_contain_text(
        "The agent has no live tunnel: proxy-3 is not responding."
    )
    await page.keyboard.press("Escape")
    await expect(page.locator("#panel")).to_be_hidden()
    await page.keyboard.press("Enter")
    await expect(page.locator("#panel")).to_be_visible()
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(f"{visit.url}/agents/agent-121-id/")


async def test_pointer_tells_and_opens(visiting: Visiting) -> None:
    """The tip names the agent and its state, then the reason; a click opens the panel, which follows the agent."""
    visit = await visiting()
    await visit.fleet.begin({index: State.HEALTHY for index in visit.fleet.block(0) if index != 0})
    await visit.fleet.silence(0)
    page = await visit.open("/map/")
    await wait_drawn(page)
    box = await page.locator("#plot image").bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + 10, box["y"] + 46)
    await expect(page.locator("#tip")).to_contain_text("agent-1")
    await expect(page.locator("#tip")).to_contain_text("proxy-1 is not responding")
    await page.mouse.click(box["x"] + 10, box["y"] + 46)
    await expect(page.locator("#panel")).to_contain_text("stranded")
    await visit.fleet.change({0: State.HEALTHY})
    await expect(page.locator("#panel .agent-verdict")).to_contain_text("healthy")


async def test_pause_stops_the_picture_only(visiting: Visiting) -> None:
    """While paused cells stand still; going on shows everything that came meanwhile."""
    visit = await visiting()
    await visit.fleet.begin()
    page, link = await visit.new_page(), FaultyLink()
    await link.attach(page)
    await page.goto(f"{visit.url}/map/", wait_until="commit")
    await wait_cells(page, State.HEALTHY, 200)
    await expect(page.locator("#pause")).to_have_text("Pause updates")
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
    await wait_drawn(page)
    await visit.fleet.go_stale()
    await wait_cells(page, State.UNKNOWN, 199)
    await expect(page.locator("#banner")).to_contain_text("old")
    await visit.fleet.recover()
    await wait_cells(page, State.HEALTHY, 199)


async def test_new_agents_get_cells(visiting: Visiting) -> None:
    """A new layout is fetched when the server says so; those who were there keep their order."""
    visit = await visiting()
    await visit.fleet.begin({0: State.STRANDED})
    page = await visit.open("/map/")
    await wait_drawn(page)
    # One in each block, so that the last cell of all is the last of them.
    await visit.fleet.add_agents({203: State.WORKING}, homes=range(4))
    await wait_cells(page, State.WORKING, 1)
    await expect(page.locator("#map-total")).to_have_text("204")
    assert await page.evaluate(CELLS) == [State.STRANDED] + [State.HEALTHY] * 202 + [State.WORKING]


async def test_a_hundred_thousand_agents_stay_usable(visiting: Visiting) -> None:
    """The map draws them, and a change of 1 % is on the screen soon after it came."""
    visit = await visiting(proxies=200, agents_per_proxy=500)
    await visit.fleet.begin()
    page = await visit.open("/map/")
    await wait_drawn(page)
    await visit.fleet.change(dict.fromkeys(range(0, 100000, 100), State.STRANDED))
    await wait_cells(page, State.STRANDED, 1_000)
