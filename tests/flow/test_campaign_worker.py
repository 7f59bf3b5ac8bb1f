"""A campaign over 3,000 simulated agents by a whole console, whose web server and Celery worker are killed under way,
while somebody watches its page: all of it adds up."""

from __future__ import annotations

import http.client
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from fleet.processes import children, valkey
from fleet.vocabulary.verdicts import State
from tests.browser.chromium import ARGUMENTS, LAUNCH_MS, executable
from tests.browser.visits import DEADLINE_MS
from tests.fakes.waiting import is_gone
from tests.flow.producers import Database, produced
from tests.meta.house import ROOT

AGENTS = 3_000
STRANDED_COUNT = 30
USERNAME, PASSWORD = "ada", "correct horse battery"
#: 25 a second: it lasts longer than the restarts. On a busy machine rounds are late, and nobody has failed for that.
PACE = {
    "rate_per_minute": 1_500, "concurrency": 3_000, "canary_size": 5, "soak_seconds": 1,
    "jitter_seconds": 1, "timeout_seconds": 60,
    "failure_threshold_percent": 5, "stranded_threshold": 1_000,
}  # fmt: skip
pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(1800)]

#: Seconds of the rate limit that a campaign may use at once, after a pause or a time without a worker.
BURST_SECONDS = 2

#: By what word in its command line a process is found.
WEB, WORKER = "dashboards.config.asgi:application", "actions@%h"

#: Everything in one process: each start of Django costs seconds.
_PREPARE = f"""
import django; django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
call_command("migrate", verbosity=0)
User.objects.create_superuser("{USERNAME}", password="{PASSWORD}")
call_command("token", "create", "{USERNAME}", "--name", "test", "--scope", "view_fleet", "--scope", "act_on_fleet",
             "--scope", "view_audit")
"""


#: Seconds for anything, on a machine that does other things too.
PATIENCE = 300.0


def await_condition(condition: Callable[[], bool], *, seconds: float = PATIENCE) -> None:
    """Poll four times a second until the condition holds: each check costs the console work."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(0.25)


class Installation:
    """A simulated fleet, a console that polls it, and a client of its API."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = valkey.find_free_port()
        own_prefixes = ("REFLOAT_", "REDIS_", "DATABASE_", "DJANGO_")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(own_prefixes)}
        self.env |= {"REFLOAT_HOME": str(home), "DJANGO_SETTINGS_MODULE": "dashboards.config.settings"}
        self.env |= {
            "REFLOAT_ROUND_INTERVAL": "2.0",
            "REFLOAT_ROUND_DEADLINE": "1.8",
            "PYTHONUNBUFFERED": "1",
        }
        self.token = ""
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the simulation and the console, and wait until both are ready."""
        size = ("--agents", str(AGENTS), "--proxies", "6", "--auths", "1", "--processes", "1", "--json")
        simulation = self._spawn("simulate", sys.executable, "-m", "fleet.cli", "fleet", "simulate", *size)
        process = subprocess.run(
            [sys.executable, "-c", _PREPARE],
            env=self.env,
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        self.token = process.stdout.strip()
        self._await("simulate", simulation, '"ready"')
        ready = json.loads(self._log_text("simulate").splitlines()[0])
        self.env["REFLOAT_AUTHS"] = ",".join(ready["auths"])
        console = self._spawn("console", sys.executable, "manage.py", "console", "--port", str(self.port))
        self._await("console", console, "Ctrl-C stops everything")

    def stop(self) -> None:
        """Stop both, and check that no process is left."""
        family = [
            child
            for started_process in self._processes
            if started_process.poll() is None
            for child in _processes_of(started_process)
        ]
        children.stop(self._processes, grace=60.0)
        await_condition(lambda: all(is_gone(process.pid) for process in family))

    def fleet(self, *args: str) -> str:
        """Run `refloat fleet simulate …` and return its output."""
        argv = [sys.executable, "-m", "fleet.cli", "fleet", "simulate", *args]
        process = subprocess.run(argv, env=self.env, cwd=ROOT, check=True, capture_output=True, text=True)
        return process.stdout

    def api(self, path: str, body: object = None, if_match: str = "") -> Any:
        """Return the JSON of an API request. Raises AssertionError when it is refused."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=180)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        headers |= {"If-Match": if_match} if if_match else {}
        with closing(connection):
            method, payload = ("GET", None) if body is None else ("POST", json.dumps(body))
            connection.request(method, f"/api/v1{path}", payload, headers)
            answer = connection.getresponse()
            text = answer.read()
        assert answer.status < 300, f"{path}: {answer.status} {text[:500]!r}"
        return json.loads(text)

    def change_step(self, change: str, action: str, body: object) -> Any:
        """Send a step of a change with its current revision."""
        return self.api(f"{change}/{action}", body, self.api(change)["revision"])

    def read_number(self, query: str) -> int:
        """Return the number that a query selects."""
        with closing(sqlite3.connect(self.home / "refloat.sqlite3", timeout=60)) as database:
            return int(database.execute(query).fetchone()[0] or 0)

    def read_request_times(self) -> list[tuple[float, float]]:
        """Return the due time and the request time of each agent of a campaign, in seconds, by due time."""
        query = """
            select (julianday(due_at) - 2440587.5) * 86400, (julianday(requested_at) - 2440587.5) * 86400
            from fleet_campaignagent where requested_at is not null order by due_at
        """
        with closing(sqlite3.connect(self.home / "refloat.sqlite3", timeout=60)) as database:
            return database.execute(query).fetchall()

    def count(self, condition: str) -> int:
        """Return the number of campaign agents that match a condition."""
        return self.read_number(f"select count(*) from fleet_campaignagent where {condition}")

    def process(self, keyword: str) -> psutil.Process | None:
        """Return the console's process with that keyword in its command line."""
        for process in _processes_of(self._processes[1]):
            try:
                if keyword in process.cmdline():
                    return process
            except psutil.Error:
                continue
        return None

    def kill(self, keyword: str) -> psutil.Process:
        """Kill that process with SIGKILL and return it."""
        process = self.process(keyword)
        assert process is not None
        process.send_signal(signal.SIGKILL)
        await_condition(lambda: is_gone(process.pid))
        return process

    def await_another(self, keyword: str, old_process: psutil.Process) -> None:
        """Wait until the process was restarted."""
        await_condition(lambda: (new := self.process(keyword)) is not None and new.pid != old_process.pid)

    def kill_worker(self) -> None:
        """Kill the worker and wait until another one runs."""
        self.await_another(WORKER, self.kill(WORKER))

    def await_steps(self, number: int) -> None:
        """Wait for that many more steps, by the second of each."""
        query = "select json_extract(progress, '$.stepped_at') from fleet_change"
        for _ in range(number):
            before = self.read_number(query)
            await_condition(lambda before=before: self.read_number(query) > before)

    def _spawn(self, name: str, *argv: str) -> subprocess.Popen[bytes]:
        with (self.home / f"{name}.log").open("wb") as log:
            process = children.spawn(argv, env=self.env, cwd=str(ROOT), log=log)
        self._processes.append(process)
        return process

    def _log_text(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text(errors="replace")

    def _await(self, name: str, process: subprocess.Popen[bytes], ready_text: str) -> None:
        await_condition(lambda: process.poll() is not None or ready_text in self._log_text(name))
        assert process.poll() is None, self._log_text(name)


def _processes_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    root = psutil.Process(process.pid)
    return [root, *root.children(recursive=True)]


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """An installation with all agents known, a few of them stranded."""
    new_installation = Installation(tmp_path)
    try:
        new_installation.start()
        new_installation.fleet("fault", "strand", "proxy-2", str(STRANDED_COUNT))
        await_condition(
            lambda: new_installation.api("/fleet/summary")["counts"]["healthy"] == AGENTS - STRANDED_COUNT
        )
        yield new_installation
    finally:
        new_installation.stop()


@pytest.fixture
def page(installation: Installation) -> Iterator[Page]:
    """A page of a browser that is signed in."""
    path = executable()
    expect.set_options(timeout=DEADLINE_MS)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=ARGUMENTS, timeout=LAUNCH_MS)
        tab = browser.new_page()
        tab.set_default_timeout(2 * DEADLINE_MS)
        tab.goto(f"http://127.0.0.1:{installation.port}/accounts/login/")
        tab.fill("input[name=login]", USERNAME)
        tab.fill("input[type=password]", PASSWORD)
        tab.click("main button[type=submit]")
        tab.wait_for_url(f"http://127.0.0.1:{installation.port}/")
        yield tab
        browser.close()


def _await_progress(page: Page, *, above: int) -> int:
    """Wait until the page's progress bar is above a value; return its value."""
    bar = "document.querySelector('#campaign progress').value"
    page.wait_for_function(f"() => {bar} > {above}")
    return int(page.evaluate(bar))


def _kill_web_server(installation: Installation, page: Page) -> None:
    """Kill the web server: the campaign continues, the server restarts, and the page keeps up without a reload."""
    page.evaluate("window.neverLeft = true")
    bar_value, statuses = _await_progress(page, above=0), []
    page.on("response", lambda answer: statuses.append(answer.status))
    dead_process = installation.kill(WEB)
    del statuses[:]
    moved_count = installation.count("state = 'succeeded'")
    await_condition(lambda: installation.count("state = 'succeeded'") > moved_count)
    installation.await_another(WEB, dead_process)
    _await_progress(page, above=bar_value)
    assert set(statuses) == {200}
    assert page.evaluate("window.neverLeft")
    expect(page.locator("#change-state .tag")).to_have_text("running")


def _keeps_the_rate_limit(console: Installation) -> None:
    """In no interval, short or long, were more agents due than the limit allows; none was asked before it was due.

    This holds whatever the speed of the machine, and however long no worker ran.
    """
    due_times, request_times = np.array(console.read_request_times()).T
    assert (request_times >= due_times - 0.001).all()
    per_second = PACE["rate_per_minute"] / 60
    # The excess of an interval over the rate is the difference between two of these.
    excess = np.arange(len(due_times)) - per_second * due_times
    largest_excess = float((excess - np.minimum.accumulate(excess)).max()) + 1
    allowed_excess = per_second * (BURST_SECONDS + PACE["jitter_seconds"]) + PACE["canary_size"] + 1
    assert largest_excess <= allowed_excess, (largest_excess, allowed_excess)


def test_campaign_survives_kills_pause_resume_and_abort(installation: Installation, page: Page) -> None:
    """The web server dies under way, workers do under way and in a pause; failures above the threshold abort it; nobody
    is asked twice, or cut; who is under way is working, and nobody is when it is over; the rate limit is kept."""
    console = installation
    plan = console.api("/reconnect/plan", {"q": "agent", "settings": PACE})
    assert (plan["affected_count"], plan["plan"]["reconnect_count"]) == (AGENTS, AGENTS - STRANDED_COUNT)
    change = f"/changes/{plan['id']}"
    console.change_step(change, "confirm", {"reason": "to try", "confirmation": "default"})

    page.goto(f"http://127.0.0.1:{console.port}{change}/")

    await_condition(lambda: console.count("state = 'succeeded'") >= 300)
    _kill_web_server(console, page)
    console.kill_worker()
    console.await_steps(2)
    console.change_step(change, "actions", {"action": "pause"})
    await_condition(lambda: console.count("state in ('scheduled', 'in-progress')") == 0)
    advised_agents = json.loads(console.fleet("advice", "--json"))["agent_counts"]
    console.kill_worker()
    console.await_steps(3)
    assert json.loads(console.fleet("advice", "--json"))["agent_counts"] == advised_agents
    assert console.api(f"{change}/progress")["state"] == "paused"

    console.fleet("fault", "ignore-advice", "all", "1000")
    console.change_step(change, "actions", {"action": "resume"})
    await_condition(lambda: console.api(f"{change}/progress")["state"] == "failed", seconds=2 * PATIENCE)

    _keeps_the_rate_limit(console)
    progress = console.api(f"{change}/progress")
    assert "agents failed" in progress["detail"]
    expect(page.locator("#change-state .tag")).to_have_text("failed")
    expect(page.locator("#campaign .status-line")).to_contain_text(f"of {AGENTS:,} agents moved")
    succeeded_count, failed_count, skipped_count = (
        progress[f"{state}_count"] for state in ("succeeded", "failed", "skipped")
    )
    assert (
        succeeded_count + failed_count + skipped_count
        == progress["finished_count"]
        == progress["total_count"]
        == AGENTS
    )
    assert succeeded_count >= 300
    assert failed_count > 0
    advice = json.loads(console.fleet("advice", "--json"))
    advised_count = console.count(
        "requested_at is not null and reason not like 'the agent''s tunnel had closed%'"
    )
    assert list(advice["agent_counts"].values()) == [advised_count]
    assert succeeded_count + failed_count <= advised_count < AGENTS
    assert (advice["max_sent_count"], advice["min_tunnel_count"]) == (1, 2)
    # A round that sees an agent elsewhere calls it working first: the history has it, however short it was.
    working_query = f"select count(distinct agent_id) from fleet_agentchange where new = {State.WORKING:d}"
    await_condition(lambda: console.read_number(working_query) > 0)
    assert console.read_number(working_query) <= console.count("requested_at is not null")
    await_condition(lambda: console.api("/fleet/summary")["counts"]["working"] == 0)
    log = [entry["action"] for entry in console.api("/audit?q=reconnect")["entries"]]
    assert log == [
        f"reconnect.{action}" for action in ("failed", "running", "paused", "start", "confirm", "plan")
    ]
    produced(
        Database(console.home),
        verdicts=("working",),
        reasons=("reconnecting",),
        recoveries=("by-itself",),
        change_kinds=("reconnect",),
        change_words=("plan", "confirm", "start", "paused", "running", "failed"),
    )
    _is_stopped(console)
    produced(Database(console.home), actions=("reconnect.stop",), change_words=("cancelled",))


def _is_stopped(console: Installation) -> None:
    """Stop another running campaign: no further agent is advised."""
    plan = console.api(
        "/reconnect/plan", {"q": "agent", "settings": {**PACE, "failure_threshold_percent": 100}}
    )
    change = f"/changes/{plan['id']}"
    console.change_step(change, "confirm", {"reason": "to stop it", "confirmation": "default"})
    await_condition(lambda: console.api(f"{change}/progress")["state"] == "running")
    console.change_step(change, "actions", {"action": "stop"})
    await_condition(lambda: console.api(f"{change}/progress")["state"] == "cancelled")
