"""The History page in Chromium: chart, heat strips and comparison, by mouse, by keyboard, and accessible."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from fleet.vocabulary.verdicts import State
from tests.browser import history_scene, past_scene
from tests.browser.axe import accessible
from tests.browser.conftest import Visiting, Visitor
from tests.browser.visits import Visit

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

DAY_MS = 86_400_000
#: 2023-11-15T00:00:00Z.
START_MS = 1_700_006_400_000
#: Moves the chart far below the window.
_PUSH_DOWN = "document.querySelector('main').style.paddingTop = '4000px'"


async def _open(visiting: Visiting, path: str = "/history/", **options: Any) -> tuple[Visit, Page, float]:
    """Return a page over a day with a fault of proxy-2, and the end of the day."""
    visit = await visiting(color_scheme="light", **options)
    await visit.fleet.begin({0: State.STRANDED})
    end = time.time() // 60 * 60
    await visit.rows(history_scene.write, visit.cluster, end)
    await visit.rows(past_scene.write, visit.console.writer(), visit.cluster, end - 80_000, range(1, 13))
    return visit, await visit.open(path), end


def _moment_of(url: str) -> float:
    """Return `?at=` of an address, seconds since the epoch."""
    return datetime.fromisoformat(parse_qs(urlsplit(url).query)["at"][0]).timestamp()


async def _wait_chart(page: Page) -> None:
    await expect(page.locator("#history-plot")).to_have_attribute("data-drawn", re.compile("light|dark"))


async def test_page_is_accessible(visiting: Visiting) -> None:
    """Light and dark, and no wider than a phone; with open tables, drawn by plotly."""
    _visit, page, _end = await _open(visiting)
    await _wait_chart(page)
    for summary in await page.get_by_text("View as table").all():
        await summary.click()
    await expect(page.locator("#strip-proxy-table")).to_be_visible()
    await accessible(page)


async def test_plotly_is_loaded_when_the_chart_comes_into_view(visiting: Visiting) -> None:
    """Until then, the drawing of the server shows the same."""
    visit = await visiting(color_scheme="light")
    await visit.fleet.begin()
    await visit.rows(history_scene.write, visit.cluster, time.time() // 60 * 60)
    page = await visit.new_page()
    await page.add_init_script(
        f"document.addEventListener('readystatechange', () => {{ {_PUSH_DOWN} }}, {{ once: true }})"
    )
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    await page.goto(f"{visit.url}/history/", wait_until="load")
    await expect(page.locator(".strip-live").first).to_be_attached()
    assert await page.locator(".chart-areas polygon").count() == 2
    assert not [url for url in requests if "plotly.min" in url]
    await page.locator("#history-plot").scroll_into_view_if_needed()
    await _wait_chart(page)
    assert len([url for url in requests if "plotly.min" in url]) == 1
    # The areas of stranded and of at-risk agents, as in the drawing of the server.
    await expect(page.locator("#history-plot .js-fill")).to_have_count(2)


async def test_chart_follows_the_theme(visiting: Visiting) -> None:
    """Colours are those of the theme."""
    _visit, page, _end = await _open(visiting)
    await _wait_chart(page)
    await page.emulate_media(color_scheme="dark")
    await expect(page.locator("#history-plot")).to_have_attribute("data-drawn", "dark")


async def test_drag_zooms_and_click_opens_the_map(visiting: Visiting) -> None:
    """The range is in the address; Zoom out leads back; a click shows the worst moment of its column."""
    _visit, page, end = await _open(visiting)
    await _wait_chart(page)
    box = await page.locator("#history-plot").bounding_box()
    assert box is not None
    width, middle = box["width"], box["y"] + 90
    await page.mouse.move(box["x"] + 0.80 * width, middle)
    await expect(page.locator("#chart-tip")).to_contain_text("0 stranded")
    await page.mouse.down()
    await page.mouse.move(box["x"] + 0.95 * width, middle, steps=5)
    await page.mouse.up()
    await page.wait_for_url(re.compile(r"since=.*&until="))
    query = parse_qs(urlsplit(page.url).query)
    since, until = (datetime.fromisoformat(query[name][0]).timestamp() for name in ("since", "until"))
    assert abs(since - (end - 0.2 * 86_400)) < 600
    assert abs(until - (end - 0.05 * 86_400)) < 600
    await expect(page.get_by_role("link", name="Zoom out")).to_be_visible()

    await _wait_chart(page)
    box = await page.locator("#history-plot").bounding_box()
    assert box is not None
    fault_at = end - 130 * 60
    share = (fault_at - since) / (until - since)
    await page.mouse.click(box["x"] + share * box["width"], middle)
    await page.wait_for_url(re.compile(r"/map/\?at="))
    assert abs(_moment_of(page.url) - fault_at) < 600


async def test_cell_leads_to_the_map_of_its_proxy(visiting: Visiting) -> None:
    """The tip says what a cell shows; a click opens the map at that moment, filtered by the proxy."""
    visit, page, end = await _open(visiting)
    await expect(page.locator(".strip-live").first).to_be_attached()
    box = await page.locator("#strip-proxy .strip-plot").bounding_box()
    assert box is not None
    rows = await page.locator("#strip-proxy .strip-names span").all_inner_texts()
    assert rows == sorted(rows)
    row = rows.index("proxy-2")

    async def point_at(age_minutes: float) -> tuple[float, float]:
        at = end - 60 * age_minutes
        data = await page.evaluate("JSON.parse(document.getElementById('history-json').textContent)")
        share = (at * 1000 - data["since"]) / (data["until"] - data["since"])
        return box["x"] + share * box["width"], box["y"] + (row + 0.5) * box["height"] / len(rows)

    await page.mouse.move(*await point_at(415))
    await expect(page.locator("#chart-tip")).to_contain_text("no data")
    await page.mouse.click(*await point_at(415))
    await expect(page.locator("#live-region")).to_contain_text("No data was recorded")
    await page.mouse.move(*await point_at(130))
    for text in ("proxy-2", "67 agents stranded", "not responding"):
        await expect(page.locator("#chart-tip")).to_contain_text(text)
    await page.mouse.click(*await point_at(130))
    await page.wait_for_url(re.compile(r"/map/\?at=.*&q=proxy%3Aproxy-2"))
    assert abs(_moment_of(page.url) - (end - 130 * 60)) <= 330
    await expect(page.locator("#past-banner")).to_contain_text("This is the past")
    assert visit.errors == []


async def test_strip_by_keyboard(visiting: Visiting) -> None:
    """Arrows move a cursor that is read out, Enter opens the map."""
    _visit, page, end = await _open(visiting)
    await expect(page.locator(".strip-live").first).to_be_attached()
    await page.locator("#strip-proxy").focus()
    await page.keyboard.press("ArrowDown")
    await expect(page.locator("#strip-proxy .strip-cursor")).to_be_visible()
    await expect(page.locator("#live-region")).to_contain_text("proxy-2, ")
    for _ in range(27):
        await page.keyboard.press("ArrowLeft")
    await expect(page.locator("#live-region")).to_contain_text("67 agents stranded, not responding")
    await page.keyboard.press("Enter")
    await page.wait_for_url(re.compile(r"/map/\?at=.*&q=proxy%3Aproxy-2"))
    assert end - 10_000 < _moment_of(page.url) < end - 5_000


async def test_hundred_proxies_scroll(visiting: Visiting) -> None:
    """In a frame with the time axis in view; the keyboard scrolls to its cursor."""
    visit = await visiting(color_scheme="light")
    await visit.fleet.begin()
    end = time.time() // 60 * 60
    await visit.rows(history_scene.write, visit.cluster, end)
    await visit.rows(history_scene.add_proxies, visit.cluster, 100)
    page = await visit.open("/history/")
    frame = page.locator("#strip-proxy")
    await expect(page.locator("#strip-proxy .strip-live")).to_be_attached()
    assert await frame.evaluate("(frame) => frame.scrollHeight > 2 * frame.clientHeight")
    names = await page.locator("#strip-proxy .strip-names span").all_inner_texts()
    assert names[-2:] == ["proxy-99", "proxy-100"]
    await frame.focus()
    for _ in range(10):
        await page.keyboard.press("PageDown")
    await expect(page.locator("#live-region")).to_contain_text("proxy-100, ")
    assert await frame.evaluate("(frame) => frame.scrollTop > 500")
    await expect(page.locator("#strip-proxy .strip-axis")).to_be_in_viewport()


async def test_moments_are_compared(visiting: Visiting) -> None:
    """From the range with its worst moment, or with any; accessible, and agents lead to their page then."""
    visit, page, _end = await _open(visiting)
    await page.get_by_role("link", name="Compare moments").click()
    await page.wait_for_url(re.compile(r"/history/compare/\?peak_of="))
    await expect(page.get_by_role("heading", name="Agents that differ")).to_be_visible()
    link = page.get_by_role("link", name=re.compile("at A: stranded")).first
    await expect(link).to_have_attribute("href", re.compile(rf"^{visit.prefix}/agents/[^/]+/\?at="))
    await accessible(page)
    await page.get_by_role("link", name=re.compile("^State ")).click()
    await page.wait_for_url(re.compile("show=state"))
    await expect(page.locator("#compare-agents tbody th")).to_have_count(12)
    visit.expected.append("status of 400")
    await page.get_by_label("Moment A").fill("2020-01-01")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert").filter(has_text="Moment A")).to_contain_text(
        "the history begins at"
    )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def module_page(visitor: Visitor) -> Any:
    """A page from which modules are imported."""
    visit = await visitor.begin()
    yield await visit.open("/agents/")
    await visit.end()


async def _call(page: Page, module: str, body: str, argument: Any = None) -> Any:
    """Return the result of a function body, in which `m` is the module and `a` the argument."""
    return await page.evaluate(
        f"async (a) => {{ const m = await import('/static/dashboards/js/{module}.js'); {body} }}", argument
    )


async def test_zoom_stays_in_the_range(module_page: Page) -> None:
    """Whatever the direction; a short drag is at least as long as the shortest range; never in the future."""
    span = {"since": START_MS, "until": START_MS + DAY_MS, "now": START_MS + DAY_MS, "shortest": 300_000}
    queries = await _call(
        module_page,
        "history-times",
        "return a.drags.map((drag) => m.zoomQuery(drag, a.span));",
        {
            "span": span,
            "drags": [
                [START_MS + 3_600_000, START_MS - 5],
                [START_MS + 1_000_000, START_MS + 1_000_010],
                [START_MS + DAY_MS - 10, START_MS + DAY_MS + 10],
            ],
        },
    )
    assert queries == [
        "?since=2023-11-15T00:00:00.000Z&until=2023-11-15T01:00:00.000Z",
        "?since=2023-11-15T00:14:10.005Z&until=2023-11-15T00:19:10.005Z",
        "?since=2023-11-15T23:55:00.000Z&until=2023-11-16T00:00:00.000Z",
    ]


async def test_points_of_areas_and_words_of_times(module_page: Page) -> None:
    """An area goes up from 0 and back to it; what has no data has no point for the mouse."""
    span = {"since": 0, "until": 45, "step": 10}
    points = await _call(
        module_page,
        "history-times",
        "return [m.stepPoints(a.counts, a.span), m.bucketPoints(a.counts, a.span)];",
        {"span": span, "counts": [0, 3, None, 4, 5]},
    )
    assert points == [
        {"x": [10, 10, 20, 20, 20, 30, 30, 40, 40, 45], "y": [0, 3, 3, 0, None, 0, 4, 4, 5, 5]},
        {"x": [5, 15, 35, 45], "buckets": [0, 1, 3, 4]},
    ]
    texts = await _call(
        module_page,
        "history-times",
        "return [m.formatBucket(1, a), m.formatBucket(1, { ...a, until: a.until + 1 }),"
        " m.mapAddress('/c/eu', a.since, 'proxy:p 1'), m.peakAddress('/c/eu', a.since)];",
        {"since": START_MS, "until": START_MS + DAY_MS, "step": 300_000},
    )
    assert texts == [
        "00:05 to 00:10 UTC",
        "Nov 15 00:05 to Nov 15 00:10 UTC",
        "/c/eu/map/?at=2023-11-15T00:00:00.000Z&q=proxy%3Ap%201",
        "/c/eu/map/?peak_of=2023-11-15T00:00:00.000Z",
    ]


async def test_words_and_moments_of_cells(module_page: Page) -> None:
    """A cell without stranded agents leads to its end, one without data nowhere."""
    cells = await _call(
        module_page,
        "strip-cells",
        """const cells = m.indexCells([[[1, 4, 30]]], a.range);
        return [0, 1, 2].map((bucket) => [
          m.momentOf(cells[0].get(bucket), bucket, a.hasData, a.range),
          ...m.describeCell({ name: "p", cell: cells[0].get(bucket), spans: a.spans, bucket, hasData: a.hasData,
            range: a.range }),
        ]);""",
        {
            "range": {
                "since": START_MS,
                "until": START_MS + 150_000,
                "step": 60_000,
                "now": START_MS + 140_000,
            },
            "hasData": [False, True, True],
            "spans": [[START_MS / 1000 + 70, START_MS / 1000 + 80, "draining"]],
        },
    )
    assert cells == [
        [None, "p", "00:00 to 00:01 UTC", "no data"],
        [START_MS + 90_000, "p", "00:01 to 00:02 UTC", "4 agents stranded", "draining"],
        [START_MS + 140_000, "p", "00:02 to 00:02 UTC", "no agent stranded"],
    ]


async def test_keys_stay_in_the_strip(module_page: Page) -> None:
    """Other keys are left to the browser."""
    cursors = await _call(
        module_page,
        "strip-cells",
        "return a.map((key) => m.moveCursor(key, { row: 1, bucket: 2 }, { rows: 3, buckets: 4 }));",
        ["ArrowLeft", "ArrowUp", "PageDown", "Home", "End", "Tab"],
    )
    assert cursors == [
        {"row": 1, "bucket": 1},
        {"row": 0, "bucket": 2},
        {"row": 2, "bucket": 2},
        {"row": 1, "bucket": 0},
        {"row": 1, "bucket": 3},
        None,
    ]
