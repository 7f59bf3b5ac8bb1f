"""What a test reads from the map: its cells as they are painted, by way of what the page keeps of them."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Page

from tests.browser.visits import DEADLINE_MS
from tests.fakes.waiting import eventually

#: Time between two reads: reading 100,000 cells in every frame would keep the page from drawing.
POLL_MS = 100
#: The scene of the page, and its agents in the order in which the map shows them, as state numbers; faded: + 100.
CELLS = """async () => {
  const script = document.querySelector('script[src*="/js/map"]');
  if (script === null) return [];
  const { scene } = await import(script.src);
  return [...scene.inOrder()].map((agent) => scene.model.states[agent] + (scene.isFaded(agent) ? 100 : 0));
}"""
#: Number of pixels of the canvas that have a colour.
PIXELS = """(colour) => {
  const canvas = document.getElementById("cells");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  let found = 0;
  for (let at = 0; at < data.length; at += 4) {
    found += data[at] === red && data[at + 1] === green && data[at + 2] === blue;
  }
  return found;
}"""
#: The middle of an agent's cell in the window.
CENTRE = """async (agent) => {
  const { scene } = await import(document.querySelector('script[src*="/js/map"]').src);
  const { rectOf } = await import("/static/dashboards/js/map-layout.js");
  const { number, cell } = scene.cellOf(agent);
  const { x, y, w, h } = rectOf(scene.layout, number, cell);
  const box = document.getElementById("map").getBoundingClientRect();
  return [box.left + x + w / 2, box.top + y + h / 2];
}"""
#: The agents of every block, by its name.
BLOCKS = """async () => {
  const { scene } = await import(document.querySelector('script[src*="/js/map"]').src);
  return Object.fromEntries(scene.blocks.map(({ name, slots }) => [name, slots.filter((agent) => agent >= 0)]));
}"""


async def wait_painted(page: Page) -> None:
    """Wait until the cells were painted for the first time."""
    await page.wait_for_function("""() => performance.getEntriesByName("map-painted").length > 0""")


async def read_cells(page: Page) -> list[int]:
    """Return the states of the cells in order; faded cells are the state + 100. Empty before the map is there."""
    cells: list[int] = await page.evaluate(CELLS)
    return cells


async def wait_cells(page: Page, state: int, count: int) -> None:
    """Wait until exactly `count` cells show this state; faded cells are the state + 100."""

    # wait_for_function takes the promise of an asynchronous function for true.
    async def has_cells() -> bool:
        return (await read_cells(page)).count(state) == count

    await eventually(has_cells, seconds=DEADLINE_MS / 1000)


async def wait_pixels(page: Page, colour: str, least: int, most: int = 10**9) -> None:
    """Wait until at least `least` and at most `most` pixels of the canvas have this colour."""
    await page.wait_for_function(
        f"([colour, least, most]) => {{ const found = ({PIXELS})(colour); return found >= least && found <= most; }}",
        arg=[colour, least, most],
        polling=POLL_MS,
    )


async def find_centre(page: Page, agent: int) -> tuple[float, float]:
    """Return the middle of an agent's cell in the window, px."""
    x, y = await page.evaluate(CENTRE, agent)
    return x, y


async def read_blocks(page: Page) -> dict[str, list[int]]:
    """Return the agents of every block by its name, in order."""
    blocks: dict[str, Any] = await page.evaluate(BLOCKS)
    return blocks
