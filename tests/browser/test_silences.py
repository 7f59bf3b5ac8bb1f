"""Silences and maintenance windows in a real console, in Chromium: dialogs by pointer, keyboard and on a phone."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from fleet.models.alerting import MaintenanceWindow, Silence
from fleet.vocabulary.verdicts import State
from tests.browser.axe import accessible, accessible_everywhere
from tests.browser.visits import Visit, Visitor
from tests.fakes import incident_rows

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

_PHONE = {"width": 360, "height": 780}
_WIDE = {"width": 1400, "height": 900}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visit(visitor: Visitor) -> AsyncIterator[Visit]:
    """A cluster with incidents and four agents."""
    visit = await visitor.begin(color_scheme="light", viewport=_WIDE, timezone_id="Europe/Berlin")
    await visit.rows(incident_rows.write, visit.cluster)
    await visit.fill([State.STRANDED, State.HEALTHY, State.STRANDED, State.HEALTHY])
    yield visit
    await visit.end()


@pytest_asyncio.fixture(loop_scope="session")
async def page(visit: Visit) -> AsyncIterator[Page]:
    """A page, and no silences or windows but those of the test."""
    await visit.rows(_clear, visit.cluster)
    page = await visit.new_page()
    yield page
    await page.close()


def _clear(cluster: str) -> None:
    Silence.objects.filter(cluster=cluster).delete()
    MaintenanceWindow.objects.filter(cluster=cluster).delete()


def _read_silences(cluster: str) -> list[tuple[str, str, int]]:
    rows = Silence.objects.filter(cluster=cluster).order_by("pk")
    return [(row.matchers, row.reason, round(row.ends_at - row.starts_at)) for row in rows]


def _read_windows(cluster: str) -> list[tuple[str, str, str]]:
    rows = MaintenanceWindow.objects.filter(cluster=cluster).order_by("pk")
    return [(row.name, row.rule, f"{row.start_time:%H:%M} {row.time_zone}") for row in rows]


async def _fits(page: Page) -> None:
    """The page and its dialog are not wider than the window."""
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    is_dialog_fitting = "(dialog) => dialog.scrollWidth <= dialog.clientWidth"
    assert await page.locator("#dialog").evaluate(is_dialog_fitting)


async def test_incident_is_silenced_for_two_hours_and_again_heard(page: Page, visit: Visit) -> None:
    """From the list: Silence, the reason, 2 h, confirm. The page says who, until when, and ends it."""
    await page.goto(f"{visit.url}/incidents/")
    await expect(page.locator("#dialog")).to_be_attached()
    await page.locator("#incident-list .row-act a").first.click()
    dialog = page.locator("#dialog")
    await expect(dialog.locator("[name=reason]")).to_be_focused()
    await accessible_everywhere(page)
    await page.keyboard.type("x")
    await dialog.locator(".button-main").click()
    assert await page.evaluate("document.activeElement.validity.tooShort")
    await page.keyboard.type(" new disks")
    await dialog.locator(".chip", has_text="2 h").click()
    await expect(dialog.locator("[data-preview-target]")).to_contain_text(
        "No new notifications about proxy-1 until"
    )
    await expect(dialog.locator("[data-preview-target]")).to_contain_text("is still sent to ops")
    await dialog.locator(".button-main").click()
    note = page.locator(".silenced-note")
    await expect(note).to_contain_text(re.compile(r"Silenced until .*UTC by .*: x new disks"))
    assert await visit.rows(_read_silences, visit.cluster) == [
        ("cause=proxy/proxy-1-id", "x new disks", 7200)
    ]
    await note.get_by_role("link", name="Extend…").click()
    await dialog.get_by_role("button", name="Extend by 30 min").click()
    await expect(page.locator(".messages")).to_contain_text("The silence now ends at")
    assert (await visit.rows(_read_silences, visit.cluster))[0][2] == 9000
    await note.get_by_role("button", name="End silence").click()
    await expect(note).to_be_hidden()


async def test_link_of_a_notification_opens_a_dialog_on_a_phone(page: Page, visit: Visit) -> None:
    """It changes nothing by itself, fits, and does not open again after a reload."""
    await page.set_viewport_size(_PHONE)
    await page.goto(f"{visit.url}/incidents/")
    path = await page.locator("#incident-list tbody th a").first.get_attribute("href")
    for name in ("silence", "acknowledge"):
        await page.goto(f"{visit.console.url}{path}?open={name}")
        await expect(page.locator("#dialog .button-main")).to_be_in_viewport()
        await _fits(page)
        await accessible_everywhere(page)
        assert "open=" not in page.url
        await page.keyboard.press("Escape")
        await expect(page.locator("#dialog")).to_be_hidden()
    assert await visit.rows(_read_silences, visit.cluster) == []


async def test_agents_are_silenced_by_name_with_the_keyboard_alone(page: Page, visit: Visit) -> None:
    """Suggestions come from the server; each Enter adds a condition; what is refused stays in the dialog."""
    await page.goto(f"{visit.url}/silences/")
    await expect(page.locator("#dialog")).to_be_attached()
    await page.get_by_role("link", name="New silence…").focus()
    await page.keyboard.press("Enter")
    dialog = page.locator("#dialog")
    value = dialog.locator("[name=condition_value]")
    await value.focus()
    await page.keyboard.type("agent-")
    await expect(dialog.locator("datalist option")).to_have_count(4)
    for name in ("agent-1", "odd 'name\""):
        await value.fill(name)
        await page.keyboard.press("Enter")
        await expect(dialog.locator(".token", has_text=name)).to_be_visible()
        await expect(value).to_be_focused()
    await accessible_everywhere(page)
    await dialog.locator(".token-remove").first.press("Enter")
    await expect(dialog.locator(".token")).to_have_count(1)
    await value.fill("agent-2")
    await page.keyboard.press("Enter")
    await expect(dialog.locator("[data-preview-target]")).to_contain_text("Matches 1 agent")
    await dialog.locator("[name=reason]").fill("new disks")
    await dialog.locator("[name=reason]").press("Enter")
    await expect(page.locator(".silence-table")).to_contain_text("agent odd 'name\" or agent-2")
    assert len(await visit.rows(_read_silences, visit.cluster)) == 1
    # The same once more is refused, with a link to extend the first one.
    await page.get_by_role("link", name="New silence…").click()
    await dialog.locator("summary", has_text="matchers").click()
    await dialog.locator("[name=matchers]").fill("agent=agent-2|'odd '\\''name\"'")
    await dialog.locator("[name=reason]").fill("typed again")
    await dialog.locator(".button-main").click()
    await expect(dialog.get_by_role("link", name="Extend that silence")).to_be_visible()
    await expect(dialog.locator("[name=reason]")).to_have_value("typed again")


async def test_window_is_planned_changed_and_deleted(page: Page, visit: Visit) -> None:
    """By toggles; the sentence follows; the calendar draws it; a refused form stays in its dialog."""
    await page.goto(f"{visit.url}/silences/")
    await expect(page.locator("#dialog")).to_be_attached()
    await page.get_by_role("link", name="New maintenance window…").click()
    dialog = page.locator("#dialog")
    await dialog.locator("[name=name]").fill("backups")
    await dialog.locator("[name=condition_field]").select_option("cause")
    await dialog.locator("[name=condition_value]").fill("proxy-1")
    await dialog.locator("[name=condition_value]").press("Enter")
    await expect(dialog.locator(".token")).to_contain_text("proxy-1")
    await expect(dialog.locator("[name=time_zone]")).to_have_value("Europe/Berlin")
    await dialog.locator(".chip", has_text="Sat").click()
    preview = dialog.locator("[data-preview-target]")
    await expect(preview).to_contain_text(
        "Every Saturday and Sunday from 02:00 to 04:00 Europe/Berlin; next:"
    )
    await dialog.locator("[name=reason]").fill("weekly backup")
    await accessible_everywhere(page)
    await dialog.locator("[name=time_zone]").fill("Mars/Base")
    await dialog.locator(".button-main").click()
    await expect(dialog.locator(".field-wrong")).to_contain_text("was not found")
    await expect(dialog.locator("[name=reason]")).to_have_value("weekly backup")
    await dialog.locator("[name=time_zone]").fill("Asia/Tokyo")
    await dialog.locator(".button-main").click()
    await expect(page.locator(".window-table")).to_contain_text("backups")
    assert await visit.rows(_read_windows, visit.cluster) == [
        ("backups", "FREQ=WEEKLY;BYDAY=SA,SU", "02:00 Asia/Tokyo")
    ]
    # Two in each week; the first ones may be over by now.
    await expect(page.locator(".calendar-track .bar-window").nth(2)).to_be_visible()
    await accessible_everywhere(page)
    await page.set_viewport_size(_PHONE)
    await _fits(page)
    await page.get_by_role("link", name="Edit… backups").click()
    await dialog.locator(".chip", has_text="Every day").click()
    await _fits(page)
    await dialog.locator(".button-main").click()
    await expect(page.locator(".window-table")).to_contain_text("Every day from 02:00")
    await page.get_by_role("link", name="Delete… backups").click()
    await expect(dialog.locator("[data-dialog-close].button")).to_be_focused()
    await dialog.locator(".button-main").click()
    await expect(page.locator(".window-table")).to_contain_text("No maintenance windows.")
    await accessible(page)


async def test_forms_work_without_scripts(visit: Visit) -> None:
    """A condition is added and removed by the server, and the silence is created."""
    await visit.rows(_clear, visit.cluster)
    state = await visit.context.storage_state()
    browser = visit.context.browser
    assert browser is not None
    context = await browser.new_context(java_script_enabled=False, storage_state=state, viewport=_PHONE)
    page = await context.new_page()
    await page.goto(f"{visit.url}/silences/")
    await page.get_by_role("link", name="New silence…").click()
    for name in ("agent-1", "agent-2"):
        await page.fill("#condition-value", name)
        await page.get_by_role("button", name="Add condition").click()
    await page.get_by_role("button", name="Remove the condition Agent is agent-1").click()
    await page.fill("[name=reason]", "new disks")
    await page.locator("label", has_text="8 h").click()
    await page.get_by_role("button", name="Create silence").click()
    await expect(page.locator(".silence-table")).to_contain_text("agent agent-2")
    assert await visit.rows(_read_silences, visit.cluster) == [("agent=agent-2", "new disks", 28800)]
    await context.close()
