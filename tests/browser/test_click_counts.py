"""Frequent tasks, from Fleet now to the confirmed change: at most four clicks each, five for agents with a label."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from playwright.async_api import expect

from fleet.changes.networking import revisions
from fleet.models.changes import Change
from fleet.monitoring.agent_attributes import AgentAttributes
from fleet.monitoring.state.policy_report_store import open_policy_report_store
from fleet.protocol.networking.config import NetworkingConfig, NetworkingResource, with_defaults
from fleet.protocol.policies.env_policies import HTTP_CLOSE_VARIABLE
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.vocabulary.changes import ChangeKind, ChangeState
from tests.browser.conftest import Visiting
from tests.browser.operator import REASON, Operator, start_operator
from tests.browser.visits import Visit
from tests.fakes import rollout_worker
from tests.fakes.waiting import eventually
from tests.flow.web import PREFIX

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="session"),
]


def _last_change(cluster: str) -> tuple[str, str, str]:
    """Return kind, state and title of the newest change."""
    change = Change.objects.filter(cluster=cluster).latest("pk")
    return change.kind, change.state, change.title


async def _expect_change(visit: Visit, kind: ChangeKind, title: str) -> None:
    actual_kind, state, actual_title = await visit.rows(_last_change, visit.cluster)
    assert (actual_kind, actual_title) == (kind.value, title)
    assert state != ChangeState.PLANNED.value


def _remember_config(cluster: str) -> None:
    """Do what a worker does that has read the config."""
    config = with_defaults(NetworkingConfig(tunnel_strategy="proxy_peering", agent_connection_count=1))
    resource = NetworkingResource(config, {"teleport.dev/origin": "dynamic"}, "r1")
    revisions.record_revision(cluster, resource, datetime.now(UTC))


@pytest.mark.parametrize(
    ("control", "title"),
    [
        ("#id_graceful_tunnel_closing", "Turn on graceful tunnel closing"),
        ("[data-count='2']", "Set agent connection count to 2"),
    ],
)
async def test_change_networking_config(visiting: Visiting, control: str, title: str) -> None:
    """Networking, the switch or the number, Preview change, confirm."""
    visit = await visiting()
    await visit.rows(_remember_config, visit.cluster)
    await visit.fleet.begin()
    operator = await start_operator(visit)
    await operator.open_section("Networking")
    await operator.click(operator.page.locator(control))
    await operator.click(operator.page.get_by_role("button", name="Preview change"))
    await operator.confirm()
    assert operator.click_count == 4
    await _expect_change(visit, ChangeKind.NETWORKING_CONFIG, title)


async def test_policies_and_undo(visiting: Visiting) -> None:
    """Announce TTL: Policies, the cell, Preview change, confirm. Mode: Policies, the preset, confirm. Then the undo."""
    visit = await visiting()
    store = open_policy_report_store(visit.console.server.url, PREFIX)
    with rollout_worker.run_rollout_worker(visit.console, visit.cluster):
        await eventually(lambda: len(store.read(visit.cluster)) == 5)
        await _change_without_restarts(visit)
        await _undo_last_change(visit)
        await _set_announce_ttl(visit)
        await _set_reconnect_mode(visit)


async def _change_without_restarts(visit: Visit) -> None:
    """Make a change that can be undone at once; no task of its own."""
    page = await visit.open("/policies/auth/")
    await page.select_option(f"#{HTTP_CLOSE_VARIABLE}", "true")
    await page.uncheck("#roll_out")
    await page.click("text=Preview change")
    await page.fill("#reason", REASON)
    await page.click("section[aria-labelledby=confirm-title] .button-main")
    await expect(page.locator("#change-state .tag")).to_have_text("verified")


async def _undo_last_change(visit: Visit) -> None:
    operator = await start_operator(visit)
    await operator.open_section("Changes")
    await operator.click(operator.page.get_by_role("button", name="Undo change").first)
    await operator.confirm()
    assert operator.click_count == 3
    await expect(operator.page.locator("#change-state .tag")).to_have_text("verified")


async def _set_announce_ttl(visit: Visit) -> None:
    operator = await start_operator(visit)
    await operator.open_section("Policies")
    await operator.click(operator.page.locator(f"a.cell-edit[href$='/auth/{AUTH_TTL_VARIABLE}/']"))
    await operator.type("30s", field="value")
    await operator.click(operator.page.get_by_role("button", name="Preview change"))
    await operator.confirm()
    assert operator.click_count == 4
    await _expect_change(visit, ChangeKind.POLICY, "Set auth announce TTL of all auths to 30 s")


async def _set_reconnect_mode(visit: Visit) -> None:
    operator = await start_operator(visit)
    await operator.open_section("Policies")
    await operator.click(operator.page.get_by_role("button", name="Preview Failover on"))
    await operator.confirm()
    assert operator.click_count == 3
    await _expect_change(
        visit, ChangeKind.POLICY, "Set agent reconnect mode of all auths to reconnect, health check"
    )


@pytest.mark.parametrize(("instance", "moved_to"), [("proxy-2", "proxies"), ("auth-1", "auths")])
async def test_take_out_of_service(visiting: Visiting, instance: str, moved_to: str) -> None:
    """Take out of service…, confirm: the instance drains, and its agents move to others."""
    visit = await visiting()
    await visit.fleet.begin()
    operator = await start_operator(visit)
    row = operator.page.locator(f"tr[data-instance={instance}]")
    await operator.click(row.get_by_role("link", name="Take out of service…"))
    await expect(operator.page.get_by_role("dialog")).to_contain_text(f"to other {moved_to}")
    await _type_service_reason(operator, visit)
    await operator.click(operator.page.get_by_role("button", name=f"Take {instance} out of service"))
    await operator.page.wait_for_url("**/changes/*/")
    assert operator.click_count == 2
    await _expect_change(visit, ChangeKind.SERVICE, f"Take {instance} out of service")


async def _type_service_reason(operator: Operator, visit: Visit) -> None:
    await operator.type(REASON, field="reason")
    if await operator.page.locator("[name=confirmation]").count():
        await operator.page.keyboard.press("Shift+Tab")
        await operator.type(visit.cluster, field="confirmation")


async def test_bring_back_into_service(visiting: Visiting) -> None:
    """Bring back…, confirm."""
    visit = await visiting()
    await visit.fleet.begin()
    await visit.fleet.drain(1)
    operator = await start_operator(visit)
    row = operator.page.locator("tr[data-instance=proxy-2]")
    await operator.click(row.get_by_role("link", name="Bring back…"))
    await operator.type(REASON, field="reason")
    await operator.click(operator.page.get_by_role("button", name="Bring proxy-2 back"))
    await expect(operator.page.locator("#notes-title + ul")).to_contain_text("accepts new connections again")
    assert operator.click_count == 2
    await _expect_change(visit, ChangeKind.SERVICE, "Bring proxy-2 back into service")


async def test_retire_five_agents_with_a_label(visiting: Visiting) -> None:
    """Agents, the query bar, all rows of the page, Retire…, confirm."""
    visit = await visiting()
    lab = AgentAttributes(labels=(("env", "lab"),))
    visit.fleet.attributes_by_agent = dict.fromkeys(range(10, 15), lab)
    visit.fleet.offline_agents = frozenset(range(10, 15))
    await visit.fleet.begin()
    operator = await start_operator(visit)
    await operator.open_section("Agents")
    await operator.click(operator.page.get_by_role("main").get_by_role("combobox"))
    await operator.page.keyboard.type("label.env:lab")
    await operator.page.keyboard.press("Enter")
    await expect(operator.page.locator("#rows tbody tr")).to_have_count(5)
    await operator.click(operator.page.locator("#select-page"))
    await operator.click(operator.page.get_by_role("button", name="Retire…"))
    await operator.type(REASON, field="reason")
    await operator.click(operator.page.get_by_role("button", name="Retire 5 agents"))
    await operator.page.wait_for_url("**/changes/*/")
    assert operator.click_count == 5
    await _expect_change(visit, ChangeKind.RETIRE, "Retire 5 agents")
