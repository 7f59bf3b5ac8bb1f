"""Chromium with the map of a fleet of a given size: what was transferred, and when cells were painted."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from fleet.vocabulary.verdicts import State
from tests.bench.measure import Figure, percentile
from tests.browser.chromium import ARGUMENTS, LAUNCH_MS, executable
from tests.fakes.live_fleet import AUTHS, LiveFleet
from tests.flow.web import PASSWORD, USERNAME, Console

#: Share of the agents that change in a round, and seconds between rounds.
_CHANGED_SHARE = 0.01
_ROUND_INTERVAL = 1.0
_SEED = 7
_WAIT_MS = 120_000
#: Collects the durations of frames, ms.
_FRAMES = """
window.frames_ms = [];
let last = performance.now();
const frame = (now) => { window.frames_ms.push(now - last); last = now; requestAnimationFrame(frame); };
requestAnimationFrame(frame);
"""
_PAINTED = """() => performance.getEntriesByName("map-painted").length > 0"""
#: Time of a mark after the document was requested, ms.
_MARK = """(name) => performance.getEntriesByName(name)[0].startTime"""


@dataclass
class MapBench:
    """A browser, and the console whose map it shows."""

    browser: Browser
    console: Console

    async def create_fleet(self, cluster: str, agents: int, proxies: int) -> LiveFleet:
        """Return a fleet whose agents are spread at random over proxies and auths, before its first round."""
        await asyncio.to_thread(self.console.add_cluster, cluster)
        fleet = LiveFleet(
            self.console.writer(),
            self.console.layer(),
            cluster,
            proxies=proxies,
            agents_per_proxy=agents // proxies,
        )
        chance = random.Random(_SEED)
        chance.shuffle(fleet.homes)
        fleet.auths = [chance.randrange(AUTHS) for _ in fleet.homes]
        return fleet


@asynccontextmanager
async def open_browser(console: Console) -> AsyncIterator[MapBench]:
    """Start Chromium."""
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=executable(), args=ARGUMENTS, timeout=LAUNCH_MS
        )
        try:
            yield MapBench(browser, console)
        finally:
            await browser.close()


class _Traffic:
    """Bytes that a page transferred, as its network panel counts them: compressed, with headers."""

    def __init__(self) -> None:
        self.all_bytes = 0
        self.data_bytes = 0
        self._data_requests: set[str] = set()

    async def watch(self, page: Page) -> None:
        """Count the bytes of a page from now on."""
        session = await page.context.new_cdp_session(page)
        await session.send("Network.enable")
        session.on("Network.requestWillBeSent", self._note_request)
        session.on("Network.loadingFinished", self._count_response)
        session.on("Network.webSocketFrameReceived", self._count_frame)

    def _note_request(self, event: dict[str, Any]) -> None:
        if ".json" in event["request"]["url"]:
            self._data_requests.add(event["requestId"])

    def _count_response(self, event: dict[str, Any]) -> None:
        self.all_bytes += event["encodedDataLength"]
        if event["requestId"] in self._data_requests:
            self.data_bytes += event["encodedDataLength"]

    def _count_frame(self, event: dict[str, Any]) -> None:
        payload = event["response"]["payloadData"]
        # Binary frames come in base64.
        size = len(payload) if event["response"]["opcode"] == 1 else len(payload) * 3 // 4
        self.all_bytes += size
        self.data_bytes += size


async def measure_load(bench: MapBench, agents: int, proxies: int, *, repeats: int) -> dict[str, Figure]:
    """Measure the page after sign-in, with an empty cache and again with what the first visit left in it."""
    fleet = await bench.create_fleet("load", agents, proxies)
    await fleet.begin()
    cold, warm = [], []
    for _ in range(repeats):
        context = await bench.browser.new_context(viewport={"width": 1400, "height": 900})
        cold.append(await _measure_sign_in(bench, context, f"/c/{fleet.cluster}/map/"))
        warm.append(await _measure_visit(context, f"{bench.console.url}/c/{fleet.cluster}/map/"))
        await context.close()

    def middle(rows: list[dict[str, float]], name: str) -> float:
        return round(statistics.median(row[name] for row in rows), 1)

    return {
        "agents": agents,
        **{f"cold_{name}": middle(cold, name) for name in ("painted_ms", "kb", "data_kb")},
        **{f"warm_{name}": middle(warm, name) for name in ("painted_ms", "kb", "data_kb")},
    }


async def _measure_sign_in(bench: MapBench, context: BrowserContext, path: str) -> dict[str, float]:
    """Sign in and follow the redirect to the map: bytes of everything after the form was sent."""
    page = await context.new_page()
    await page.goto(f"{bench.console.url}/accounts/login/?next={path}")
    await page.fill("[name=login]", USERNAME)
    await page.fill("[name=password]", PASSWORD)
    traffic = _Traffic()
    await traffic.watch(page)
    await page.press("[name=password]", "Enter")
    return await _await_painted(page, traffic)


async def _measure_visit(context: BrowserContext, url: str) -> dict[str, float]:
    page = await context.new_page()
    traffic = _Traffic()
    await traffic.watch(page)
    await page.goto(url, wait_until="commit")
    return await _await_painted(page, traffic)


async def _await_painted(page: Page, traffic: _Traffic) -> dict[str, float]:
    await page.wait_for_url("**/map/**", wait_until="commit", timeout=_WAIT_MS)
    await page.wait_for_function(_PAINTED, timeout=_WAIT_MS)
    painted_ms = await page.evaluate(_MARK, "map-painted")
    await page.wait_for_load_state("load")
    # Responses that end with the load are counted by events that follow it.
    await page.wait_for_timeout(500)
    await page.close()
    return {"painted_ms": painted_ms, "kb": traffic.all_bytes / 1000, "data_kb": traffic.data_bytes / 1000}


async def measure_updates(bench: MapBench, agents: int, proxies: int, *, rounds: int) -> dict[str, Figure]:
    """Measure the first picture of a large fleet, rounds in which a share of it changes, and the list of its agents."""
    fleet = await bench.create_fleet("large", agents, proxies)
    await fleet.begin()
    context = await bench.browser.new_context(viewport={"width": 1400, "height": 900})
    page = await context.new_page()
    await page.goto(f"{bench.console.url}/accounts/login/?next=/c/{fleet.cluster}/map/")
    await page.fill("[name=login]", USERNAME)
    await page.fill("[name=password]", PASSWORD)
    await page.press("[name=password]", "Enter")
    await page.wait_for_url("**/map/**", wait_until="commit", timeout=_WAIT_MS)
    await page.wait_for_function(_PAINTED, timeout=_WAIT_MS)
    after_data = await page.evaluate(_MARK, "map-painted") - await page.evaluate(_MARK, "map-data")
    chance = random.Random(_SEED)  # one sequence: the same agents again would not change
    overview = await _measure_rounds(page, fleet, rounds, chance)
    await page.focus("#map")
    await page.wait_for_timeout(1000 * _ROUND_INTERVAL)
    # The first cell size with one agent per cell.
    while await page.locator("#per-cell").is_visible():
        await page.keyboard.press("+")
        await page.wait_for_timeout(1000 * _ROUND_INTERVAL)
    cells = await _measure_rounds(page, fleet, rounds, chance)
    list_ms = [await _measure_list(bench, fleet.cluster) for _ in range(5)]
    await context.close()
    return {
        "large_agents": agents,
        "large_painted_after_data_ms": round(after_data, 1),
        "large_update_ms": round(max(overview["update_ms"], cells["update_ms"]), 1),
        "large_longest_frame_ms": round(max(overview["frame_ms"], cells["frame_ms"]), 1),
        "large_overview_update_ms": round(overview["update_ms"], 1),
        "large_cells_update_ms": round(cells["update_ms"], 1),
        "large_list_ms": round(statistics.median(list_ms), 1),
    }


async def _measure_rounds(
    page: Page, fleet: LiveFleet, rounds: int, chance: random.Random
) -> dict[str, float]:
    """Change a share of the agents each round; return the p95 from an event to its picture, and the longest frame."""
    await page.evaluate("() => performance.clearMeasures('map-update')")
    longest_frames = []
    for number in range(rounds):
        state = State.STRANDED if number % 2 == 0 else State.AT_RISK
        changed_agents = chance.sample(range(len(fleet.homes)), int(len(fleet.homes) * _CHANGED_SHARE))
        events = await fleet.conclude(dict.fromkeys(changed_agents, state))
        # The record is written in this process: its load must not count as the page's.
        await asyncio.sleep(_ROUND_INTERVAL)
        count = await page.evaluate("() => performance.getEntriesByName('map-update').length")
        await page.evaluate(_FRAMES)
        await fleet.publish(events)
        await page.wait_for_function(
            "(count) => performance.getEntriesByName('map-update').length > count",
            arg=count,
            timeout=_WAIT_MS,
        )
        await asyncio.sleep(_ROUND_INTERVAL)
        longest_frames.append(await page.evaluate("() => Math.max(...window.frames_ms)"))
    durations = await page.evaluate(
        "() => performance.getEntriesByName('map-update').map((entry) => entry.duration)"
    )
    return {"update_ms": percentile(durations, 0.95), "frame_ms": statistics.median(longest_frames)}


async def _measure_list(bench: MapBench, cluster: str) -> float:
    """Return the milliseconds until the first page of the list of agents has arrived."""
    cookies = {cookie.name: str(cookie.value) for cookie in await asyncio.to_thread(bench.console.sign_in)}
    async with aiohttp.ClientSession(cookies=cookies) as session:
        start = time.perf_counter()
        async with session.get(f"{bench.console.url}/c/{cluster}/agents/") as answer:
            answer.raise_for_status()
            await answer.read()
        return (time.perf_counter() - start) * 1000
