"""The live link: what a page does with deltas, gaps, silence and stale data, seen in Chromium."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from fleet.domain.verdicts import State
from tests.browser.conftest import Visiting
from tests.browser.harness import block_of, even_fleet

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Feeds frames to the pure state module, as (kind, frame) with bytes as lists, and returns what it holds.
REPLAY = """async (frames) => {
  const { FleetState } = await import("/static/dashboards/js/fleet-state.js");
  const state = new FleetState();
  const verdicts = [];
  for (const [kind, frame] of frames) {
    if (kind === "bytes") verdicts.push(state.snapshot(new Uint8Array(frame).buffer));
    else if (kind === "delta") verdicts.push(state.delta(frame));
    else if (kind === "stale") state.expire(frame);
    else state.hello(frame);
  }
  return { verdicts, seq: state.seq, states: [...state.states], counts: state.counts, counted: state.count() };
}"""


async def wait_live(page: Page) -> None:
    """Wait for the first snapshot."""
    await expect(page.locator("#link-state")).to_have_text("Live updates: on")


async def test_counts_change_on_a_delta(visiting: Visiting) -> None:
    """Tiles, sentence, title and icon follow a proxy's outage and its end."""
    visit = await visiting()
    page = await visit.open("/")
    await wait_live(page)
    await visit.fleet.change(dict.fromkeys(block_of(visit.fleet, 0), State.STRANDED))
    await expect(page.locator('[data-count="stranded"]')).to_have_text("50")
    await expect(page.locator('[data-count="healthy"]')).to_have_text("150")
    await expect(page.locator("#status-line")).to_contain_text("50 stranded")
    await expect(page).to_have_title("(✖ 50) Fleet now · Refloat")
    assert "svg" in str(await page.get_attribute("#favicon", "href"))
    await visit.fleet.change(dict.fromkeys(block_of(visit.fleet, 0), State.HEALTHY))
    await expect(page.locator('[data-count="stranded"]')).to_have_text("0")
    await expect(page).to_have_title("Fleet now · Refloat")
    await expect(page.locator("#status-line")).to_contain_text("No stranded agents. Last poll")


async def test_nothing_polled_yet_is_no_good_news(visiting: Visiting) -> None:
    """Before the first round the page does not say that no agent is stranded."""
    fleet = even_fleet(1, 1)
    fleet.age_ms = None
    visit = await visiting(fleet)
    page = await visit.open("/")
    await wait_live(page)
    await expect(page.locator("#status-line")).to_contain_text("Nothing polled yet.")
    await expect(page.locator("#age-text")).to_have_text("no data yet")


async def test_instances_are_asked_for_on_a_hint(visiting: Visiting) -> None:
    """A silent proxy shows on its card and in the sentence, without a reload."""
    visit = await visiting()
    page = await visit.open("/")
    await wait_live(page)
    visit.fleet.proxies[0] |= {"slug": "silent", "label": "silent", "sentence": "Two attempts failed."}
    await visit.fleet.send({"type": "instances"})
    await expect(page.locator('[data-instance="proxy-1"]')).to_contain_text("Two attempts failed.")
    await expect(page.locator("#status-line")).to_contain_text("proxy-1 does not answer")


async def test_stranding_interrupts_once_per_cause(visiting: Visiting) -> None:
    """The alert tells a stranding with its cause, stays as the count moves, and speaks again for a further cause."""
    visit = await visiting()
    page = await visit.open("/")
    await wait_live(page)
    alert = page.locator("#alert-region")
    await expect(alert).to_have_attribute("role", "alert")
    # A sick proxy alone is no alert.
    visit.fleet.proxies[0] |= {"slug": "silent", "label": "silent"}
    await visit.fleet.send({"type": "instances"})
    await expect(page.locator("#status-line")).to_contain_text(
        "No stranded agents, but proxy-1 does not answer."
    )
    await expect(alert).to_be_empty()
    await visit.fleet.change({0: State.STRANDED})
    await expect(alert).to_have_text("1 stranded: proxy-1 does not answer.")
    await visit.fleet.change({1: State.STRANDED})
    await expect(page.locator("#status-line")).to_contain_text("2 stranded: proxy-1")
    await expect(alert).to_have_text("1 stranded: proxy-1 does not answer.")
    visit.fleet.proxies[1] |= {"slug": "expired", "label": "expired"}
    await visit.fleet.send({"type": "instances"})
    await expect(alert).to_have_text("2 stranded: proxy-1 does not answer and proxy-2 has expired.")


async def test_stranding_seen_on_opening_is_no_alert(visiting: Visiting) -> None:
    """It is read with the page."""
    visit = await visiting()
    visit.fleet.apply({0: State.STRANDED})
    page = await visit.open("/")
    await wait_live(page)
    await expect(page.locator("#status-line")).to_contain_text("1 stranded")
    await expect(page.locator("#alert-region")).to_be_empty()


async def test_a_lost_delta_is_a_gap(visiting: Visiting) -> None:
    """The page asks for a new snapshot and shows what it holds."""
    visit = await visiting()
    page = await visit.open("/")
    await wait_live(page)
    visit.fleet.apply({0: State.STRANDED, 1: State.STRANDED})
    await visit.fleet.change({2: State.STRANDED})
    await expect(page.locator('[data-count="stranded"]')).to_have_text("3")
    assert visit.fleet.asked == ["resync"]


async def test_a_beat_that_is_ahead_is_a_gap(visiting: Visiting) -> None:
    """When the last delta was lost and none follows, the next beat reveals it."""
    visit = await visiting()
    page = await visit.open("/")
    await wait_live(page)
    visit.fleet.apply({7: State.OFFLINE})
    await visit.fleet.send(visit.fleet.beat())
    await expect(page.locator('[data-count="offline"]')).to_have_text("1")
    assert visit.fleet.asked == ["resync"]


async def test_another_epoch_starts_over(visiting: Visiting) -> None:
    """A rebuilt record has another epoch: its deltas mean nothing before its snapshot."""
    visit = await visiting()
    page = await visit.open("/")
    await wait_live(page)
    visit.fleet.epoch, visit.fleet.seq = "e2", 0
    await visit.fleet.change({0: State.AT_RISK})
    await expect(page.locator('[data-count="at_risk"]')).to_have_text("1")
    assert visit.fleet.asked == ["resync"]


async def test_stale_data_looks_stale(visiting: Visiting) -> None:
    """All but the retired read as unknown, the data loses its colour, and the banner says how old it is."""
    visit = await visiting()
    page = await visit.open("/")
    await wait_live(page)
    await visit.fleet.change({0: State.STRANDED, 1: State.RETIRED})
    await expect(page.locator('[data-count="stranded"]')).to_have_text("1")
    await visit.fleet.go_stale()
    await expect(page.locator("#banner")).to_contain_text(
        re.compile(r"These numbers are (4[7-9]|[5-9]\d) s old")
    )
    await expect(page.locator('[data-count="unknown"]')).to_have_text("199")
    await expect(page.locator('[data-count="stranded"]')).to_have_text("0")
    await expect(page.locator('[data-count="retired"]')).to_have_text("1")
    assert "grayscale" in await page.locator(".live").first.evaluate("part => getComputedStyle(part).filter")
    beat = page.locator(".beat-text").first
    await expect(beat).to_have_text(re.compile(r"^last heartbeat seen .* ago$"))
    await visit.fleet.recover()
    await expect(page.locator("#banner")).to_be_hidden()
    await expect(page.locator('[data-count="stranded"]')).to_have_text("1")
    await expect(beat).to_contain_text("expires after")


async def test_a_closed_socket_comes_back(visiting: Visiting) -> None:
    """The page connects again by itself and shows what changed meanwhile."""
    visit = await visiting()
    page = await visit.open("/")
    await wait_live(page)
    await visit.fleet.hang_up()
    visit.fleet.apply({0: State.STRANDED})
    await expect(page.locator('[data-count="stranded"]')).to_have_text("1")
    await wait_live(page)


async def test_signed_out_offers_the_way_back(visiting: Visiting) -> None:
    """Close code 4401 ends in a link to the sign-in, not in another try."""
    visit = await visiting()
    page = await visit.open("/")
    await wait_live(page)
    await visit.fleet.hang_up(4401)
    await expect(page.locator("#banner")).to_contain_text("You are signed out")
    await expect(page.locator("#banner-link")).to_have_attribute("href", "/accounts/login/?next=%2F")


async def test_silence_makes_the_data_look_dead(visiting: Visiting) -> None:
    """15 s without a frame: stale look; 30 s: the counts are asked for over HTTP, and are believed again."""
    visit = await visiting()
    page = await visit.context.new_page()
    await page.clock.install()
    await page.goto(visit.harness.url)
    await wait_live(page)
    await page.clock.run_for(16_000)
    await expect(page.locator("#banner")).to_contain_text("the console does not answer")
    visit.fleet.apply({0: State.STRANDED})
    await page.clock.run_for(16_000)
    await expect(page.locator('[data-count="stranded"]')).to_have_text("1")
    await page.clock.run_for(1_000)
    await expect(page.locator("#banner")).to_be_hidden()


async def test_state_vector_law(visiting: Visiting) -> None:
    """An old snapshot and the deltas after it equal a fresh snapshot: bytes, place and counts."""
    visit = await visiting()
    page = await visit.open("/")
    fleet = even_fleet(3, 20)
    fleet.apply({5: State.RETIRED})
    frames: list[tuple[str, object]] = [("hello", fleet.hello()), ("bytes", list(fleet.shown()))]
    for turn in range(200):
        changes = {(turn * 7 + step) % 60: State((turn * 3 + step) % 10) for step in range(turn % 5)}
        frames.append(("delta", fleet.apply(changes)))
    held = await page.evaluate(REPLAY, frames)
    assert held["states"] == list(fleet.states)
    assert held["counts"] == held["counted"] == fleet.counts()
    assert held["seq"] == fleet.seq
    assert set(held["verdicts"][1:]) == {"applied"}


async def test_state_vector_verdicts_on_frames(visiting: Visiting) -> None:
    """What came before the snapshot is old, a hole is a gap, and bytes that do not fit are refused."""
    visit = await visiting()
    page = await visit.open("/")
    fleet = even_fleet(2, 3)
    early = fleet.apply({0: State.STRANDED})
    hello, held = fleet.hello(), list(fleet.shown())
    fleet.apply({1: State.STRANDED})
    late = fleet.apply({2: State.STRANDED})
    grown = {**late, "seq": hello["seq"] + 1, "changes": [[6, 3]]}
    other = {**late, "epoch": "e9"}
    frames = [
        ("delta", early),
        ("hello", hello),
        ("bytes", held[:-1]),
        ("bytes", held),
        ("delta", early),
        ("delta", late),
        ("delta", grown),
        ("delta", other),
    ]
    result = await page.evaluate(REPLAY, frames)
    assert result["verdicts"] == ["waiting", False, True, "old", "gap", "gap", "gap"]
    assert result["states"] == held
