"""Gateways and tunnel servers: from Fleet now to their pages, which follow the polls."""

from __future__ import annotations

import asyncio
import time

import pytest
from playwright.async_api import expect

from fleet.vocabulary.verdicts import State
from tests.browser.axe import accessible_everywhere
from tests.browser.conftest import Visiting
from tests.browser.visits import Visit
from tests.dashboards.instances.edge_scene import name_edge_instances, poll_edge_instances

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Seconds that the polls are ahead of now, so that they are fresh for as long as a test runs.
AHEAD = 600.0


async def _poll(visit: Visit, *, is_failing: bool = False) -> None:
    record = visit.console.writer()
    await asyncio.to_thread(
        poll_edge_instances, record, visit.cluster, time.time() + AHEAD, is_failing=is_failing
    )


async def test_pages_follow_the_polls(visiting: Visiting) -> None:
    """A gateway that stops responding shows so without a reload, with its last report; both kinds are accessible."""
    visit = await visiting(viewport={"width": 1400, "height": 900})
    await visit.fill([State.HEALTHY] * 6)
    await visit.rows(name_edge_instances, visit.cluster)
    await _poll(visit)
    page = await visit.open("/")
    await expect(page.locator("#edge-instances tbody tr.instance")).to_have_count(3)
    await accessible_everywhere(page)
    await page.get_by_role("link", name="tunnel-1", exact=True).click()
    await expect(page.locator("#targets")).to_contain_text("edge-1")
    await accessible_everywhere(page)
    await page.goto(f"{visit.url}/edge-instances/gw-1/", wait_until="domcontentloaded")
    await expect(page.locator("#routes")).to_contain_text("Up to 3 retries after unavailable")
    await accessible_everywhere(page)
    await _poll(visit, is_failing=True)
    await expect(page.locator("#edge-instance .agent-verdict")).to_contain_text("not responding")
    await expect(page.locator("#routes")).to_contain_text("Up to 3 retries after unavailable")
