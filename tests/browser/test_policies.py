"""The matrix of policies and the dialog of a value, in a real console."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Locator, Page, expect

from fleet.monitoring.state.policy_report_store import open_policy_report_store
from fleet.protocol.policies.env_policies import HTTP_CLOSE_VARIABLE
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.protocol.recovery.service_config import RFD_VARIABLE
from fleet.vocabulary.verdicts import State
from tests.browser.axe import accessible, accessible_everywhere
from tests.browser.conftest import Visiting
from tests.browser.visits import Visit
from tests.fakes.policy_nodes import PolicyNodes
from tests.fakes.rollout_worker import Node
from tests.flow.web import PREFIX

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

AUTH_TTL_LINK = f"a.cell-edit[href$='/policies/auth/{AUTH_TTL_VARIABLE}/']"


async def _visit(visiting: Visiting) -> Visit:
    """Begin a visit to a cluster with two auths and a proxy that reported their policies."""
    visit = await visiting(color_scheme="light")
    # A refused value is a response with status 400, which the browser logs.
    visit.expected.append("status of 400")
    await visit.fill([State.HEALTHY] * 4)
    nodes = PolicyNodes(
        Node("auth-1", environment={AUTH_TTL_VARIABLE: "10s"}), Node("auth-2"), Node("proxy-1", "proxy")
    )
    store = open_policy_report_store(visit.console.server.url, PREFIX)
    await asyncio.to_thread(store.write, visit.cluster, nodes.read_reports())
    return visit


async def _open_auth_ttl(page: Page) -> Locator:
    """Open the dialog of the announce TTL of all auths."""
    await expect(page.locator("#dialog")).to_be_attached()
    await page.click(AUTH_TTL_LINK)
    dialog = page.get_by_role("dialog", name="Auth announce TTL of all auths")
    await expect(dialog.get_by_label("Another value", exact=True)).to_be_focused()
    return dialog


async def test_typed_value_selects_its_option(visiting: Visiting) -> None:
    """*Not managed* does not stay selected; another option discards the text, so that what is selected counts."""
    visit = await _visit(visiting)
    page = await visit.open("/policies/")
    dialog = await _open_auth_ttl(page)
    await expect(dialog.locator(".values")).to_contain_text("10 s (env) auth-1")
    await expect(dialog.get_by_role("radio", name="Not managed")).to_be_checked()
    await page.keyboard.type("30 s")
    await expect(dialog.get_by_role("radio", name="Another value")).to_be_checked()
    await accessible_everywhere(page)
    await dialog.get_by_role("radio", name="1 min", exact=True).check()
    await expect(dialog.get_by_label("Another value", exact=True).last).to_have_value("")


async def test_edit_removes_the_error_of_the_previous_value(visiting: Visiting) -> None:
    """A refused value keeps its option and gets the focus; its error ends with the next edit."""
    visit = await _visit(visiting)
    page = await visit.open("/policies/")
    dialog = await _open_auth_ttl(page)
    await page.keyboard.type("abc")
    await dialog.get_by_role("button", name="Preview change").click()
    await expect(dialog.locator(".error")).to_contain_text(
        "'abc' is not a duration. Enter a number with its unit"
    )
    await expect(dialog.get_by_role("radio", name="Another value")).to_be_checked()
    field = dialog.locator("[name=value]")
    await expect(field).to_be_focused()
    await field.fill("30 s")
    await expect(dialog.locator(".error")).to_have_count(0)
    await expect(dialog.locator(".field-wrong")).to_have_count(0)
    await expect(field).not_to_have_attribute("aria-invalid", "true")


async def test_edit_removes_the_notice_that_nothing_changes(visiting: Visiting) -> None:
    """It was about the values that were submitted."""
    visit = await _visit(visiting)
    page = await visit.open("/policies/")
    dialog = await _open_auth_ttl(page)
    await dialog.get_by_role("button", name="Preview change").click()
    await expect(dialog.locator(".notice")).to_contain_text("o changes")
    await dialog.get_by_role("radio", name="1 min", exact=True).check()
    await expect(dialog.locator(".notice")).to_have_count(0)


async def test_form_fills_in_usual_values_and_marks_changes(visiting: Visiting) -> None:
    """A button fills in its value and is pressed while the field has it; a warning ends with its value."""
    visit = await _visit(visiting)
    page = await visit.open("/policies/auth/")
    ttl, mode = page.locator(f"#{AUTH_TTL_VARIABLE}"), page.locator(f"#{RFD_VARIABLE}")
    section = page.get_by_role("group", name="Auth announce TTL")
    await expect(section.locator(".values")).to_contain_text("10 s (env) auth-1")
    await section.get_by_role("button", name="1 min", exact=True).click()
    await expect(ttl).to_have_value("1 min")
    await expect(section.locator(".field-changed")).to_be_visible()
    await expect(section.get_by_role("button", name="1 min", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )
    await accessible(page)
    await ttl.fill("")
    await expect(section.locator(".field-changed")).to_have_count(0)
    await expect(section.get_by_role("button", name="Not managed")).to_have_attribute("aria-pressed", "true")
    modes = page.get_by_role("group", name="Agent reconnect mode", exact=True)
    await modes.get_by_role("button", name="Reconnect, with health check").click()
    await expect(mode).to_have_value(re.compile('"mode": "reconnect"'))
    await mode.fill("{")
    await page.click("text=Check values")
    await expect(modes.locator(".error")).to_be_visible()
    await modes.get_by_role("button", name="Not managed").click()
    await expect(modes.locator(".error, .field-changed")).to_have_count(0)


async def test_values_of_the_matrix_look_clickable(visiting: Visiting) -> None:
    """Values have a dotted line, also grey ones; their sources have none."""
    visit = await _visit(visiting)
    page = await visit.open("/policies/")
    line = "(element) => getComputedStyle(element).textDecorationStyle + getComputedStyle(element).textDecorationLine"
    for cell in (
        page.locator(f"{AUTH_TTL_LINK} .quiet"),
        page.locator(f"a.cell-edit[href$='/auth-1-id/{AUTH_TTL_VARIABLE}/'] .cell-now"),
        page.locator(f"a.cell-edit[href$='/auth-1-id/{HTTP_CLOSE_VARIABLE}/'] .cell-now"),
    ):
        assert await cell.evaluate(line) == "dottedunderline"
    source = page.locator(f"a.cell-edit[href$='/auth-1-id/{AUTH_TTL_VARIABLE}/'] .quiet")
    assert await source.evaluate(line) == "solidnone"
    await accessible(page)
