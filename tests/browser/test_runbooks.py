"""Runbooks: from an incident to the finished action, custom texts, and how the pages look and read."""

from __future__ import annotations

import time

import pytest
from playwright.async_api import Page, expect

from fleet.models.alerting import Silence
from fleet.models.changes import Change
from fleet.models.incidents import Incident
from fleet.models.runbooks import RunbookText
from fleet.vocabulary.incidents import Severity
from tests.browser.axe import accessible_everywhere
from tests.browser.conftest import Visiting
from tests.browser.operator import REASON, start_operator
from tests.browser.visits import Visit

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


def _create_incident(cluster: str) -> int:
    now = time.time()
    mark = [now - 60, 1.0, 2, 2, 3, "3 agents at risk.", True, False]
    return Incident.objects.create(
        cluster_id=cluster, key="proxy/proxy-1-id", cause_kind="proxy", cause_id="proxy-1-id", cause_name="proxy-1",
        generation=1, state="firing", severity=int(Severity.CRITICAL), opened_at=now - 60, fired_at=now - 30,
        summary="3 agents at risk.", marks={"Agents at risk": mark},
    ).pk  # fmt: skip


def _read_change(cluster: str) -> str:
    return Change.objects.get(cluster=cluster).kind


def _read_silence(cluster: str) -> tuple[str, str]:
    row = Silence.objects.get(cluster=cluster)
    return row.matchers, row.reason


def _read_text(cluster: str) -> str:
    return RunbookText.objects.get(cluster=cluster).text


def _write_text(cluster: str, text: str) -> None:
    RunbookText.objects.create(
        cluster=cluster, cause="proxy", text=text, updated_at=time.time(), updated_by="ada"
    )


async def _begin(visiting: Visiting) -> tuple[Visit, int]:
    visit = await visiting()
    await visit.fleet.begin()
    return visit, await visit.rows(_create_incident, visit.cluster)


async def _open(visit: Visit, incident: int) -> Page:
    page = await visit.open(f"/alerts/runbooks/proxy/?incident={incident}")
    await expect(page.locator("#dialog")).to_be_attached()
    return page


async def test_incident_leads_to_the_finished_action(visiting: Visiting) -> None:
    """Incidents, the incident, its runbook, the button, Take out of service: proxy-1 is selected all the way."""
    visit, incident = await _begin(visiting)
    operator = await start_operator(visit)
    await operator.open_section("Incidents")
    await operator.click(operator.page.locator(f"a[href$='/incidents/{incident}/']").first)
    await operator.click(operator.page.get_by_role("link", name="Open runbook"))
    await expect(operator.page.get_by_role("heading", name="Present state")).to_be_visible()
    await expect(operator.page.locator("#repair")).to_contain_text(f"Incident {incident}")
    await operator.click(operator.page.get_by_role("link", name="Take proxy-1 out of service…"))
    dialog = operator.page.get_by_role("dialog", name="Take proxy-1 out of service")
    await dialog.get_by_label("Reason").fill(REASON)
    if await dialog.get_by_text("type the cluster's name").count():
        await dialog.locator("[name=confirmation]").fill(visit.cluster)
    await operator.click(dialog.get_by_role("button", name="Take proxy-1 out of service"))
    await operator.page.wait_for_url("**/changes/*/")
    assert operator.click_count == 5
    assert await visit.rows(_read_change, visit.cluster) in ("service", "reconnect")


async def test_keyboard_silences_the_incident(visiting: Visiting) -> None:
    """Enter on the button opens the form of exactly this incident; the runbook is back afterwards."""
    visit, incident = await _begin(visiting)
    page = await _open(visit, incident)
    await page.get_by_role("link", name=f"Silence incident {incident}…").focus()
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Silence proxy-1")
    await dialog.get_by_label("Reason").fill(REASON)
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/incidents/{incident}/")
    assert await visit.rows(_read_silence, visit.cluster) == ("cause=proxy/proxy-1-id", REASON)


async def test_custom_text_is_written_in_a_dialog(visiting: Visiting) -> None:
    """And shown on the runbook of the incident, with its link."""
    visit, incident = await _begin(visiting)
    page = await _open(visit, incident)
    await page.get_by_role("link", name="Add text…").click()
    dialog = page.get_by_role("dialog", name="Custom text: Proxy failed")
    # Other tests share the installation.
    await dialog.get_by_role("link", name=f"Edit the text for the cluster {visit.cluster} instead").click()
    await expect(dialog).to_contain_text(f"Scope: cluster {visit.cluster}.")
    await dialog.get_by_label("Custom text").fill("Call Ada.\nhttps://wiki.example.com/proxy")
    await dialog.get_by_role("button", name="Save text").click()
    section = page.get_by_role("region", name="Custom text")
    await expect(section.get_by_role("link", name="https://wiki.example.com/proxy")).to_be_visible()
    assert page.url.endswith(f"?incident={incident}")
    assert await visit.rows(_read_text, visit.cluster) == "Call Ada.\nhttps://wiki.example.com/proxy"


async def test_pages_of_runbooks_are_accessible(visiting: Visiting) -> None:
    """The list, a runbook with an incident and a text without breaks, and the form of the text."""
    visit, incident = await _begin(visiting)
    await visit.rows(_write_text, visit.cluster, f"https://wiki.example.com/{'long' * 60}\n\nCall Ada.")
    await accessible_everywhere(await visit.open("/alerts/runbooks/"))
    page = await _open(visit, incident)
    await accessible_everywhere(page)
    await page.get_by_role("link", name="Edit text…").click()
    await expect(page.get_by_role("dialog").get_by_label("Custom text")).to_be_focused()
    await accessible_everywhere(page)
