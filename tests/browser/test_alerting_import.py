"""The import of the alerting configuration in a real console, in Chromium."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from fleet.models.alerting import AlertRule
from tests.browser.axe import accessible_everywhere
from tests.browser.visits import Visit, Visitor

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visit(visitor: Visitor) -> AsyncIterator[Visit]:
    """A cluster of its own."""
    visit = await visitor.begin(color_scheme="light", viewport={"width": 1400, "height": 900})
    yield visit
    await visit.end()


def _document_of(cluster: str) -> str:
    return (
        f"channels:\n- name: ops\n  cluster: {cluster}\n  kind: email\n  to: ops@example.com\n"
        f"routes:\n- name: Everything\n  routes:\n  - name: pager\n    cluster: {cluster}\n    channels: [ops]\n"
        f"rules:\n- name: Web agents\n  cluster: {cluster}\n  kind: stranded\n  severity: warning\n"
        "  repeat_interval: 90\n"
    )


def _read_rules(cluster: str) -> list[tuple[str, float]]:
    return list(AlertRule.objects.filter(cluster=cluster).values_list("name", "repeat_seconds"))


async def test_file_is_previewed_mended_and_applied(visit: Visit, tmp_path: Path) -> None:
    """A wrong value is named with its line; the changes are shown before they are applied."""
    file = tmp_path / "alerting.yaml"
    file.write_text(_document_of(visit.cluster))
    page: Page = await visit.new_page()
    await page.goto(f"{visit.url}/alerts/channels/")
    await page.get_by_role("link", name="Import…").click()
    await expect(page.locator("#id_file")).to_be_visible()
    await accessible_everywhere(page)
    await page.set_input_files("#id_file", file)
    await page.get_by_role("button", name="Preview import").click()
    await expect(page.locator("#id_document_error")).to_contain_text(
        "Line 17: repeat_interval: the unit is missing in 90"
    )
    await accessible_everywhere(page)
    assert await page.input_value("#id_document") == file.read_text()
    file.write_text(file.read_text().replace("interval: 90", "interval: 90 min"))
    await page.set_input_files("#id_file", file)
    await page.get_by_role("button", name="Preview import").click()
    table = page.get_by_role("region", name="Changed values")
    await expect(table).to_contain_text("Rule Web agents")
    await accessible_everywhere(page)
    assert await visit.rows(_read_rules, visit.cluster) == []
    await page.get_by_role("button", name="Apply import").click()
    await expect(page.locator("body")).to_contain_text("The configuration was imported: 3 objects changed.")
    assert await visit.rows(_read_rules, visit.cluster) == [("Web agents", 5400.0)]
    await page.close()
