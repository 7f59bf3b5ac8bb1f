"""A campaign over 5,000 simulated agents by a whole console, whose web server and Celery worker are killed under way,
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

import psutil
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from fleet.processes import children, valkey
from tests.browser.chromium import ARGUMENTS, LAUNCH_MS, executable
from tests.browser.visits import DEADLINE_MS
from tests.fakes.waiting import gone
from tests.flow.producers import Database, produced
from tests.meta.house import ROOT

AGENTS = 5_000
LOST = 30
USERNAME, PASSWORD = "ada", "correct horse battery"
#: 25 a second: it lasts longer than the restarts. On a busy machine rounds are late, and nobody has failed for that.
PACE = {
    "rate": 1_500, "per_proxy": 5_000, "canaries": 5, "hold": 1, "jitter": 1, "patience": 40, "max_failed": 5,
    "max_stranded": 1_000,
}  # fmt: skip
# Away from most tests: an agent that moves late because of them would count as failed.
pytestmark = [pytest.mark.slow, pytest.mark.serial, pytest.mark.browser, pytest.mark.timeout(1800)]

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


def until(met: Callable[[], bool], *, seconds: float = PATIENCE) -> None:
    """Wait for it; looks four times a second, for each look costs the console work."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(0.25)


class Installation:
    """A simulated fleet, a console that polls it, and a client of its API."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = valkey.free_port()
        ours = ("REFLOAT_", "REDIS_", "DATABASE_", "DJANGO_")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self.env |= {"REFLOAT_HOME": str(home), "DJANGO_SETTINGS_MODULE": "dashboards.config.settings"}
        self.env |= {
            "REFLOAT_ROUND_INTERVAL": "2.0",
            "REFLOAT_ROUND_DEADLINE": "1.8",
            "PYTHONUNBUFFERED": "1",
        }
        self.token = ""
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Simulation and console; both are up when it returns."""
        size = ("--agents", str(AGENTS), "--proxies", "6", "--auths", "1", "--processes", "1", "--json")
        simulation = self._spawn("simulate", sys.executable, "-m", "fleet.cli", "fleet", "simulate", *size)
        made = subprocess.run(
            [sys.executable, "-c", _PREPARE],
            env=self.env,
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        )
        self.token = made.stdout.strip()
        self._await("simulate", simulation, '"ready"')
        ready = json.loads(self._said("simulate").splitlines()[0])
        self.env["REFLOAT_AUTHS"] = ",".join(ready["auths"])
        console = self._spawn("console", sys.executable, "manage.py", "console", "--port", str(self.port))
        self._await("console", console, "Ctrl-C stops everything")

    def end(self) -> None:
        """End both, and see that nothing is left."""
        family = [child for one in self._processes if one.poll() is None for child in _family(one)]
        children.stop(self._processes, grace=60.0)
        until(lambda: all(gone(process.pid) for process in family))

    def fleet(self, *words: str) -> str:
        """What `refloat fleet simulate …` prints."""
        argv = [sys.executable, "-m", "fleet.cli", "fleet", "simulate", *words]
        done = subprocess.run(argv, env=self.env, cwd=ROOT, check=True, capture_output=True, text=True)
        return done.stdout

    def api(self, path: str, body: object = None, if_match: str = "") -> Any:
        """The JSON of what the API answers. Raises AssertionError when it refuses."""
        asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=180)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        headers |= {"If-Match": if_match} if if_match else {}
        with closing(asked):
            method, sent = ("GET", None) if body is None else ("POST", json.dumps(body))
            asked.request(method, f"/api/v1{path}", sent, headers)
            answer = asked.getresponse()
            text = answer.read()
        assert answer.status < 300, f"{path}: {answer.status} {text[:500]!r}"
        return json.loads(text)

    def tell(self, change: str, word: str, body: object) -> Any:
        """Ask something of a change as it is now."""
        return self.api(f"{change}/{word}", body, self.api(change)["revision"])

    def ask(self, query: str) -> int:
        """A number out of the database."""
        with closing(sqlite3.connect(self.home / "refloat.sqlite3", timeout=60)) as database:
            return int(database.execute(query).fetchone()[0] or 0)

    def count(self, where: str) -> int:
        """Agents of the campaign."""
        return self.ask(f"select count(*) from fleet_campaignagent where {where}")

    def process(self, word: str) -> psutil.Process | None:
        """The process of the console with that word in its command line."""
        for process in _family(self._processes[1]):
            try:
                if word in process.cmdline():
                    return process
            except psutil.Error:
                continue
        return None

    def kill(self, word: str) -> psutil.Process:
        """As a power cut does; who it was."""
        one = self.process(word)
        assert one is not None
        one.send_signal(signal.SIGKILL)
        until(lambda: gone(one.pid))
        return one

    def await_another(self, word: str, one: psutil.Process) -> None:
        """Wait until it was started again."""
        until(lambda: (new := self.process(word)) is not None and new.pid != one.pid)

    def kill_worker(self) -> None:
        """Wait until there is another that makes steps."""
        self.await_another(WORKER, self.kill(WORKER))

    def await_steps(self, number: int) -> None:
        """Wait until so many more have been made, by the second each was made in."""
        query = "select json_extract(progress, '$.stepped_at') from fleet_change"
        for _ in range(number):
            before = self.ask(query)
            until(lambda before=before: self.ask(query) > before)

    def _spawn(self, name: str, *argv: str) -> subprocess.Popen[bytes]:
        with (self.home / f"{name}.log").open("wb") as log:
            process = children.spawn(argv, env=self.env, cwd=str(ROOT), log=log)
        self._processes.append(process)
        return process

    def _said(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text(errors="replace")

    def _await(self, name: str, process: subprocess.Popen[bytes], words: str) -> None:
        until(lambda: process.poll() is not None or words in self._said(name))
        assert process.poll() is None, self._said(name)


def _family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    mine = psutil.Process(process.pid)
    return [mine, *mine.children(recursive=True)]


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """With all its agents seen, of which a few have lost their tunnels."""
    made = Installation(tmp_path)
    try:
        made.start()
        made.fleet("fault", "strand", "proxy-2", str(LOST))
        until(lambda: made.api("/fleet/summary")["counts"]["healthy"] == AGENTS - LOST)
        yield made
    finally:
        made.end()


@pytest.fixture
def page(installation: Installation) -> Iterator[Page]:
    """Somebody's browser, signed in."""
    path = executable()
    expect.set_options(timeout=DEADLINE_MS)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=ARGUMENTS, timeout=LAUNCH_MS)
        opened = browser.new_page()
        opened.set_default_timeout(2 * DEADLINE_MS)
        opened.goto(f"http://127.0.0.1:{installation.port}/accounts/login/")
        opened.fill("input[name=login]", USERNAME)
        opened.fill("input[type=password]", PASSWORD)
        opened.click("main button[type=submit]")
        opened.wait_for_url(f"http://127.0.0.1:{installation.port}/")
        yield opened
        browser.close()


def _shown(page: Page, *, above: int) -> int:
    """Wait until the bar of the page stands higher; where it stands."""
    bar = "document.querySelector('#campaign progress').value"
    page.wait_for_function(f"() => {bar} > {above}")
    return int(page.evaluate(bar))


def _web_dies(one: Installation, page: Page) -> None:
    """The campaign goes on without it; it is started again; the page, not loaded anew, shows how it went on."""
    page.evaluate("window.neverLeft = true")
    seen, answered = _shown(page, above=0), []
    page.on("response", lambda answer: answered.append(answer.status))
    killed = one.kill(WEB)
    del answered[:]
    moved = one.count("state = 'ok'")
    until(lambda: one.count("state = 'ok'") > moved)
    one.await_another(WEB, killed)
    _shown(page, above=seen)
    assert set(answered) == {200}
    assert page.evaluate("window.neverLeft")
    expect(page.locator("#change-state .tag")).to_have_text("running")


def test_killed_paused_resumed_aborted(installation: Installation, page: Page) -> None:
    """The web server dies under way, workers do under way and in a pause; failures above the threshold abort it; nobody
    is asked twice, or cut; who is under way is working, and nobody is when it is over."""
    one = installation
    planned = one.api("/reconnect/plan", {"q": "agent", "pace": PACE})
    assert (planned["agents"], planned["plan"]["asked"]) == (AGENTS, AGENTS - LOST)
    change = f"/changes/{planned['id']}"
    one.tell(change, "confirm", {"reason": "to try", "typed": "default"})

    page.goto(f"http://127.0.0.1:{one.port}{change}/")

    until(lambda: one.count("state = 'ok'") >= 300)
    _web_dies(one, page)
    one.kill_worker()
    one.await_steps(2)
    one.tell(change, "do", {"do": "pause"})
    until(lambda: one.count("state in ('due', 'asked')") == 0)
    asked = json.loads(one.fleet("advice", "--json"))["agents"]
    one.kill_worker()
    one.await_steps(3)
    assert json.loads(one.fleet("advice", "--json"))["agents"] == asked
    assert one.api(f"{change}/progress")["state"] == "paused"

    one.fleet("fault", "deaf", "all", "1500")
    one.tell(change, "do", {"do": "resume"})
    until(lambda: one.api(f"{change}/progress")["state"] == "failed", seconds=2 * PATIENCE)

    said = one.api(f"{change}/progress")
    assert "agents failed" in said["detail"]
    expect(page.locator("#change-state .tag")).to_have_text("failed")
    expect(page.locator("#campaign .status-line")).to_contain_text(f"{AGENTS:,} of {AGENTS:,} agents")
    assert said["ok"] + said["failed"] + said["skipped"] == said["done"] == said["total"] == AGENTS
    assert said["ok"] >= 300
    assert said["failed"] > 0
    book = json.loads(one.fleet("advice", "--json"))
    told = one.count("asked_at is not null and reason not like 'the agent''s tunnel had closed%'")
    assert list(book["agents"].values()) == [told]
    assert said["ok"] + said["failed"] <= told < AGENTS
    assert (book["most"], book["fewest"]) == (1, 2)
    # A round that sees an agent elsewhere calls it working first: the history has it, however short it was.
    worked = "select count(distinct agent) from fleet_transition where new = 'working'"
    until(lambda: one.ask(worked) > 0)
    assert one.ask(worked) <= one.count("asked_at is not null")
    until(lambda: one.api("/fleet/summary")["counts"]["working"] == 0)
    log = [entry["action"] for entry in one.api("/audit?q=reconnect")["entries"]]
    assert log == [
        f"reconnect.{word}" for word in ("failed", "running", "paused", "start", "confirm", "plan")
    ]
    produced(
        Database(one.home),
        verdicts=("working",),
        reasons=("reconnecting",),
        recoveries=("by-itself",),
        change_kinds=("reconnect",),
        change_words=("plan", "confirm", "start", "paused", "running", "failed"),
    )
    _is_stopped(one)
    produced(Database(one.home), actions=("reconnect.stop",), change_words=("cancelled",))


def _is_stopped(one: Installation) -> None:
    """Another campaign is stopped under way: nobody new is asked."""
    planned = one.api("/reconnect/plan", {"q": "agent", "pace": {**PACE, "max_failed": 100}})
    change = f"/changes/{planned['id']}"
    one.tell(change, "confirm", {"reason": "to stop it", "typed": "default"})
    until(lambda: one.api(f"{change}/progress")["state"] == "running")
    one.tell(change, "do", {"do": "stop"})
    until(lambda: one.api(f"{change}/progress")["state"] == "cancelled")
