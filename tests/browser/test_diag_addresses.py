"""Diag addresses in the form of a cluster, and the tunnels that proxies count."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import replace

import pytest
from playwright.async_api import expect

from fleet.monitoring.state.list_notices import ListNoticeStore
from fleet.monitoring.state.missing_capabilities import MissingCapabilityStore
from fleet.processes.valkey import find_free_port
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceKind, InstanceResource, Poll, PollAttempt, extract_part
from tests.browser.axe import accessible_everywhere
from tests.browser.conftest import Visiting
from tests.browser.visits import Visit
from tests.flow.web import PREFIX

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_diag_addresses_are_shown_for_products_that_need_them(visiting: Visiting) -> None:
    """Entered one per line; a wrong line is named at the field; the page of the cluster shows them."""
    visit = await visiting(color_scheme="light", viewport={"width": 1400, "height": 900})
    page = await visit.new_page()
    cluster = f"t{secrets.token_hex(5)}"
    await page.goto(f"{visit.console.url}/clusters/new/", wait_until="domcontentloaded")
    field = page.get_by_label("Addresses by instance")
    await expect(field).to_be_hidden()
    await page.get_by_label("Product", exact=True).select_option("teleport")
    await expect(field).to_be_visible()
    # The diag addresses need no response of the console; the other fields of the product do.
    await expect(page.locator("[name=tls_source][value=identity]")).to_be_checked()
    await page.get_by_label("Name", exact=True).fill(f"Lab {cluster}")
    await page.get_by_label("Id", exact=True).fill(cluster)
    await page.get_by_label("Entries").fill(f"127.0.0.1:{find_free_port()}")
    await page.locator("[name=tls_source][value=settings]").check()
    await field.fill("auth-1")
    await accessible_everywhere(page)
    await page.get_by_role("button", name="Add cluster").click()
    await expect(page.get_by_text("'auth-1' is not an instance and an address.")).to_be_visible()
    await accessible_everywhere(page)
    await field.fill("auth-1 10.0.0.1:3000\nproxy-1 10.0.0.2:3000")
    await page.get_by_role("button", name="Add cluster").click()
    settings = page.get_by_role("region", name="Settings")
    await expect(settings).to_contain_text("auth-1 10.0.0.1:3000")
    await accessible_everywhere(page)


async def test_lists_that_may_be_old_are_told_on_the_page_of_the_cluster(visiting: Visiting) -> None:
    """Below its state, until another auth returns lists."""
    visit = await visiting(color_scheme="light", viewport={"width": 1400, "height": 900})
    page, sentence = await visit.new_page(), "The lists of this cluster may be old: enter another address."
    store = ListNoticeStore(visit.console.writer().redis, PREFIX)
    await asyncio.to_thread(store.write, visit.cluster, sentence)
    await page.goto(f"{visit.console.url}/clusters/{visit.cluster}/", wait_until="domcontentloaded")
    await expect(page.locator("#status")).to_contain_text(sentence)
    await accessible_everywhere(page)
    await asyncio.to_thread(store.write, visit.cluster, "")
    await page.reload(wait_until="domcontentloaded")
    await expect(page.locator("#status")).not_to_contain_text(sentence)


def _count_tunnels(visit: Visit) -> None:
    """Have the first proxy count its tunnels, as a proxy of Teleport does, and another one stop doing so."""
    writer, now = visit.console.writer(), time.time()
    instances = writer.load_instances(visit.cluster)
    proxies = [index for index, facts in instances.items() if facts.kind is InstanceKind.PROXY]
    counts = {"connection_counts": (("app", 12), ("node", 1397)), "missing_tunnel_count": 3}
    polls, resources = {}, {}
    for index, counted_at in ((proxies[0], now), (proxies[1], now - 300)):
        facts = instances[index]
        attempts = (PollAttempt(now, ok=True),)
        polls[index] = replace(extract_part(Poll, facts), attempts=attempts, counted_at=counted_at, **counts)
        resources[index] = replace(extract_part(InstanceResource, facts), diag_address="10.0.0.2:3000")
    epoch = writer.epoch(visit.cluster)
    assert epoch is not None
    writer.write_instances(visit.cluster, epoch, polls=polls, resources=resources)
    store = MissingCapabilityStore(writer.redis, PREFIX)
    store.write(visit.cluster, {Capability.TUNNELS_BY_AGENT: "Teleport has no API that names them."})


async def test_counted_tunnels_are_beside_their_proxy(visiting: Visiting) -> None:
    """By type, with the missing ones; last known ones where the proxy stopped to report them."""
    visit = await visiting(color_scheme="light", viewport={"width": 1400, "height": 900})
    page = await visit.new_page()
    await visit.fleet.begin()
    await asyncio.to_thread(_count_tunnels, visit)
    await page.goto(f"{visit.url}/", wait_until="domcontentloaded")
    instances = page.locator("#instances")
    await expect(instances).to_contain_text("3 of 1,400 SSH tunnels are missing at")
    await expect(instances).to_contain_text("1,397 node, 12 app")
    await expect(instances).to_contain_text("had 1,409 tunnels when it last reported them.")
    await expect(instances).to_contain_text("not reported")
    await accessible_everywhere(page)
