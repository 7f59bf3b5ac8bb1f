"""The networking config of a Teleport cluster in a real console."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from playwright.async_api import expect

from fleet.changes.networking import revisions
from fleet.models.clusters import Cluster
from fleet.protocol.networking.config import NetworkingConfig, NetworkingResource, with_defaults
from fleet.vocabulary.verdicts import State
from tests.browser.axe import accessible_everywhere
from tests.browser.conftest import Visiting

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


def _read_from_teleport(cluster: str, revision: str, origin: str = "dynamic") -> None:
    """Do what a worker does that has read this config from an auth of Teleport."""
    Cluster.objects.filter(pk=cluster).update(source="teleport")
    config = with_defaults(NetworkingConfig(tunnel_strategy="proxy_peering", agent_connection_count=1))
    resource = NetworkingResource(config, {"teleport.dev/origin": origin}, revision)
    revisions.record_revision(cluster, resource, datetime.now(UTC))


async def test_fields_of_teleport_are_edited_and_others_have_their_reason(visiting: Visiting) -> None:
    """GracefulTunnelClosing has no switch, and there is no forecast; the plan says so too."""
    visit = await visiting(color_scheme="light", viewport={"width": 1400, "height": 900})
    await visit.fill([State.HEALTHY] * 4)
    await visit.rows(_read_from_teleport, visit.cluster, "r1")
    page = await visit.open("/networking/")
    await expect(page.locator("#no-closing")).to_contain_text("Teleport has no GracefulTunnelClosing")
    await expect(page.locator("#id_graceful_tunnel_closing")).to_have_count(0)
    await expect(page.locator("#tunnel-forecast")).to_contain_text("cannot forecast")
    await page.locator("#teleport-fields summary").click()
    await expect(page.locator("#id_proxy_listener_mode")).to_be_disabled()
    await expect(page.locator("#id_ssh_dial_timeout")).to_be_enabled()
    await accessible_everywhere(page)
    await page.click("button[value=yaml]")
    await expect(page.locator("#yaml")).to_contain_text("keep_alive_interval: 5m0s")
    await expect(page.locator("#yaml")).not_to_contain_text("graceful_tunnel_closing")
    await page.click("button[value=form]")
    await page.click("[data-count='2']")
    await expect(page.locator("#config-changes")).to_contain_text("1 field changed")
    await page.click("text=Preview change")
    await expect(page.locator("h1")).to_have_text("Set agent connection count to 2?")
    await expect(page.locator("main")).to_contain_text("cannot forecast how many tunnels open or close")
    await accessible_everywhere(page)


async def test_config_of_the_config_file_is_shown_with_its_reason(visiting: Visiting) -> None:
    visit = await visiting(color_scheme="light", viewport={"width": 1400, "height": 900})
    await visit.rows(_read_from_teleport, visit.cluster, "r1", "config-file")
    page = await visit.open("/networking/")
    await expect(page.locator("#owned-title")).to_be_visible()
    await expect(page.locator("main")).to_contain_text("these values are below auth_service")
    await expect(page.get_by_role("button", name="Preview change")).to_have_count(0)
    await accessible_everywhere(page)
