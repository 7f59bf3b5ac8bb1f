"""The editor, a plan and the log in a real console: two people at once, axe, and 360 pixels."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from playwright.async_api import expect

from fleet.changes.networking import revisions
from fleet.protocol.networking.config import NetworkingConfig, NetworkingResource, with_defaults
from fleet.vocabulary.verdicts import State
from tests.browser.axe import accessible
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


def _remember(cluster: str, revision: str, web_idle_timeout: float) -> None:
    """Do what a worker does that has read this config."""
    config = with_defaults(
        NetworkingConfig(
            tunnel_strategy="proxy_peering", agent_connection_count=1, web_idle_timeout=web_idle_timeout
        )
    )
    resource = NetworkingResource(config, {"teleport.dev/origin": "dynamic"}, revision)
    revisions.record_revision(cluster, resource, datetime.now(UTC))


async def test_invalid_field_is_marked_and_found(visiting: Visiting) -> None:
    """While it is typed, after a refusal also in a collapsed section, and until it is edited."""
    visit = await visiting(color_scheme="light")
    await visit.fill([State.HEALTHY] * 4)
    await visit.rows(_remember, visit.cluster, "r1", 0)
    page = await visit.open("/networking/")
    section, field = page.locator("#teleport-fields"), page.locator("#id_web_idle_timeout")
    link = page.get_by_role("link", name="1 field with an invalid value")
    await section.locator("summary").click()
    await field.fill("soon")
    await expect(page.locator("#id_web_idle_timeout_error")).to_contain_text("'soon' is not a duration")
    await expect(page.locator(".field-wrong #id_web_idle_timeout[aria-invalid=true]")).to_be_visible()
    await expect(page.locator(".forecast[aria-busy]")).to_have_count(0)
    await accessible(page)
    await section.locator("summary").click()
    await page.evaluate("scrollTo(0, 0)")
    await link.click()
    await expect(field).to_be_focused()
    await expect(field).to_be_in_viewport()
    await field.fill("5 min")
    await expect(page.locator(".field-wrong, #config .error")).to_have_count(0)

    await field.fill("later")
    await page.evaluate("scrollTo(0, 0)")
    await page.click("text=Preview change")
    await expect(page.locator("#id_web_idle_timeout_error")).to_contain_text("'later' is not a duration")
    await expect(field).to_be_focused()
    await expect(field).to_be_in_viewport()
    await field.fill("")
    await expect(page.locator(".field-wrong, #config .error")).to_have_count(0)


async def test_edit_removes_the_notice_that_nothing_changes(visiting: Visiting) -> None:
    """It was about the values that were submitted."""
    visit = await visiting()
    await visit.fill([State.HEALTHY] * 4)
    await visit.rows(_remember, visit.cluster, "r1", 0)
    page = await visit.open("/networking/")
    await page.click("text=Preview change")
    await expect(page.locator("main > .notice")).to_contain_text("o changes")
    await page.click("[data-count='2']")
    await expect(page.locator("main > .notice")).to_have_count(0)


async def test_second_of_two_rebases_and_plans(visiting: Visiting) -> None:
    """The three versions, the rebased edit, then the plan with its question; every page is accessible."""
    visit = await visiting(color_scheme="light")
    await visit.rows(_remember, visit.cluster, "r1", 0)
    page = await visit.open("/networking/")
    await page.fill("#id_keep_alive_interval", "9 h")
    await page.click("text=Preview change")
    await expect(page.locator("#id_keep_alive_interval_error")).to_contain_text("out of range")
    await page.fill("#id_keep_alive_interval", "30 s")
    # The forecast is grey until it is that of the new value.
    await expect(page.locator("#id_keep_alive_interval_error, .forecast[aria-busy]")).to_have_count(0)
    await accessible(page)

    await visit.rows(_remember, visit.cluster, "r2", 60)
    await page.click("text=Preview change")
    await expect(page.locator("#three-way tbody tr")).to_have_count(2)
    await accessible(page)
    await page.click("text=Plan again with current values")
    await expect(page.locator("#id_web_idle_timeout")).to_have_value("1 min")
    await expect(page.locator("#id_keep_alive_interval")).to_have_value("30 s")
    await page.click("button[value=yaml]")
    await expect(page.locator("#yaml")).to_contain_text("keep_alive_interval: 30s")
    await accessible(page)
    await page.click("button[value=form]")
    await page.check("#id_graceful_tunnel_closing")
    await visit.fill([State.HEALTHY] * 4)
    await page.click("text=Preview change")
    await expect(page.locator("h1")).to_contain_text("No tunnels close now.")
    await accessible(page)
    await page.goto(f"{visit.url}/audit/?outcome=refused")
    await expect(page.locator("tbody tr")).to_have_count(2)
    await accessible(page)
    await page.goto(f"{visit.url}/changes/")
    await accessible(page)
