"""A campaign in a real console, from the choice to its results, and the log of it: axe, and 360 pixels."""

from __future__ import annotations

import asyncio
import json

import pytest
from playwright.async_api import Page, expect

from fleet.changes.campaigns import campaigns
from fleet.changes.campaigns.run import CampaignRunner
from fleet.models.changes import Change
from fleet.vocabulary.verdicts import State
from tests.browser.axe import accessible
from tests.browser.conftest import Visiting
from tests.browser.visits import Visit
from tests.fakes.campaign_fleet import CampaignFleet
from tests.fakes.step_contexts import InMemoryReader, create_step_context
from tests.flow.web import USERNAME

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="session"),
]

AGENTS = 150


def _work(cluster: str, until: int) -> None:
    """Step the campaign as a worker does, on a clock of its own, until so many agents have moved.

    Every tenth agent stays where it is, so the first canary too.
    """
    change = Change.objects.select_related("cluster").get(cluster=cluster)
    rows = list(change.campaign_agents.all())
    movers = CampaignFleet(
        {
            row.agent_id: {2} if row.state == "succeeded" else {int(row.agent_id.split("-")[1]) % 2}
            for row in rows
        }
    )
    movers.stubborn_agents = {row.agent_id for row in rows if row.position % 10 == 0}
    now = change.progress.get("stepped_at", change.created_at.timestamp())
    for _ in range(400):
        now += 1
        _step(change, movers, now)
        movers.move()
        change.refresh_from_db()
        if campaigns.counts_of(change).succeeded_count >= until or change.state not in (
            "confirmed",
            "running",
        ):
            break


def _step(change: Change, movers: CampaignFleet, now: float) -> None:
    """Make one step at that moment."""
    fleet = create_step_context(
        lambda: now, reader=InMemoryReader(movers.table), writer=movers, dialer=movers
    )
    CampaignRunner().step(change, fleet)


async def test_campaign_from_choice_to_log(visiting: Visiting) -> None:
    """Chosen, planned, confirmed by number, reason and name; watched, paused, resumed, aborted; read in the log."""
    visit = await visiting(color_scheme="light")
    # What is refused is a 400 with the page in it; a browser mentions that.
    visit.expected.append("status of 400")
    await visit.fill([State.HEALTHY] * AGENTS, proxies=3)
    page = await visit.open("/reconnect/")
    await _choose_and_plan(page)
    await _confirm(page, visit.cluster)
    await _watch(page, visit)
    await _log(page, visit)


async def _choose_and_plan(page: Page) -> None:
    await page.click("#advanced > summary")
    await page.fill("#rate_per_minute", "fast")
    await page.click("text=Preview campaign")
    await expect(page.locator("#rate_per_minute-error")).to_contain_text("whole number from 1")
    await expect(page.locator("#q-error")).to_have_count(0)
    await accessible(page)
    await page.fill("#rate_per_minute", "1200")
    await page.fill("#q", "agent")
    await expect(page.locator("#forecast")).to_contain_text(f"{AGENTS} of {AGENTS} matching agents")
    await page.fill("#timeout_seconds", "5 s")
    await page.fill("#soak_seconds", "0 s")
    await page.fill("#failure_threshold_percent", "50")
    await page.click("text=Preview campaign")
    await expect(page.locator("h1")).to_have_text(f"Reconnect {AGENTS} agents to another proxy?")
    await expect(page.locator("#campaign")).to_contain_text("Loads before and after")
    await accessible(page)


async def _confirm(page: Page, cluster: str) -> None:
    agree = page.locator("section[aria-labelledby=confirm-title] .button-main")
    await expect(agree).to_have_text(f"Reconnect {AGENTS} agents")
    await agree.click()
    await expect(page.locator("#reason-error")).to_contain_text("Enter a reason")
    await expect(page.locator("#confirmation-error")).to_contain_text("give the name of the cluster")
    await page.fill("#reason", "spread them over the new proxy")
    await page.fill("#confirmation", cluster)
    await agree.click()
    await expect(page.locator("#change-state .tag")).to_have_text("confirmed")


async def _watch(page: Page, visit: Visit) -> None:
    """Each step is visible without a reload."""
    await visit.rows(_work, visit.cluster, AGENTS)
    await expect(page.locator("#change-state .tag")).to_have_text("paused")
    await expect(page.locator("#change-state")).to_contain_text("one of the first agents failed")
    await page.click("button[value=resume]")
    await expect(page.locator("#change-state .tag")).to_have_text("running")
    await visit.rows(_work, visit.cluster, 40)
    await expect(page.locator("#campaign .figures .tag-succeeded dd")).not_to_have_text("0")
    await page.wait_for_function("() => document.querySelector('#campaign progress').value >= 40")
    finished_row = page.locator("#results tbody tr", has=page.locator(".tag-succeeded")).first
    await expect(finished_row.locator(".moment")).to_contain_text(" s")
    await expect(finished_row.locator("td").nth(2)).to_contain_text("proxy-")
    await accessible(page)
    await page.click("#campaign nav >> text=Failed")
    await expect(page.locator("#results tbody tr").first).to_contain_text(
        "did not connect to another proxy within 5 s"
    )
    await page.click("button[value=pause]")
    await expect(page.locator("#change-state")).to_contain_text(f"paused by {USERNAME}")
    await page.click("text=Abort campaign…")
    await expect(page.locator("#dialog #dialog-consequences, #dialog #consequences")).to_contain_text(
        "do not move"
    )
    await accessible(page)
    # What stays changes while somebody reads it.
    consequences = page.locator("#dialog [data-dialog-refresh]")
    await consequences.evaluate("list => (list.textContent = 'of a moment ago')")
    await expect(consequences).not_to_have_text("of a moment ago")
    await expect(consequences).to_contain_text("move")
    await page.click("#dialog .button-main")
    await expect(page.locator("#change-state .tag")).to_have_text("aborted")
    await expect(page.locator("#campaign .status-line")).to_contain_text(f"of {AGENTS} agents moved")
    await expect(page.locator("button[value=resume]")).to_have_count(0)
    await accessible(page)


async def _log(page: Page, visit: Visit) -> None:
    """Its attempts, the newest first, the same in the file."""
    await page.goto(f"{visit.url}/audit/")
    await page.fill("input[name=q]", "reconnect")
    await page.select_option("select[name=outcome]", "refused")
    await page.click("text=Apply filters")
    # The confirmation without a reason was no attempt.
    await expect(page.locator("tbody tr")).to_have_count(1)
    await accessible(page)
    await page.select_option("select[name=outcome]", "")
    await page.click("text=Apply filters")
    await expect(page.locator("tbody tr").first).to_contain_text("aborted the reconnect campaign")
    row_count = await page.locator("tbody tr").count()
    async with page.expect_download() as download_info:
        await page.click("text=JSON")
    text = await asyncio.to_thread((await (await download_info.value).path()).read_text)
    lines = [json.loads(line) for line in text.splitlines()]
    assert len(lines) == row_count
    assert {"reconnect.paused", "reconnect.running", "reconnect.cancelled"} <= {
        line["action"] for line in lines
    }
    assert all(line["request_id"] for line in lines if line["actor_kind"] == "person")
