"""The replay below the map: its pure parts, and the slider that shows the past, in Chromium."""

from __future__ import annotations

import time
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from fleet.vocabulary.verdicts import State
from tests.browser import past_scene
from tests.browser.conftest import Visiting, Visitor
from tests.browser.map_page import read_blocks, wait_cells, wait_painted

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
#: 2023-11-14T22:13:20Z.
NOW = 1_700_000_000_000


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page(visitor: Visitor) -> Any:
    """A page from which modules are imported."""
    visit = await visitor.begin()
    yield await visit.open("/agents/")
    await visit.end()


async def call(page: Page, body: str, argument: Any = None) -> Any:
    """Return the result of a function body, in which `m` is the module of the range and `a` the argument."""
    return await page.evaluate(
        f"async (a) => {{ const m = await import('/static/dashboards/js/replay-range.js'); {body} }}",
        argument,
    )


async def test_range_ends_now_or_has_the_moment_in_its_middle(page: Page) -> None:
    """The moment is always in its range."""
    ranges = await call(page, "return a.map((at) => m.rangeAround(...at));", [
        [NOW, "day", NOW],
        [NOW - HOUR, "hour", NOW],
        [NOW - 10 * DAY, "week", NOW],
    ])  # fmt: skip
    assert ranges[0] == {"start": NOW - DAY, "end": NOW}
    assert ranges[1] == {"start": NOW - HOUR, "end": NOW}
    assert ranges[2] == {"start": NOW - 13.5 * DAY, "end": NOW - 6.5 * DAY}


async def test_keys_move_by_minutes_and_stop_at_the_present(page: Page) -> None:
    """Keys that do not move the slider are left to the browser."""
    times = await call(
        page,
        "return a.keys.map((key) => m.moveByKey(key, a.at, a.range, a.now));",
        {
            "keys": ["ArrowLeft", "ArrowRight", "PageDown", "PageUp", "Home", "End", "Tab"],
            "at": NOW - 5 * MINUTE,
            "range": {"start": NOW - HOUR, "end": NOW},
            "now": NOW,
        },
    )
    assert times == [
        NOW - 6 * MINUTE, NOW - 4 * MINUTE, NOW - 15 * MINUTE, NOW, NOW - HOUR, NOW, None,
    ]  # fmt: skip


async def test_markers_that_would_overlap_are_one_group(page: Page) -> None:
    """Markers that began before the range are at its start."""
    groups = await call(
        page,
        "return m.groupMarkers(a.starts.map((start) => ({ start })), a.range, 0.1);",
        {"starts": [-50, 0, 5, 50, 59, 61], "range": {"start": 0, "end": 100}},
    )
    assert [(group["share"], len(group["markers"])) for group in groups] == [(0, 3), (0.5, 2), (0.61, 1)]


async def test_times_as_text(page: Page) -> None:
    """UTC; one time without a length, and no end while something lasts."""
    texts = await call(
        page,
        "return [m.formatUtc(a), m.formatMoment(a), m.formatSpan({ start: a, end: a }),"
        " m.formatSpan({ start: a, end: null })];",
        NOW,
    )
    assert texts == [
        "2023-11-14 22:13:20 UTC",
        "2023-11-14T22:13:20.000Z",
        "2023-11-14 22:13:20 UTC",
        "2023-11-14 22:13:20 UTC to now",
    ]


async def test_slider_leaves_the_present_and_comes_back(visiting: Visiting) -> None:
    """By keyboard: state, places, headline and address are of the moment; nothing can be done from it."""
    visit = await visiting()
    await visit.fleet.begin({0: State.STRANDED})
    now = time.time()
    await visit.rows(
        past_scene.write, visit.console.writer(), visit.cluster, now - 600, range(1, 13), [60, 61], now + 900
    )
    incident = await visit.rows(past_scene.add_incident, visit.cluster, now - 500, now - 300)
    page = await visit.open("/map/")
    await wait_painted(page)
    await wait_cells(page, State.STRANDED, 1)
    assert len((await read_blocks(page))["proxy-4"]) == 50
    slider = page.locator("#replay-slider")
    await expect(page.locator("#past-banner")).to_be_hidden()
    await expect(slider).to_have_attribute("aria-valuetext", "Now")
    mark = page.locator("a.replay-mark")
    await expect(mark).to_have_attribute("href", f"{visit.prefix}/incidents/{incident}/")
    assert (await mark.get_attribute("title") or "").startswith(
        f"Incident {incident}: proxy-1 is not responding, "
    )

    await slider.focus()
    await page.keyboard.press("ArrowLeft")
    await wait_cells(page, State.STRANDED, 13)
    assert len((await read_blocks(page))["proxy-4"]) == 52
    await expect(page.locator("#past-banner")).to_contain_text("This is the past: ")
    await expect(page.locator("#headline-text")).to_contain_text("13")
    await expect(page.locator("#headline-age")).to_be_empty()
    await expect(page.locator('[data-count="stranded"]')).to_have_text("13")
    await expect(slider).to_be_focused()
    await expect(page.locator("#pause")).to_be_hidden()
    assert "?at=" in page.url
    # Nothing of the present arrives any more, and a moment that was not recorded changes nothing.
    visit.expected.append("status of 400")
    await visit.fleet.change(dict.fromkeys(range(100, 200), State.STRANDED))
    await page.keyboard.press("PageDown")
    await expect(page.locator("#replay-error")).to_contain_text("the history begins at")
    await page.focus("#map")
    await page.keyboard.press("Control+a")
    await expect(page.locator('[data-action="list"]')).to_be_visible()
    await expect(page.locator('[data-action="reconnect"]')).to_be_hidden()
    assert "at=" in (await page.locator("#list").get_attribute("href") or "")
    await wait_cells(page, State.STRANDED, 13)

    address = page.url
    await page.reload()
    await wait_cells(page, State.STRANDED, 13)
    assert page.url == address
    await expect(page.locator('[data-action="reconnect"]')).to_have_count(0)
    await page.click("#past-back")
    await wait_cells(page, State.STRANDED, 101)
    assert "at=" not in page.url


async def test_playback_steps_by_itself_until_it_is_paused(visiting: Visiting) -> None:
    """With reduced motion, one step per press."""
    visit = await visiting(reduced_motion="reduce")
    await visit.fleet.begin()
    now = time.time()
    await visit.rows(past_scene.write, visit.console.writer(), visit.cluster, now - 3_000, [1], [], now + 900)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - 1_800))
    page = await visit.open(f"/map/?at={at}")
    await wait_cells(page, State.STRANDED, 1)
    text = page.locator("#replay-time")
    await expect(text).to_have_text(f"{at[:10]} {at[11:19]} UTC")
    await expect(page.locator("#replay-play")).to_have_text("Next step")
    await page.click("#replay-play")
    later = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now - 1_740))
    await expect(text).to_have_text(later)
    await expect(page.locator("#past-title")).to_have_text(f"This is the past: {later}.")
    await page.emulate_media(reduced_motion="no-preference")
    await expect(page.locator("#replay-play")).to_have_text("Play")
    await page.click("#replay-play")
    await expect(page.locator("#replay-play")).to_have_text("Pause replay")
    await expect(text).to_have_text(time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now - 1_560)))
    await page.click("#replay-play")
    await expect(page.locator("#replay-play")).to_have_text("Play")
