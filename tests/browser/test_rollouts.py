"""Policies in a real console: the matrix, an edit with its preview, the plan, two at once, and a rollout as it goes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from fleet.monitoring.state.policy_report_store import open_policy_report_store
from fleet.protocol.policies.env_policies import HTTP_CLOSE_VARIABLE
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.protocol.recovery.service_config import RFD_VARIABLE
from tests.browser.axe import accessible
from tests.browser.conftest import Visiting
from tests.browser.visits import Visit, Visitor
from tests.fakes import rollout_worker
from tests.fakes.waiting import eventually
from tests.flow.web import PASSWORD, PREFIX

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="session"),
]

POLICY = json.dumps(
    {
        "grpc_client_lb_policy": {
            "loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect"}}],
            "healthCheckConfig": {"serviceName": ""},
        }
    }
)


@pytest_asyncio.fixture(loop_scope="session")
async def visit(visiting: Visiting) -> AsyncIterator[Visit]:
    """A cluster whose three auths and two proxies reported their policies, with a worker that rolls out changes."""
    visit = await visiting(color_scheme="light")
    # What is refused is a 400 with the page in it; a browser mentions that.
    visit.expected.append("status of 400")
    book = open_policy_report_store(visit.console.server.url, PREFIX)
    with rollout_worker.run_rollout_worker(visit.console, visit.cluster):
        await eventually(lambda: len(book.read(visit.cluster)) == 5)
        yield visit


async def test_edit_preview_plan_and_rollout(visit: Visit, visitor: Visitor) -> None:
    """From the matrix to a rollout that ends: what is wrong at its field, both dialects, numbers, three versions,
    progress that moves by itself; every page can be used by all."""
    page = await visit.open("/policies/")
    await expect(page.locator(".matrix tbody tr")).to_have_count(7)
    await accessible(page)
    await asyncio.to_thread(visit.console.add_user, "grace", "config admin")
    second_visit = await visitor.begin(cluster=visit.cluster, username="grace")
    second_page = await second_visit.open("/policies/auth/")

    await page.click("text=All auths")
    await page.fill(f"#{RFD_VARIABLE}", '{"grpc_client_lb_policy": {"mdoe": 1}}')
    await page.fill(f"#{AUTH_TTL_VARIABLE}", "soon")
    await page.fill("#concurrency", "0")
    await page.click("text=Preview change")
    await expect(page.locator("#concurrency-error")).to_contain_text("whole number from 1 to 10")
    await expect(page.locator(f"#{RFD_VARIABLE}-error")).to_contain_text("is not a field")
    await expect(page.locator(f"#{AUTH_TTL_VARIABLE}-error")).to_contain_text("soon")
    await accessible(page)

    await page.fill("#concurrency", "1")
    await page.fill(f"#{RFD_VARIABLE}", POLICY)
    await page.fill(f"#{AUTH_TTL_VARIABLE}", "30s")
    await page.click("text=Check values")
    await expect(page.get_by_label("Service config for RFD 226 agents")).to_contain_text(
        '"mode": "reconnect"'
    )
    await expect(page.get_by_label("Service config for Teleport agents")).to_contain_text("MODE_RECONNECT")
    await expect(page.locator("text=3 auths, TTL 10 min to 30 s")).to_be_visible()
    await accessible(page)

    # Somebody else is quicker.
    await second_page.select_option(f"#{HTTP_CLOSE_VARIABLE}", "true")
    await second_page.uncheck("#roll_out")
    await second_page.click("text=Preview change")
    await expect(second_page.locator("h1")).to_contain_text(", without restarts?")
    await second_page.fill("#reason", "clients hang")
    await second_page.click(".panel-actions .button-main")
    await _prove(second_page)
    await expect(second_page.locator("#change-state .tag")).to_have_text("verified")

    await page.fill("#soak_seconds", "8 s")
    await page.fill("#drain_seconds", "0 s")
    await page.click("text=Preview change")
    await expect(page.locator("#three-way tbody tr")).to_have_count(3)
    await accessible(page)
    await page.click("text=Plan again with current values")
    await expect(page.locator(f"#{HTTP_CLOSE_VARIABLE}")).to_have_value("true")
    await expect(page.locator(f"#{AUTH_TTL_VARIABLE}")).to_have_value("30 s")
    await page.click("text=Preview change")
    await expect(page.locator("h1")).to_contain_text(", and restart 3 auths with 6 connected agents?")
    await expect(page.locator("text=Heartbeat writes per second")).to_be_visible()
    await accessible(page)
    await page.fill("#reason", "agents must move")
    await page.click(".panel-actions .button-main")
    await _prove(page)
    await expect(page.locator("#rollout progress")).to_have_attribute("value", re.compile("[12]"))
    await accessible(page)
    await expect(page.locator("#change-state .tag")).to_have_text("verified")
    await expect(page.locator("#rollout .steps .tag-succeeded.tag")).to_have_count(3)
    await page.reload()
    await expect(page.locator("text=Undo change")).to_be_visible()
    await accessible(page)

    await page.goto(f"{visit.url}/policies/")
    await expect(page.locator("td .tag-matches")).to_have_count(9)
    await accessible(page)
    await second_visit.end()


async def _prove(page: Page) -> None:
    """Reauthenticate where the page requires it."""
    await page.wait_for_load_state()
    if "reauthenticate" in page.url:
        await page.fill("input[type=password]", PASSWORD)
        await page.click("main button[type=submit]")
    await page.wait_for_url("**/changes/*/")
