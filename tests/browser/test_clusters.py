"""Clusters in the browser: add one, and watch the connection test. The tests run its steps as a worker does."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest
from playwright.async_api import Page, Route, expect

from fleet.clusters.connection_test.run import run_connection_test
from fleet.clusters.test_report import ConnectionTestReport
from fleet.clusters.test_store import ConnectionTestStore, open_test_store
from fleet.models.clusters import Cluster
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.identities import IdentityStore, IdentityValidity
from fleet.monitoring.state.missing_capabilities import MissingCapabilityStore
from fleet.processes.valkey import find_free_port
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.clusters import AddressKind
from tests.browser.axe import accessible_everywhere
from tests.browser.conftest import Visiting
from tests.browser.visits import Visit
from tests.flow.web import PREFIX

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


def _read_row(cluster: str) -> Mapping[str, object] | None:
    return Cluster.objects.filter(pk=cluster).values("name", "auths", "tls_source").first()


async def _read_request(store: ConnectionTestStore, cluster: str) -> ConnectionTestReport:
    report = await asyncio.to_thread(store.read, cluster)
    assert report is not None, "the form requested no test"
    return report


async def _add(visit: Visit, page: Page, cluster: str, address: str) -> None:
    """Fill in the form from the list of clusters."""
    await page.goto(f"{visit.console.url}/clusters/", wait_until="domcontentloaded")
    await page.get_by_role("link", name="Add cluster").click()
    await page.get_by_label("Name", exact=True).fill("Oslo lab")
    await page.get_by_label("Id", exact=True).fill(cluster)
    await page.get_by_label("Entries").fill(address)
    await page.get_by_role("radio", name="No TLS", exact=True).check()
    await page.get_by_role("button", name="Add cluster").click()


async def test_added_cluster_shows_each_verdict_of_its_test(visiting: Visiting) -> None:
    """A port that does not respond: the steps appear as they end, with what to do, and the list names the failure."""
    visit = await visiting(color_scheme="light", viewport={"width": 1400, "height": 900})
    page = await visit.new_page()
    cluster, address = f"t{secrets.token_hex(5)}", f"127.0.0.1:{find_free_port()}"
    await _add(visit, page, cluster, address)
    await expect(page.get_by_role("heading", name="Oslo lab", exact=True)).to_be_visible()
    await expect(page.locator("#test")).to_contain_text("Waiting for a worker…")
    assert await visit.rows(_read_row, cluster) == {
        "name": "Oslo lab",
        "auths": [address],
        "tls_source": "none",
    }

    store = open_test_store(visit.console.server.url, PREFIX)
    report = replace(await _read_request(store, cluster), started_at=time.time())
    await asyncio.to_thread(store.write, report)
    await expect(page.locator(".step-running")).to_contain_text("Addresses")
    async for step in run_connection_test(AddressKind.STATIC, [address], None):
        report = replace(report, steps=(*report.steps, step))
        await asyncio.to_thread(store.write, report)
        if len(report.steps) == 1:
            await expect(page.locator(".step-ok")).to_contain_text("Addresses")
    await asyncio.to_thread(store.write, replace(report, ended_at=time.time()))

    failure = page.locator(".step-failed").filter(has_text="Connection")
    await expect(failure).to_contain_text(address)
    await expect(failure.locator(".remedy")).not_to_be_empty()
    await expect(page.get_by_role("button", name="Test connection")).to_be_enabled()
    await expect(page.locator("#status")).to_contain_text("Connection test failed")
    await accessible_everywhere(page)
    await page.goto(f"{visit.console.url}/clusters/", wait_until="domcontentloaded")
    await expect(page.get_by_role("row", name=cluster)).to_contain_text("Connection test failed")
    await accessible_everywhere(page)


async def test_id_follows_the_name_until_it_is_edited(visiting: Visiting) -> None:
    """An accepted id is made from any name, and somebody's own id stays."""
    visit = await visiting(color_scheme="light", viewport={"width": 1400, "height": 900})
    page = await visit.new_page()
    await page.goto(f"{visit.console.url}/clusters/new/", wait_until="load")
    name, cluster_id = (page.get_by_label(label, exact=True) for label in ("Name", "Id"))
    await name.press_sequentially("Zürich, Büro 2 ")
    await expect(cluster_id).to_have_value("zurich-buro-2")
    await cluster_id.fill("zh")
    await name.fill("Bern")
    await expect(cluster_id).to_have_value("zh")


async def test_form_shows_what_the_choices_need(visiting: Visiting) -> None:
    """Paths for files, files for uploads; no server name without TLS."""
    visit = await visiting(color_scheme="light", viewport={"width": 1400, "height": 900})
    page = await visit.new_page()
    await page.goto(f"{visit.console.url}/clusters/new/", wait_until="domcontentloaded")
    paths, uploads = page.locator(".for-files input"), page.locator(".for-uploaded input")
    await expect(paths.first).to_be_hidden()
    await page.get_by_label("Files on the machines of the workers").check()
    await expect(paths.first).to_be_visible()
    await expect(uploads.first).to_be_hidden()
    await page.get_by_label("Uploaded files").check()
    await expect(uploads.first).to_be_visible()
    await accessible_everywhere(page)
    await page.get_by_role("radio", name="No TLS", exact=True).check()
    await expect(page.get_by_label("Server name")).to_be_hidden()


async def test_fields_follow_the_product(visiting: Visiting) -> None:
    """Without a reload, and what was typed stays."""
    visit = await visiting(color_scheme="light", viewport={"width": 1400, "height": 900})
    page = await visit.new_page()
    await page.goto(f"{visit.console.url}/clusters/new/", wait_until="load")
    await page.get_by_label("Name", exact=True).fill("Stores")
    await page.get_by_label("Entries").fill("10.0.0.1")
    await page.get_by_label("Product", exact=True).focus()
    await page.get_by_label("Product", exact=True).select_option("nats")
    await expect(page.get_by_role("group", name="Find the hubs by")).to_be_visible()
    await expect(page.get_by_label("Server name")).to_have_count(0)
    await expect(page.get_by_role("radio", name="No TLS", exact=True)).to_be_checked()
    await expect(page.get_by_label("Product", exact=True)).to_be_focused()
    await accessible_everywhere(page)
    await page.get_by_label("Product", exact=True).select_option("teleport")
    await expect(page.locator("#tls")).to_contain_text("teleport.cluster.local")
    await expect(page.get_by_role("textbox", name="Identity file", exact=True)).to_be_visible()
    await expect(page.get_by_role("radio", name="No TLS", exact=True)).to_have_count(0)
    await expect(page.get_by_label("Entries")).to_have_value("10.0.0.1")
    await expect(page.get_by_label("Name", exact=True)).to_have_value("Stores")
    await accessible_everywhere(page)


async def test_what_is_entered_while_the_console_answers_stays(visiting: Visiting) -> None:
    """The fields of the new product arrive after somebody has filled in the present ones."""
    visit = await visiting()
    page = await visit.new_page()
    release = asyncio.Event()

    async def delay(route: Route) -> None:
        await release.wait()
        await route.continue_()

    await page.goto(f"{visit.console.url}/clusters/new/", wait_until="load")
    await page.route("**/clusters/new/", delay)
    await page.get_by_label("Product", exact=True).select_option("teleport")
    await page.get_by_label("Entries").fill("10.0.0.1")
    await page.locator("[name=tls_source][value=files]").check()
    release.set()
    await expect(page.locator("#tls")).to_contain_text("teleport.cluster.local")
    await expect(page.get_by_label("Entries")).to_have_value("10.0.0.1")
    await expect(page.locator("[name=tls_source][value=files]")).to_be_checked()


def _create_cluster(cluster: str) -> None:
    Cluster.objects.create(id=cluster, name=f"Lab {cluster}", auths=["auth.invalid:3025"], is_paused=True)


async def test_what_a_source_cannot_do_is_a_reason_where_the_form_would_be(visiting: Visiting) -> None:
    """On the page of the cluster, and on each page that needs the capability."""
    visit = await visiting(color_scheme="light", viewport={"width": 1400, "height": 900})
    page, cluster = await visit.new_page(), f"t{secrets.token_hex(5)}"
    await visit.rows(_create_cluster, cluster)
    reasons = {
        Capability.POLICIES: "Lab instances do not report their policies.",
        Capability.RECONNECT_ADVICE: "The role refloat lacks the verb update for agents.",
    }
    redis = connect(visit.console.server.url)
    await asyncio.to_thread(MissingCapabilityStore(redis, PREFIX).write, cluster, reasons)
    await page.goto(f"{visit.console.url}/clusters/{cluster}/", wait_until="domcontentloaded")
    section = page.locator("#capabilities")
    for capability, reason in reasons.items():
        await expect(section).to_contain_text(f"{reason} {capability.effect}")
    await accessible_everywhere(page)
    for path, capability in (("policies", Capability.POLICIES), ("reconnect", Capability.RECONNECT_ADVICE)):
        await page.goto(f"{visit.console.url}/c/{cluster}/{path}/", wait_until="domcontentloaded")
        await expect(page.locator("main")).to_contain_text(reasons[capability])
        await expect(page.locator("main form")).to_have_count(0)
        await accessible_everywhere(page)


async def test_identity_that_expires_is_marked(visiting: Visiting) -> None:
    """On the page of the cluster, with the time."""
    visit = await visiting(color_scheme="light", viewport={"width": 1400, "height": 900})
    page, cluster = await visit.new_page(), f"t{secrets.token_hex(5)}"
    await visit.rows(_create_cluster, cluster)
    now = time.time()
    validity = IdentityValidity("refloat", now - 86400.0, now + 7500.0)
    await asyncio.to_thread(IdentityStore(connect(visit.console.server.url), PREFIX).write, cluster, validity)
    await page.goto(f"{visit.console.url}/clusters/{cluster}/", wait_until="domcontentloaded")
    await expect(page.get_by_text("Expires in 2 h")).to_have_class("mark mark-warning")
    await accessible_everywhere(page)
