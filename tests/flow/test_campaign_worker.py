"""A campaign over 5,000 simulated agents by workers that are killed: totals add up, nobody is asked twice."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.fakes.waiting import eventually_sync
from tests.meta.house import ROOT

AGENTS = 5_000
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class Installation:
    """A console's database with one campaign in it, and the worker that carries it on: tests.fakes.campaign_worker."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {**os.environ, "REFLOAT_HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self.worker: subprocess.Popen[bytes] | None = None

    def do(self, *words: str) -> str:
        """Run the program for one thing."""
        argv = [sys.executable, "-m", "tests.fakes.campaign_worker", *words]
        return subprocess.run(argv, env=self.env, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    def start(self) -> None:
        """Start a worker."""
        argv = [sys.executable, "-m", "tests.fakes.campaign_worker", "work"]
        self.worker = subprocess.Popen(argv, env=self.env, cwd=ROOT)

    def kill(self) -> None:
        """As a power cut does."""
        assert self.worker is not None
        self.worker.send_signal(signal.SIGKILL)
        self.worker.wait()

    def ask(self, query: str) -> int:
        """A number out of the database."""
        with closing(sqlite3.connect(self.home / "refloat.sqlite3", timeout=20)) as database:
            return int(database.execute(query).fetchone()[0] or 0)

    def count(self, *states: str) -> int:
        """Agents in some states."""
        said = ", ".join(f"'{state}'" for state in states)
        return self.ask(f"select count(*) from fleet_campaignagent where state in ({said})")

    def await_steps(self, number: int) -> None:
        """Wait until the worker has made so many more."""
        query = "select json_extract(progress, '$.stepped_at') from fleet_change"
        before = self.ask(query)
        eventually_sync(lambda: self.ask(query) >= before + number, seconds=60)

    @property
    def state(self) -> str:
        """Of the change."""
        with closing(sqlite3.connect(self.home / "refloat.sqlite3", timeout=20)) as database:
            return str(database.execute("select state from fleet_change").fetchone()[0])

    def fleet(self, query: str) -> int:
        """A number out of the simulated fleet's own book."""
        with closing(sqlite3.connect(self.home / "fleet.sqlite3", timeout=20)) as database:
            return int(database.execute(query).fetchone()[0] or 0)


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """With 5,000 agents on three proxies, of which one in four of the last half will not move."""
    made = Installation(tmp_path)
    made.do("prepare", str(AGENTS))
    yield made
    if made.worker is not None:
        made.kill()


def test_killed_paused_resumed_aborted(installation: Installation) -> None:
    """Three workers die; a pause holds; failures above the threshold abort it; every agent has one result."""
    one = installation
    one.start()
    for least in (500, 1_000, 1_500):
        eventually_sync(lambda least=least: one.count("ok") >= least, seconds=120)
        one.kill()
        one.start()
    one.do("pause")
    one.await_steps(3)  # the one under way when it was paused may still have asked
    eventually_sync(lambda: one.count("asked") == 0, seconds=60)
    asked = one.fleet("select count(*) from asked")
    one.await_steps(3)
    assert one.fleet("select count(*) from asked") == asked
    one.do("resume")
    eventually_sync(lambda: one.state == "failed", seconds=180)
    results = [one.count(state) for state in ("ok", "failed", "skipped")]
    assert sum(results) == AGENTS
    assert results[1] > 0
    assert one.fleet("select max(times) from asked") == 1
    assert one.fleet("select min(fewest) from agents") == 1
    assert one.count("ok", "failed") <= one.fleet("select count(*) from asked") < AGENTS
