"""A Teleport cluster in the browser, from the start of the console to the end of each fault, with the real programs.

The stand-in proves the wire. What a role may do in it is our reading of Teleport's documentation.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from fleet.processes import children
from fleet.processes.valkey import find_free_port
from tests.browser.axe import accessible_everywhere
from tests.browser.visits import new_context, watch
from tests.fakes import teleport
from tests.fakes.programs import skip_without
from tests.fakes.teleport import TeleportCluster, teleport_cluster
from tests.fakes.waiting import eventually_sync
from tests.meta.house import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="session")]

_PASSWORD = "correct horse battery staple"
#: Agents, half of them at each auth.
_AGENTS = 40


@dataclass(frozen=True, slots=True)
class _Console:
    """The console of `refloat serve`, and its environment for other commands."""

    url: str
    environment: dict[str, str]

    def create_admin(self) -> None:
        """Create the user ada, who may do everything."""
        argv = [
            sys.executable,
            "-m",
            "fleet.cli",
            "user",
            "create",
            "ada",
            "--role",
            "admin",
            "--password-stdin",
        ]
        subprocess.run(argv, input=f"{_PASSWORD}\n", text=True, env=self.environment, check=True)


@contextmanager
def _serve(folder: Path, standin: TeleportCluster) -> Iterator[_Console]:
    """Run `refloat serve --teleport` at auth-2 until the block ends."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REFLOAT_")}
    environment |= {
        "REFLOAT_HOME": str(folder / "home"),
        "REFLOAT_ROUND_INTERVAL": "1",
        "REFLOAT_ROUND_DEADLINE": "0.8",
        "PYTHONPATH": str(ROOT),
    }
    url, log_path = f"http://127.0.0.1:{find_free_port()}", folder / "serve.log"
    argv = [sys.executable, "-m", "fleet.cli", "serve", "--port", url.rpartition(":")[2]]
    argv += ["--teleport", standin.auth_address(2), "--identity", str(standin.identity)]
    with log_path.open("wb") as log:
        process = children.spawn(argv, env=environment, log=log)
    try:
        eventually_sync(lambda: f"is at {url}/c/teleport/" in log_path.read_text(), seconds=120.0)
        yield _Console(url, environment)
    finally:
        children.stop([process])


@pytest.fixture
def standin(tmp_path: Path) -> Iterator[TeleportCluster]:
    """Two auths and two proxies whose heartbeats expire soon, with agents."""
    skip_without(teleport.missing_reason())
    with teleport_cluster(tmp_path) as cluster:
        cluster.change("settings", agent_ttl_seconds=20.0, instance_ttl_seconds=10.0)
        cluster.change("agents", kind="node", count=_AGENTS)
        yield cluster


async def _sign_in(page: Page, console: _Console) -> None:
    await page.goto(f"{console.url}/accounts/login/", wait_until="load")
    await page.locator("[name=login]").fill("ada")
    await page.locator("[name=password]").fill(_PASSWORD)
    await page.get_by_role("button", name="Sign in", exact=True).click()
    await expect(page.get_by_role("heading", name="Fleet now")).to_be_visible()


async def _enter_diag_addresses(page: Page, console: _Console, standin: TeleportCluster) -> None:
    lines = [
        f"{instance['id']} {instance['diag']}"
        for kind in ("auths", "proxies")
        for instance in standin.ready[kind]
    ]
    await page.goto(f"{console.url}/clusters/teleport/edit/", wait_until="load")
    await page.locator("[name=diag_addresses]").fill("\n".join(lines))
    await page.get_by_role("button", name="Save and test cluster").click()
    await expect(page.get_by_text("4 instances ready.")).to_be_visible()


async def test_faults_of_a_teleport_cluster(
    chromium: Browser, standin: TeleportCluster, tmp_path: Path
) -> None:
    """An auth without its backend: at risk with the moment, then stranded with the cause, one incident. A dead proxy:
    its missing tunnels are counted, not named. Both heal, and the pages show each state without a reload."""
    errors: list[str] = []
    with _serve(tmp_path, standin) as console:
        await asyncio.to_thread(console.create_admin)
        context = await new_context(chromium, color_scheme="light", viewport={"width": 1400, "height": 900})
        page = await context.new_page()
        watch(page, errors)
        await _sign_in(page, console)
        await _enter_diag_addresses(page, console, standin)
        await page.goto(f"{console.url}/c/teleport/", wait_until="load")
        main, headline = page.locator("main"), page.locator("#headline")
        await expect(main).to_contain_text(f"{_AGENTS} agents")
        await page.goto(f"{console.url}/clusters/teleport/", wait_until="load")
        await expect(main).to_contain_text(
            re.compile(r"Teleport 18\.\S+\. Role refloat allows: list of instances, ")
        )
        await expect(main).to_contain_text("Not available: tunnels by agent")
        await expect(main).to_contain_text("Not tested with a real Teleport cluster")
        await page.goto(f"{console.url}/c/teleport/", wait_until="load")

        auth_id = standin.ready["auths"][0]["id"]
        standin.change(f"auths/{auth_id}", backend="failed")
        await expect(headline).to_contain_text(f"No stranded agents, but {_AGENTS // 2} agents at risk since")
        await expect(headline).to_contain_text(
            "because auth-1 lost its backend. The first become stranded at"
        )
        await expect(headline).to_contain_text(f"{_AGENTS // 2} agents stranded since")
        await expect(headline).to_contain_text("because auth-1 lost its backend")
        await accessible_everywhere(page)
        incidents = await context.new_page()
        watch(incidents, errors)
        await incidents.goto(f"{console.url}/c/teleport/incidents/", wait_until="load")
        rows = incidents.locator("tbody tr[class^=incident-]")
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("auth-1 lost its backend")
        await incidents.close()
        standin.change(f"auths/{auth_id}", backend="ok")
        await expect(headline).to_contain_text("No stranded agents.")

        proxy_id = standin.ready["proxies"][0]["id"]
        standin.change(f"proxies/{proxy_id}", missing_tunnels={"node": 3})
        await page.reload(wait_until="load")
        await expect(main).to_contain_text(
            f"3 of {_AGENTS} SSH tunnels are missing at proxy-1. The API of the cluster does not name the agents."
        )
        standin.change(f"proxies/{proxy_id}", running=False)
        await expect(main).to_contain_text("proxy-1 is not responding")
        standin.change(f"proxies/{proxy_id}", running=True, missing_tunnels={"node": 0})
        await expect(main).not_to_contain_text("proxy-1 is not responding")
        await expect(headline).to_contain_text("No stranded agents.")
        await context.close()
    assert errors == []
