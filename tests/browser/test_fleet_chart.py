"""The chart of 24 h on Fleet now, in a browser: by keyboard, and with links to the past."""

from __future__ import annotations

import re
import time
from datetime import datetime

import numpy as np
import pytest
from playwright.async_api import Page, expect

from fleet.models.history import FleetMinute
from fleet.models.incidents import Incident
from fleet.monitoring.history.minutes import pack_groups
from fleet.monitoring.state.outbox import GROUP_COUNT
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


def _save_fault(cluster: str, now: float) -> None:
    """Write 20 h of minutes with a fault, and an incident that lasts."""
    groups = pack_groups(np.zeros(0, GROUP_COUNT), np.zeros(1, np.int64))
    end = now // 60 * 60
    FleetMinute.objects.bulk_create(
        FleetMinute(
            cluster_id=cluster, at=end - 60 * age, state_counts=b"", groups=groups,
            stranded_peak=67 if 100 < age < 160 else 0, at_risk_peak=80 if 150 < age < 170 else 0,
        )
        for age in range(1, 1200)
    )  # fmt: skip
    Incident.objects.create(
        cluster_id=cluster, key="proxy/p", cause_kind="proxy", cause_id="p", cause_name="proxy-1", generation=1,
        state="firing", severity=2, opened_at=end - 9000, fired_at=end - 9000, summary="67 agents stranded.",
    )  # fmt: skip


async def _open_chart(visiting: Visiting) -> Page:
    visit = await visiting(color_scheme="light")
    await visit.fleet.begin()
    await visit.rows(_save_fault, visit.cluster, time.time())
    page = await visit.open("/")
    await expect(page.locator("#fleet-chart-summary")).to_contain_text("67 agents stranded")
    return page


async def test_only_the_table_has_tab_stops(visiting: Visiting) -> None:
    """Tab goes from the link above the chart to its table; the table has the links of the chart."""
    page = await _open_chart(visiting)
    await page.get_by_role("link", name="View on map").focus()
    await page.keyboard.press("Tab")
    await expect(page.locator("#fleet-chart-table summary")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Tab")
    hour = page.locator("#fleet-chart-periods tbody a").first
    await expect(hour).to_be_focused()
    await expect(hour).to_have_attribute("href", re.compile(r"/\?peak_of=20.*Z$"))
    await expect(page.get_by_role("link", name="Incident")).not_to_have_count(0)


async def test_quarters_of_an_hour_link_to_the_past(visiting: Visiting) -> None:
    """Where the mouse is, the chart leads to its time."""
    page = await _open_chart(visiting)
    plot = page.locator(".chart-plot")
    box = await plot.bounding_box()
    assert box is not None
    link = await page.evaluate(
        "([x, y]) => document.elementFromPoint(x, y).closest('a').getAttribute('href')",
        [box["x"] + box["width"] * 0.92, box["y"] + 40],
    )
    at = datetime.fromisoformat(link.partition("?peak_of=")[2]).timestamp()
    # The band has 15 min, and the chart ends with the minute.
    assert abs(at - (time.time() - 0.08 * 86_400)) < 1000


async def test_chart_shows_a_failure_with_the_headline(visiting: Visiting) -> None:
    """Its minute is not over: the chart ends with the counts of the newest poll, without a reload."""
    visit = await visiting()
    await visit.fleet.begin()
    await visit.rows(_save_fault, visit.cluster, time.time())
    page = await visit.open("/")
    await expect(page.locator("#link-state")).to_contain_text("on")
    await expect(page.locator(".chart-now")).to_have_count(0)
    await visit.fleet.silence(0, 1)
    await expect(page.locator("#headline-text")).to_contain_text("100 agents stranded")
    await expect(page.locator("#fleet-chart-summary")).to_contain_text("100 agents stranded (first at ")
    await expect(page.locator(".chart-now title")).to_have_text(
        re.compile(r"^100 stranded at \d\d:\d\d UTC$")
    )
