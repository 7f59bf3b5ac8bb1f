"""Tables of agents: they follow the fleet, pause, and filter by URL."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from fleet.vocabulary.verdicts import State
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Until a table asks anew.
REFRESH_MS = 6_000


async def test_list_follows_the_fleet(visiting: Visiting) -> None:
    """A row changes its verdict without a reload, and the focus stays where it was."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.new_page()
    await page.clock.install()
    await page.goto(f"{visit.url}/agents/")
    row = page.locator("tbody tr").first
    await expect(row).to_contain_text("healthy")
    link = row.get_by_role("link", name="agent-1", exact=True)
    await link.focus()
    await visit.fleet.change({0: State.STRANDED})
    await page.clock.run_for(REFRESH_MS)
    await expect(row).to_contain_text("stranded")
    await expect(link).to_be_focused()


async def test_paused_list_does_not_change(visiting: Visiting) -> None:
    """While paused nothing is requested; *Resume updates* requests the list at once."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.new_page()
    await page.clock.install()
    await page.goto(f"{visit.url}/agents/")
    row = page.locator("tbody tr").first
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    await page.click("#pause")
    await visit.fleet.change({0: State.STRANDED})
    await page.clock.run_for(20_000)
    await expect(row).to_contain_text("healthy")
    assert [url for url in requests if url.endswith("/agents/")] == []
    await page.click("#pause")
    await expect(row).to_contain_text("stranded")


async def test_filter_is_the_address(visiting: Visiting) -> None:
    """Choosing a verdict gives a list of it, and the way to the same cells."""
    visit = await visiting()
    await visit.fleet.begin({0: State.STRANDED, 1: State.OFFLINE})
    page = await visit.open("/agents/")
    await page.click(".chip.state-stranded")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator("#matches")).to_have_text("1 matching agent")
    await page.click("text=View on map")
    await expect(page.get_by_role("searchbox").first).to_have_value("state:stranded")


async def test_agent_page_follows_the_agent(visiting: Visiting) -> None:
    """Verdict, sentence and recovery change as the agent does."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.new_page()
    await page.clock.install()
    await page.goto(f"{visit.url}/agents/agent-1-id/")
    await expect(page.locator(".agent-verdict")).to_contain_text("healthy")
    await visit.fleet.silence(0)
    await page.clock.run_for(REFRESH_MS)
    await expect(page.locator(".agent-verdict")).to_contain_text("stranded")
    await expect(page.locator(".agent-sentence")).to_contain_text("proxy-1 is not responding")
    await expect(page.locator(".recovery")).to_contain_text(
        re.compile(r"Recovers automatically by \d\d:\d\d:\d\d UTC \(in about \d+ h\)")
    )


async def test_frame_of_a_list_that_fits_does_not_scroll(visiting: Visiting) -> None:
    """The hatch of old numbers lies over the table, and not four pixels beyond it."""
    visit = await visiting()
    await visit.fleet.begin({0: State.STRANDED})
    page = await visit.open("/agents/")
    await expect(page.locator("tbody tr").first).to_be_visible()
    beyond = "frame => [frame.scrollWidth - frame.clientWidth, frame.scrollHeight - frame.clientHeight]"
    assert await page.locator(".table-frame").evaluate(beyond) == [0, 0]


async def test_moment_of_a_clock_that_is_a_little_ahead_is_not_still_to_come(visiting: Visiting) -> None:
    """Less than 2 s are no future: `in 0.1 s` would be wrong, `in 5.0 s` is right."""
    visit = await visiting()
    await visit.fleet.begin()
    page = await visit.open("/agents/")
    texts = await page.evaluate("""async () => {
      const { adoptTimes } = await import("/static/dashboards/js/page.js");
      const root = document.createElement("p");
      for (const ms of [-20, -1900, 0, 2000, -5040]) {
        const time = Object.assign(document.createElement("time"), { innerHTML: '<span class="ago"></span>' });
        time.dataset.agoMs = ms;
        root.append(time);
      }
      adoptTimes(root);
      return [...root.children].map((time) => time.textContent);
    }""")
    assert texts == ["now", "now", "0.0 s ago", "2.0 s ago", "in 5.0 s"]
