"""The audit log: entries have pages, and the time range is explained where it is wrong."""

from __future__ import annotations

import re

import pytest
from django.utils import timezone
from playwright.async_api import expect

from fleet.audit import Attempt, write_entry
from fleet.vocabulary.actions import AuditAction
from fleet.vocabulary.changes import Actor, ActorKind
from tests.browser.axe import accessible_everywhere
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


def _write_retirement(cluster: str) -> None:
    attempt = Attempt(
        Actor(ActorKind.PERSON, "ada", 1),
        AuditAction.AGENT_RETIRE,
        cluster,
        "agent-66",
        before={"agent": "id-66", "is_retired": False},
        after={"agent": "id-66", "is_retired": True},
        reason="scrapped",
    )
    write_entry(attempt, "succeeded", timezone.now())


async def test_time_of_an_entry_leads_to_its_page(visiting: Visiting) -> None:
    """The page has the action, what it changed, and the document after it; axe finds nothing on the page."""
    visit = await visiting(color_scheme="light", viewport={"width": 1400, "height": 900})
    await visit.fleet.begin()
    await visit.rows(_write_retirement, visit.cluster)
    page = await visit.open("/audit/?actor=ada")
    await page.get_by_role("rowheader").get_by_role("link").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("ada retired agent-66")
    await expect(page.locator(".diff-key")).to_have_text("is_retired")
    await page.get_by_text("After: all values as JSON").click()
    await expect(page.get_by_role("region", name="After")).to_contain_text('"is_retired": true')
    await accessible_everywhere(page)


async def test_wrong_time_is_explained_beside_what_was_typed(visiting: Visiting) -> None:
    """The sentence belongs to its field, and a range that ends now is one click away."""
    visit = await visiting(color_scheme="light", viewport={"width": 1400, "height": 900})
    visit.expected.append("status of 400")
    await visit.fleet.begin()
    await visit.rows(_write_retirement, visit.cluster)
    page = await visit.open("/audit/?actor=ada")
    field = page.get_by_label("From (UTC)")
    await field.fill("yesterday")
    await field.press("Enter")
    await expect(field).to_have_value("yesterday")
    sentence = "Invalid time 'yesterday': write it like 2026-11-23 10:14 or 2026-11-23 (UTC)."
    # Before it, the symbol of all errors.
    await expect(field).to_have_accessible_description(re.compile(f"{re.escape(sentence)}$"))
    await expect(page.get_by_text("Correct the time range to see entries.")).to_be_visible()
    await accessible_everywhere(page)
    await page.get_by_role("link", name="24 h", exact=True).click()
    await expect(field).to_have_value("")
    await expect(page.get_by_label("Actor", exact=True)).to_have_value("ada")
    await expect(page.locator("tbody")).to_contain_text("retired agent-66")
