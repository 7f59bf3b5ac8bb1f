"""The headline while agents recover: page, map, API, CLI and socket say the same of one round."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner
from django.utils import timezone
from playwright.async_api import Page, ViewportSize, expect
from websockets.asyncio.client import ClientConnection, connect

from fleet.alerts.wording.words import format_remaining
from fleet.cli.main import main
from fleet.models.changes import Change
from fleet.vocabulary.verdicts import State
from tests.browser.axe import accessible
from tests.browser.conftest import Visiting
from tests.browser.visits import DEADLINE_MS, Visit

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: What a page shows: round, text, counts by state, title, and the badge of the navigation.
READ = """() => ({
  asOf: document.getElementById("headline").dataset.asOf,
  text: document.getElementById("headline-text").textContent,
  counts: Object.fromEntries([...document.querySelectorAll("[data-count]")].map(
    (count) => [count.dataset.count, Number(count.textContent.replaceAll(",", ""))])),
  title: document.title.split(" ")[0],
  badge: document.querySelector("#headline-badge > span").textContent,
})"""
#: Collects, at every frame, what the page shows where its stranded count is not the number in its text.
WATCH = f"""() => {{
  const read = {READ};
  window.disagreements = [];
  const look = () => {{
    const shown = read();
    const inText = Number((shown.text.match(/^([\\d,]+) agents? stranded/) ?? [0, "0"])[1].replaceAll(",", ""));
    if (inText !== shown.counts.stranded) window.disagreements.push(shown);
    requestAnimationFrame(look);
  }};
  look();
}}"""


async def _open(visit: Visit, path: str) -> Page:
    page = await visit.open(path)
    await expect(page.locator("#headline[data-as-of]")).to_be_visible()
    await page.evaluate(WATCH)
    return page


def _read_cli(visit: Visit) -> tuple[str, dict[str, Any]]:
    """Return the first line of `refloat summary`, and its JSON."""
    environment = {"REFLOAT_URL": visit.console.url, "REFLOAT_TOKEN": visit.console.token}
    arguments = ["summary", "--cluster", visit.cluster]
    runner = CliRunner(env=environment)
    text = runner.invoke(main, arguments).output
    return text.splitlines()[0], json.loads(runner.invoke(main, [*arguments, "--json"]).output)


async def _collect_until(socket: ClientConnection, as_of: str) -> dict[str, Any]:
    """Return the headline of the round that ended at this time, which the API names more exactly."""
    async with asyncio.timeout(DEADLINE_MS / 1000):
        while True:
            frame = await socket.recv()
            message: dict[str, Any] = json.loads(frame) if isinstance(frame, str) else {}
            if message.get("type") == "headline" and _moment_of(message["as_of"]) == _moment_of(as_of):
                return message


def _moment_of(text: str) -> str:
    return datetime.fromisoformat(text).isoformat(timespec="milliseconds")


async def test_all_say_the_same_while_agents_recover(visiting: Visiting) -> None:
    """A frozen proxy, then rounds in which some of its agents recover, the last one with none left."""
    visit = await visiting()
    await visit.fleet.begin()
    now_page, map_page = await _open(visit, "/"), await _open(visit, "/map/")
    address = visit.console.url.replace("http", "ws") + f"/ws{visit.prefix}/fleet/"
    headers = {"Authorization": f"Bearer {visit.console.token}"}
    async with connect(address, additional_headers=headers, open_timeout=DEADLINE_MS / 1000) as socket:
        await visit.fleet.silence(0)
        stranded_agents = visit.fleet.block(0)
        while stranded_agents:
            line, response = await asyncio.to_thread(_read_cli, visit)
            headline, counts = response["headline"], response["counts"]
            assert line.endswith(headline["text"])
            assert counts["stranded"] == len(stranded_agents)
            assert headline["text"].startswith(f"{len(stranded_agents)} agent")
            message = await _collect_until(socket, response["as_of"])
            assert (message["text"], message["counts"]) == (headline["text"], counts)
            for page in (now_page, map_page):
                await expect(page.locator("#headline-text")).to_have_text(headline["lead"])
                await expect(page.locator("#headline-text")).to_have_attribute("title", headline["text"])
                page_state = await page.evaluate(READ)
                assert page_state["asOf"] == message["as_of"]
                assert page_state["counts"] == counts
                assert (page_state["title"], page_state["badge"]) == (
                    headline["tab_title"],
                    headline["tab_title"],
                )
            recovering, stranded_agents = stranded_agents[:20], stranded_agents[20:]
            await visit.fleet.change(dict.fromkeys(recovering, State.HEALTHY))
        for page in (now_page, map_page):
            await expect(page.locator('[data-count="stranded"]')).to_have_text("0")
            assert await page.evaluate("window.disagreements") == []


async def test_page_counts_down_in_the_words_of_the_server(visiting: Visiting) -> None:
    """From the end of the round, by the time that has passed since."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await _open(visit, "/")
    seconds = [0.5, 9.9, 10, 14, 48, 94, 96, 700, 5_690, 5_800, 20_000]
    as_of = datetime(2026, 9, 21, 13, 59, 50, tzinfo=UTC)
    messages = [
        {"as_of": as_of.isoformat(), "recovers_at": (as_of + timedelta(seconds=rest)).isoformat()}
        for rest in seconds
    ]
    texts = await page.evaluate(
        """async (messages) => {
          const { describeRemaining } = await import("/static/dashboards/js/headline.js");
          return [
            ...messages.map((message) => describeRemaining(message, 0)),
            describeRemaining({ ...messages[0], strands_at: messages.at(-2).recovers_at }, 5_000_000),
          ];
        }""",
        messages,
    )
    assert texts == [
        *(f"Recovery {format_remaining(rest)}." for rest in seconds),
        f"First stranding {format_remaining(800)}. Recovery is due.",
    ]


async def test_repair_opens_what_is_known_of_the_instance(visiting: Visiting) -> None:
    """From the link of the headline, after its agents have recovered."""
    visit = await visiting()
    await visit.fleet.begin()
    await visit.fleet.silence(0)
    await visit.fleet.change(dict.fromkeys(visit.fleet.block(0), State.HEALTHY))
    page = await _open(visit, "/")
    await page.click("text=Repair proxy-1")
    await expect(page.locator("h1")).to_have_text("Repair proxy-1")
    await expect(page.locator("#repair .instance-state")).to_have_text("not responding")
    await expect(page.locator("#repair .steps li")).to_have_count(3)
    await accessible(page)


async def test_campaign_in_progress_explains_the_moves(visiting: Visiting) -> None:
    """Headline, card and block say what moves the agents; screen readers are not told each step of it."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await _open(visit, "/map/")
    change = await visit.rows(_start_campaign, visit.cluster)
    await visit.fleet.change({0: State.HEALTHY})
    sentence = f"Campaign {change.pk}, started by ana at "
    await expect(page.locator("#headline-text")).to_contain_text(f"No stranded agents. {sentence}")
    await expect(page.locator("#headline")).to_have_class("headline state-working")
    link = page.locator("#headline-actions a", has_text=f"Open campaign {change.pk}")
    await expect(link).to_have_attribute("href", f"{visit.prefix}/changes/{change.pk}/")
    await expect(page.locator(".card-change")).to_contain_text("is moving agents off proxy-1.")
    await expect(page.locator(".block-title", has_text="proxy-1").first).to_contain_text("agents moving away")
    await expect(page.locator("#live-region")).to_have_text(
        f"No stranded agents. Campaign {change.pk} is in progress."
    )
    await visit.rows(_end_campaign, change.pk)
    await visit.fleet.change({1: State.HEALTHY})
    await expect(page.locator("#headline-text")).to_contain_text(f"Campaign {change.pk} ended at ")
    await expect(page.locator(".card-change")).to_have_count(0)


#: Lines of the text of the headline, as painted.
_LINES = """() => {
  const text = document.getElementById("headline-text");
  return Math.round(text.getBoundingClientRect().height / parseFloat(getComputedStyle(text).lineHeight));
}"""


#: Height of what is cut of the text before the campaign, px.
_HIDDEN_HEIGHT = """line => {
  const range = document.createRange();
  range.setStart(line.firstChild, 0);
  range.setEnd(line.firstChild, line.textContent.indexOf("Campaign"));
  return range.getBoundingClientRect().bottom - line.getBoundingClientRect().bottom;
}"""

#: Left edges of the text, the notes and the actions, px.
_LEFT_EDGES = """() => ["#headline-text", ".headline-notes > :not([hidden]):not(:empty)", ".headline-actions > *"]
  .map((part) => Math.round(document.querySelector(part).getBoundingClientRect().left))"""


@pytest.mark.parametrize(
    ("size", "line_count"), [({"width": 1400, "height": 900}, 2), ({"width": 360, "height": 760}, 5)]
)
@pytest.mark.parametrize("path", ["/", "/map/"])
async def test_headline_stays_short_while_several_things_fail(
    visiting: Visiting, path: str, size: ViewportSize, line_count: int
) -> None:
    """Other causes are counted, and lead to the incidents; the whole text is the title of the line."""
    visit = await visiting(viewport=size)
    visit.fleet.proxies += 1  # without agents
    await visit.fleet.begin()
    page = await _open(visit, path)
    await visit.rows(_start_campaign, visit.cluster)
    await visit.fleet.silence(0, 1, 2, 4)
    text, more = page.locator("#headline-text"), page.locator("#headline-more")
    await expect(text).to_contain_text("because proxy-1 is not responding")
    await expect(more).to_have_text("and 3 more causes")
    await expect(more).to_have_attribute("href", f"{visit.prefix}/incidents/")
    await expect(text).to_have_attribute("title", re.compile("Also: .*proxy-2"))
    await expect(text).not_to_contain_text("Also: ")
    assert await page.evaluate(_LINES) <= line_count
    # Nothing of the first cause and the recovery is cut.
    assert await text.evaluate(_HIDDEN_HEIGHT) <= 1
    assert len(set(await page.evaluate(_LEFT_EDGES))) == 1
    assert await page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def _start_campaign(cluster: str) -> Change:
    plan = {"connection": "tunnel", "agents_by_instance": {"proxy-1": 50}}
    return Change.objects.create(
        cluster_id=cluster,
        kind="reconnect",
        state="running",
        title="Reconnect 50 agents of proxy-1",
        actor_name="ana",
        plan=plan,
        started_at=timezone.now(),
    )


def _end_campaign(number: int) -> None:
    Change.objects.filter(pk=number).update(state="verified", ended_at=timezone.now())
