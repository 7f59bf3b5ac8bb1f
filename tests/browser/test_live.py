"""The live link: what a page does with deltas, gaps, silence and stale data, seen in Chromium."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from typing import Any

import pytest
from playwright.async_api import Page, expect
from websockets.asyncio.client import ClientConnection, connect

from dashboards.live.hub import format_delta
from fleet.monitoring.events import StateDelta
from fleet.monitoring.publish import message_of
from fleet.vocabulary.verdicts import State
from tests.browser.conftest import Visiting
from tests.browser.link import FaultyLink, Frame, kind_of
from tests.browser.visits import DEADLINE_MS, Visit
from tests.fakes.live_fleet import LiveFleet
from tests.fakes.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Feeds frames to the pure state module, as (kind, frame) with bytes as lists, and returns what it holds.
REPLAY = """async (frames) => {
  const { FleetState, STATES } = await import("/static/dashboards/js/fleet-state.js");
  const state = new FleetState();
  const verdicts = [];
  for (const [kind, frame] of frames) {
    if (kind === "bytes") verdicts.push(state.snapshot(new Uint8Array(frame).buffer));
    else if (kind === "delta") verdicts.push(state.delta(frame));
    else if (kind === "stale") state.expire(frame);
    else state.hello(frame);
  }
  const counted = Object.fromEntries(STATES.map((slug, n) => [slug, state.states.filter((one) => one === n).length]));
  return { verdicts, seq: state.seq, states: [...state.states], counts: state.counts, counted };
}"""
RESYNC = {"type": "resync"}


async def wait_live(page: Page) -> None:
    """Wait for the first snapshot."""
    await expect(page.locator("#link-state")).to_have_text("Live updates: on")


async def open_live(visit: Visit) -> tuple[Page, FaultyLink]:
    """Open *Fleet now* over a link that the test can break, and wait for the first snapshot."""
    page, link = await visit.new_page(), FaultyLink()
    await link.attach(page)
    await page.goto(visit.url + "/", wait_until="commit")
    await wait_live(page)
    return page, link


async def test_counts_change_on_a_delta(visiting: Visiting) -> None:
    """Tiles, sentence, title and icon follow a proxy's outage and its end."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/")
    await wait_live(page)
    await visit.fleet.change(dict.fromkeys(visit.fleet.block(0), State.STRANDED))
    await expect(page.locator('[data-count="stranded"]')).to_have_text("50")
    await expect(page.locator('[data-count="healthy"]')).to_have_text("150")
    await expect(page.locator("#headline")).to_contain_text("50 agents stranded")
    await expect(page).to_have_title("✖50 Fleet now · Refloat")
    assert "svg" in str(await page.get_attribute("#favicon", "href"))
    await visit.fleet.change(dict.fromkeys(visit.fleet.block(0), State.HEALTHY))
    await expect(page.locator('[data-count="stranded"]')).to_have_text("0")
    await expect(page).to_have_title("Fleet now · Refloat")
    await expect(page.locator("#headline")).to_contain_text(re.compile(r"No stranded agents\.\s+Last poll"))


async def test_nothing_polled_yet_is_no_good_news(visiting: Visiting) -> None:
    """Before the first round the page does not say that no agent is stranded."""
    visit = await visiting()
    page = await visit.open("/")
    await wait_live(page)
    await expect(page.locator("#headline")).to_contain_text(
        "No data yet: Refloat has not completed a poll of the fleet."
    )
    await expect(page.locator("#age-text")).to_have_text("No data yet")


async def test_instances_are_asked_for_on_a_hint(visiting: Visiting) -> None:
    """A silent proxy shows on its card and in the sentence, without a reload."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/")
    await wait_live(page)
    await visit.fleet.silence(0)
    await expect(page.locator('[data-instance="proxy-1"]')).to_contain_text("the last two attempts failed")
    await expect(page.locator("#headline")).to_contain_text(
        re.compile(r"50 agents stranded since \d\d:\d\d UTC because proxy-1 is not responding\.")
    )


async def test_backend_is_named_as_the_only_cause(visiting: Visiting) -> None:
    """Not three auths "and 1 more": the sentence and the alert name what the incident names."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/")
    await wait_live(page)
    await visit.fleet.fail_backend()
    await expect(page.locator("#headline")).to_contain_text(
        re.compile(r"200 agents at risk since \d\d:\d\d UTC because all 3 auths are not responding\.")
    )


async def test_instances_are_refreshed_within_their_ttl(visiting: Visiting) -> None:
    """Else a heartbeat looks expired between two requests, also behind a dialog."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/")
    await wait_live(page)
    await page.evaluate(
        "() => document.querySelectorAll('[data-ttl-ms]').forEach((beat) => (beat.dataset.ttlMs = '10000'))"
    )
    await page.evaluate("() => document.getElementById('dialog').showModal()")
    async with page.expect_request(re.compile("part=instances"), timeout=6_000):
        pass


async def test_clocks_that_differ_are_named(visiting: Visiting) -> None:
    """A heartbeat, and a round, dated three minutes ahead: neither a negative bar nor an age of nothing."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/")
    await wait_live(page)
    await visit.fleet.set_proxy_clock_ahead(0, 180)
    beat = page.locator('[data-instance="proxy-1"] .beat')
    await expect(beat).to_contain_text(
        "heartbeat dated 3 min in the future: the clocks of the instance and the console differ"
    )
    assert float(await beat.locator(".beat-fill").get_attribute("width") or -1) >= 0
    await visit.fleet.conclude_with_clock_ahead(180)
    await expect(page.locator("#banner")).to_contain_text("dated 3 min in the future")
    await expect(page.locator("#age-text")).to_have_text("Data is dated 3 min in the future")


async def test_stranding_interrupts_once_per_cause(visiting: Visiting) -> None:
    """The alert tells a stranding with its cause, stays as the count moves, and speaks again for a further cause."""
    visit = await visiting()
    visit.fleet.proxies += 1  # without agents
    await visit.fleet.begin()
    page = await visit.open("/")
    await wait_live(page)
    alert = page.locator("#alert-region")
    await expect(alert).to_have_attribute("role", "alert")
    # A sick proxy alone is no alert.
    await visit.fleet.silence(4)
    await expect(page.locator("#headline")).to_contain_text(
        re.compile(r"No stranded agents, but proxy-5 has not responded since \d\d:\d\d UTC\.")
    )
    await expect(alert).to_be_empty()
    await visit.fleet.silence(0)
    first_alert_text = re.compile(
        r"^50 agents stranded since .* because proxy-1 is not responding\..* Also: proxy-5 has"
    )
    await expect(alert).to_have_text(first_alert_text)
    await visit.fleet.change({visit.fleet.block(1)[0]: State.STRANDED})
    await expect(page.locator("#headline")).to_contain_text(
        re.compile(r"51 agents stranded since .*, 50 of them because proxy-1 is not responding")
    )
    await expect(alert).to_have_text(first_alert_text)
    await visit.fleet.silence(1)
    await expect(alert).to_have_text(
        re.compile(
            r"^100 agents stranded since .*, 50 of them because proxy-1.* Also: 50 agents stranded because proxy-2"
        )
    )


async def test_stranding_present_on_opening_raises_no_alert(visiting: Visiting) -> None:
    """It is read with the page."""
    visit = await visiting()
    await visit.fleet.begin({0: State.STRANDED})
    page = await visit.open("/")
    await wait_live(page)
    await expect(page.locator("#headline")).to_contain_text("1 agent stranded")
    await expect(page.locator("#alert-region")).to_be_empty()


async def test_a_lost_delta_is_a_gap(visiting: Visiting) -> None:
    """The page asks for a new snapshot and shows what it holds."""
    visit = await visiting()
    await visit.fleet.begin()
    page, link = await open_live(visit)
    link.lose_one("delta")
    await visit.fleet.change({0: State.STRANDED, 1: State.STRANDED})
    await visit.fleet.change({2: State.STRANDED})
    await expect(page.locator('[data-count="stranded"]')).to_have_text("3")
    assert link.lost_count == 1
    await eventually(lambda: bool(link.requests))
    assert all(request == RESYNC for request in link.requests)


async def test_a_beat_that_is_ahead_is_a_gap(visiting: Visiting) -> None:
    """When the last delta was lost and none follows, the next beat reveals it. The counts come with the headline."""
    visit = await visiting()
    await visit.fleet.begin()
    page, link = await open_live(visit)
    link.lose_one("delta")
    await visit.fleet.change({7: State.OFFLINE})
    await expect(page.locator('[data-count="offline"]')).to_have_text("1")
    assert link.lost_count == 1
    await eventually(lambda: bool(link.requests))
    assert all(request == RESYNC for request in link.requests)


async def test_event_lost_before_the_console_is_recovered(visiting: Visiting) -> None:
    """The console sends a snapshot when the next event shows the gap, and when none follows; the page never asks."""
    visit = await visiting()
    await visit.fleet.begin()
    page, link = await open_live(visit)
    await visit.fleet.conclude({0: State.STRANDED, 1: State.STRANDED})
    await visit.fleet.change({2: State.STRANDED})
    await expect(page.locator('[data-count="stranded"]')).to_have_text("3")
    await visit.fleet.conclude({7: State.OFFLINE})
    await expect(page.locator('[data-count="offline"]')).to_have_text("1")
    assert link.requests == []


async def test_another_epoch_starts_over(visiting: Visiting) -> None:
    """A rebuilt record has another epoch: its deltas mean nothing before its snapshot."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/")
    await wait_live(page)
    await visit.fleet.rebuild({0: State.AT_RISK})
    await expect(page.locator('[data-count="at_risk"]')).to_have_text("1")
    await visit.fleet.change({1: State.AT_RISK})
    await expect(page.locator('[data-count="at_risk"]')).to_have_text("2")


async def test_stale_data_is_shown_as_stale(visiting: Visiting) -> None:
    """All but the retired read as unknown, the data loses its colour, and the banner says how old it is."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/")
    await wait_live(page)
    await visit.fleet.change({0: State.STRANDED, 1: State.RETIRED})
    await expect(page.locator('[data-count="stranded"]')).to_have_text("1")
    await visit.fleet.go_stale()
    await expect(page.locator("#banner")).to_contain_text(re.compile(r"Data is (4[7-9]|[5-9]\d) s old"))
    await expect(page.locator('[data-count="unknown"]')).to_have_text("199")
    await expect(page.locator('[data-count="stranded"]')).to_have_text("0")
    await expect(page.locator('[data-count="retired"]')).to_have_text("1")
    await expect(page.locator("#total")).to_have_text("199")
    await expect(page.locator("#total-retired")).to_have_text(", plus 1 retired")
    await expect(page.locator("#link-state")).to_have_text("Live updates: connected, but polling has stopped")
    await expect(page).to_have_title("(? old data) Fleet now · Refloat")
    assert "grayscale" in await page.locator(".live").first.evaluate("part => getComputedStyle(part).filter")
    beat = page.locator(".beat-text").first
    await expect(beat).to_have_text(re.compile(r"^last heartbeat seen .* ago$"))
    await visit.fleet.recover()
    await expect(page.locator("#banner")).to_be_hidden()
    await expect(page.locator('[data-count="stranded"]')).to_have_text("1")
    await expect(beat).to_contain_text("expires after")
    await expect(page).to_have_title("✖1 Fleet now · Refloat")
    await expect(page.locator("#link-state")).to_have_text("Live updates: on")


async def test_a_closed_socket_comes_back(visiting: Visiting) -> None:
    """The page connects again by itself and shows what changed meanwhile."""
    visit = await visiting()
    await visit.fleet.begin()
    page, link = await open_live(visit)
    await link.cut(1011)
    await visit.fleet.conclude({0: State.STRANDED})
    await expect(page.locator('[data-count="stranded"]')).to_have_text("1")
    await wait_live(page)


async def test_signed_out_offers_the_way_back(visiting: Visiting) -> None:
    """Close code 4401 ends in a link to the sign-in, not in another try."""
    visit = await visiting(own_session=True)
    # Before the socket is closed the page may ask for a part of it, and be refused.
    visit.expected.append("401 (Unauthorized)")
    await visit.fleet.begin()
    sockets: list[str] = []
    page = await visit.new_page()
    page.on("websocket", lambda socket: sockets.append(socket.url))
    await page.goto(visit.url + "/", wait_until="commit")
    await wait_live(page)
    await _sign_out(visit)
    await expect(page.locator("#banner")).to_contain_text("You are signed out")
    way_back = f"/accounts/login/?next=%2Fc%2F{visit.cluster}%2F"
    await expect(page.locator("#banner-link")).to_have_attribute("href", way_back)
    await expect(page.locator("#link-state")).to_have_text("Live updates: signed out")
    assert len(sockets) == 1


async def _sign_out(visit: Visit) -> None:
    """End the session as another tab of the same browser does."""
    cookies = {cookie["name"]: cookie["value"] for cookie in await visit.context.cookies()}
    request = urllib.request.Request(
        f"{visit.console.url}/accounts/logout/",
        data=f"csrfmiddlewaretoken={cookies['csrftoken']}".encode(),
        headers={"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())},
    )
    response = await asyncio.to_thread(urllib.request.urlopen, request, timeout=DEADLINE_MS / 1000)
    response.close()
    assert response.status == 200


async def test_silent_socket_marks_the_data_as_outdated(visiting: Visiting) -> None:
    """15 s without a frame: stale; 30 s: the counts are requested over HTTP and shown as current."""
    visit = await visiting()
    await visit.fleet.begin()
    page, link = await visit.new_page(), FaultyLink()
    await link.attach(page)
    await page.clock.install()
    await page.goto(visit.url)
    await wait_live(page)
    link.is_lost = lambda _: True
    await page.clock.run_for(16_000)
    await expect(page.locator("#banner")).to_contain_text("the console does not respond")
    await visit.fleet.conclude({0: State.STRANDED})
    await page.clock.run_for(16_000)
    await expect(page.locator('[data-count="stranded"]')).to_have_text("1")
    await page.clock.run_for(1_000)
    await expect(page.locator("#banner")).to_be_hidden()


def _socket_of(visit: Visit) -> connect:
    """Return the live socket of the cluster, for a program with a token."""
    address = visit.console.url.replace("http", "ws") + f"/ws{visit.prefix}/fleet/"
    headers = {"Authorization": f"Bearer {visit.console.token}"}
    return connect(address, additional_headers=headers, open_timeout=DEADLINE_MS / 1000)


async def _frames(socket: ClientConnection, seq: int) -> list[tuple[str, Any]]:
    """Return all frames until they hold event `seq`, as REPLAY takes them."""
    frames: list[tuple[str, Any]] = []
    newest = -1
    async with asyncio.timeout(DEADLINE_MS / 1000):
        while newest < seq or frames[-1][0] == "hello":
            frame: Frame = await socket.recv()
            kind = kind_of(frame)
            if kind in ("hello", "bytes", "delta"):
                frames.append((kind, json.loads(frame) if isinstance(frame, str) else list(frame)))
                newest = frames[-1][1]["seq"] if kind != "bytes" else newest
    return frames


async def _round(fleet: LiveFleet, states: dict[int, State]) -> StateDelta:
    """Conclude a round in which these agents have these states, and publish its delta."""
    events = await fleet.conclude(states)
    await fleet.publish(events)
    return next(event for event in events if isinstance(event, StateDelta))


async def test_state_vector_law(visiting: Visiting) -> None:
    """An old snapshot and the deltas after it equal a fresh snapshot: bytes, place and counts."""
    visit = await visiting(proxies=3, agents_per_proxy=20)
    await visit.fleet.begin({5: State.RETIRED})
    async with _socket_of(visit) as socket:
        frames = await _frames(socket, 0)
        for turn in range(100):
            changes = {(turn * 7 + step) % 60: State((turn * 3 + step) % 10) for step in range(turn % 4 + 1)}
            frames += await _frames(socket, (await _round(visit.fleet, changes)).seq)
    async with _socket_of(visit) as socket:
        (_, hello), (_, states) = await _frames(socket, 0)
    page = await visit.open("/")
    replayed = await page.evaluate(REPLAY, frames)
    assert replayed["states"] == states
    assert replayed["counts"] == replayed["counted"] == hello["counts"]
    assert replayed["seq"] == hello["seq"]
    assert set(replayed["verdicts"]) == {True, "applied"}


async def test_state_vector_verdicts_on_frames(visiting: Visiting) -> None:
    """What came before the snapshot is old, a hole is a gap, and bytes that do not fit are refused."""
    visit = await visiting(proxies=2, agents_per_proxy=3)
    fleet = visit.fleet
    await fleet.begin()
    deltas = [await _round(fleet, {0: State.STRANDED})]
    async with _socket_of(visit) as socket:
        (_, hello), (_, states) = await _frames(socket, 0)
    deltas += [await _round(fleet, {index: State.STRANDED}) for index in (1, 2)]
    early, _, late = (json.loads(format_delta(message_of(delta), delta.as_of)) for delta in deltas)
    grown = {**late, "seq": hello["seq"] + 1, "changes": [[6, 3]]}
    other_frame = {**late, "epoch": "e9"}
    frames = [
        ("delta", early),
        ("hello", hello),
        ("bytes", states[:-1]),
        ("bytes", states),
        ("delta", early),
        ("delta", late),
        ("delta", grown),
        ("delta", other_frame),
    ]
    page = await visit.open("/")
    replayed = await page.evaluate(REPLAY, frames)
    assert replayed["verdicts"] == ["waiting", False, True, "old", "gap", "gap", "gap"]
    assert replayed["states"] == states
