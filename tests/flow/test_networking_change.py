"""GracefulTunnelClosing toggled in the browser on a fleet of real processes: what was foreseen is what happens."""

from __future__ import annotations

import json
import os
import re
import socket
import socketserver
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from fleet.processes import children
from tests.browser.chromium import ARGUMENTS, LAUNCH_MS, executable
from tests.browser.visits import DEADLINE_MS
from tests.fakes.waiting import eventually_sync
from tests.flow.producers import Database, produced
from tests.flow.running import Demo, start_demo
from tests.meta.house import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(1800)]
AGENTS = 12
PATIENCE = 300.0


class User:
    """A user with a connection to an agent's service through a proxy."""

    def __init__(self, connect: str, target: str) -> None:
        host, _, port = connect.rpartition(":")
        self._sock = socket.create_connection((host, int(port)), timeout=PATIENCE)
        self._sock.sendall(f"CONNECT {target}:1 HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self._sock.recv(1)
        assert b" 200 " in head, head

    def exchange(self, message: bytes) -> bytes:
        """Send a message and return the service's response: it echoes."""
        self._sock.sendall(message)
        return self._sock.recv(len(message), socket.MSG_WAITALL)

    def leave(self) -> None:
        """End."""
        self._sock.close()


class Echo(socketserver.BaseRequestHandler):
    """A service that echoes."""

    def handle(self) -> None:
        """Until its user leaves."""
        while message := self.request.recv(4096):
            self.request.sendall(message)


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    """Its address."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, echo: str) -> Iterator[Demo]:
    """A demo with three proxies, and one more agent, `user-1`, that exposes the service."""
    shape = ("--auths", "2", "--proxies", "3", "--agents", str(AGENTS - 1), "--announce-ttl", "60s")
    demo = start_demo(tmp_path_factory.mktemp("demo"), *shape)
    agent = None
    try:
        rows = json.loads(demo.fleet("ps", "--json"))
        argv = [
            sys.executable,
            "-m",
            "fleet.nodes",
            "agent",
            "--name-prefix",
            "user",
            "--service",
            f"echo={echo}",
        ]
        for role in ("auth", "proxy"):
            argv += [f"--{role}", ",".join(row["grpc"] for row in rows if row["role"] == role)]
        agent = children.spawn(argv, env=dict(os.environ), cwd=str(ROOT))
        demo.await_counts({"healthy": AGENTS}, seconds=PATIENCE)
        eventually_sync(lambda: demo.status("networking-config") == 200, seconds=PATIENCE)
        yield demo
    finally:
        if agent is not None:
            children.stop([agent])
        demo.stop()


@pytest.fixture
def chromium() -> Iterator[Browser]:
    """A browser."""
    path = executable()
    expect.set_options(timeout=DEADLINE_MS)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=ARGUMENTS, timeout=LAUNCH_MS)
        yield browser
        browser.close()


def _run_config(demo: Demo, *args: str) -> str:
    """Run a changing `refloat config …` command without confirmation prompts; return its output."""
    args = ("config", *args, "--yes", "--reason", "set the stage", "--home", str(demo.home))
    process = subprocess.run(
        [sys.executable, "-m", "fleet.cli", *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def _count_closed_tunnels(demo: Demo) -> int:
    """Tunnels that ended, as the proxies count them."""
    total = 0.0
    for row in _proxies(demo):
        with urllib.request.urlopen(f"http://{row['diag']}/metrics", timeout=PATIENCE) as answer:
            closed_tunnels = re.findall(
                r"^refloat_tunnels_closed_total\S* (\S+)$", answer.read().decode(), re.MULTILINE
            )
        total += sum(map(float, closed_tunnels))
    return int(total)


def _proxies(demo: Demo) -> list[dict[str, Any]]:
    return [row for row in json.loads(demo.fleet("ps", "--json")) if row["role"] == "proxy"]


def _tunnels(demo: Demo) -> list[int]:
    return [len(agent["proxies"]) for agent in demo.get(f"agents?limit={AGENTS}")["agents"]]


def _signed_in(chromium: Browser, demo: Demo) -> Page:
    page = chromium.new_context().new_page()
    page.set_default_timeout(DEADLINE_MS)
    page.goto(f"{demo.url.rstrip('/')}/networking/")
    page.fill("input[name=login]", "demo")
    page.fill("input[type=password]", demo.password)
    page.click("main button[type=submit]")
    expect(page.locator("#id_keep_alive_interval")).to_be_visible(timeout=DEADLINE_MS)
    return page


def _confirm(page: Page, demo: Demo, reason: str) -> int:
    """Confirm the plan on the page, with recent proof; return the number of the change."""
    page.fill("#reason", reason)
    page.click(".panel-actions .button-main")
    page.wait_for_load_state()
    if "reauthenticate" in page.url:
        page.fill("input[type=password]", demo.password)
        page.click("main button[type=submit]")
    page.wait_for_url("**/changes/*/")
    return int(page.url.rstrip("/").rpartition("/")[2])


def _await_state(demo: Demo, change: int, *states: str) -> dict[str, Any]:
    eventually_sync(lambda: demo.get(f"changes/{change}")["state"] in states, seconds=PATIENCE)
    change_state: dict[str, Any] = demo.get(f"changes/{change}")
    return change_state


def test_closing_toggled_in_the_browser_by_two_people(fleet: Demo, chromium: Browser) -> None:
    """The plan's number equals the closes that the proxies count, no user connection breaks, the log has before and
    after; and a second person who edited at the same time loses nothing."""
    _run_config(
        fleet,
        "set", "graceful_tunnel_closing=false", "agent_connection_count=2", "tunnel_closing_wait_min=5s",
        "tunnel_closing_wait_max=10s",
    )  # fmt: skip
    eventually_sync(lambda: _tunnels(fleet) == [2] * AGENTS, seconds=PATIENCE)
    _run_config(fleet, "set", "agent_connection_count=1")
    fleet.await_counts({"excess": AGENTS}, seconds=PATIENCE)
    users = [User(row["connect"], "echo.user-1") for row in _proxies(fleet)]
    assert [user.exchange(b"hello") for user in users] == [b"hello"] * len(users)
    closed_before = _count_closed_tunnels(fleet)

    alice, bob = _signed_in(chromium, fleet), _signed_in(chromium, fleet)
    alice.check("#id_graceful_tunnel_closing")
    alice.click("text=Preview change")
    expect(alice.locator("h1")).to_have_text(f"Close {AGENTS} tunnels of {AGENTS} agents?")
    first = _confirm(alice, fleet, "too many tunnels")
    _await_state(fleet, first, "verifying", "verified")

    bob.fill("#id_keep_alive_count_max", "5")
    bob.click("text=Preview change")
    row = bob.locator("#three-way tr", has_text="graceful_tunnel_closing")
    expect(row).to_contain_text("on")
    bob.click("text=Plan again with current values")
    expect(bob.locator("#id_graceful_tunnel_closing")).to_be_checked()
    expect(bob.locator("#id_keep_alive_count_max")).to_have_value("5")
    bob.click("text=Preview change")
    second = _confirm(bob, fleet, "lossy network")
    assert _await_state(fleet, second, "verified", "failed")["state"] == "verified"
    spec = fleet.get("networking-config")["document"]["spec"]
    assert (spec["graceful_tunnel_closing"], spec["keep_alive_count_max"]) == (True, 5)

    # One of the two of `user-1` may wait for its users; all others close.
    eventually_sync(lambda: _count_closed_tunnels(fleet) - closed_before >= AGENTS - 1, seconds=PATIENCE)
    assert [user.exchange(b"still here") for user in users] == [b"still here"] * len(users)
    for user in users:
        user.leave()

    final_state = _await_state(fleet, first, "verified", "failed")
    assert (final_state["state"], final_state["detail"]) == (
        "verified",
        f"{AGENTS} tunnels closed, as expected",
    )
    assert final_state["plan"]["closing"]["closing_count"] == [AGENTS, AGENTS]
    eventually_sync(lambda: _count_closed_tunnels(fleet) - closed_before == AGENTS, seconds=PATIENCE)
    eventually_sync(lambda: _tunnels(fleet) == [1] * AGENTS, seconds=PATIENCE)

    entries = fleet.get("audit?q=networking-config.verifying")["entries"]
    audit_entry = next(entry for entry in entries if entry["change_id"] == first)
    assert audit_entry["before"]["spec"]["graceful_tunnel_closing"] is False
    assert audit_entry["after"]["spec"]["graceful_tunnel_closing"] is True
    assert audit_entry["reason"] == "too many tunnels"

    # Taken back in the terminal: what bob changed, on top of what alice wrote.
    output = _run_config(fleet, "undo", str(second), "--verify")
    assert output.startswith("verified · written as revision")
    spec = fleet.get("networking-config")["document"]["spec"]
    assert (spec["graceful_tunnel_closing"], spec["keep_alive_count_max"]) == (True, 3)
    assert fleet.get(f"changes/{second}")["state"] == "undone"

    # Past the console, as any tool may write it.
    fleet.fleet("config", "set", "keep_alive_count_max=6")
    produced(
        Database(fleet.home),
        seconds=PATIENCE,
        verdicts=("excess",),
        reasons=("too-many-tunnels",),
        actions=("networking-config.external-write",),
        change_kinds=("networking-config",),
        change_words=("plan", "confirm", "start", "verifying", "verified", "undone"),
    )
