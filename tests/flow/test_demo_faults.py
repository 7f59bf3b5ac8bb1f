"""`make demo FAULTS=1`: the script of faults, what the console makes of the first one, and Ctrl-C."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from fleet.vocabulary.verdicts import State
from tests.fakes.waiting import eventually_sync, is_gone
from tests.flow.alerting import sql
from tests.flow.producers import Database, produced
from tests.flow.running import Demo, start_demo_by_make

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

AGENTS = 20
#: Seconds; the script freezes proxy-1 after 20 s and resumes it after 60 s.
PATIENCE = 300.0


def _incidents(demo: Demo) -> list[tuple[str, str]]:
    """Cause and state of the incidents of proxies."""
    rows = sql(demo.home, "select cause_name, state from fleet_incident where cause_kind = 'proxy'")
    return [(name, state) for name, state in rows]


def _changes(demo: Demo) -> set[tuple[State, State]]:
    rows: list[Any] = sql(demo.home, "select distinct old, new from fleet_agentchange where old <> new")
    return {(State(old), State(new)) for old, new in rows}


def test_scripted_fault_is_an_incident_that_ends(tmp_path: Path) -> None:
    """The first fault strands agents and opens an incident; both end with the fault. Ctrl-C ends every process."""
    shape = ("--auths", "1", "--proxies", "2", "--agents", str(AGENTS), "--announce-ttl", "60s")
    demo = start_demo_by_make(tmp_path, *shape, FAULTS="1")
    try:
        assert "Scripted incidents run automatically" in demo.terminal_text()
        # An installation waits five minutes for a fault to return before an incident is over.
        sql(demo.home, "update fleet_alertrule set recover_seconds = 5")
        eventually_sync(lambda: ("proxy-1", "firing") in _incidents(demo), seconds=PATIENCE)
        assert "refloat fleet freeze proxy-1: " in demo.terminal_text()
        eventually_sync(lambda: ("proxy-1", "resolved") in _incidents(demo), seconds=PATIENCE)
        assert "refloat fleet resume proxy-1: " in demo.terminal_text()
        eventually_sync(
            lambda: {(State.HEALTHY, State.STRANDED), (State.STRANDED, State.HEALTHY)} <= _changes(demo)
        )
        assert "failed with exit code" not in demo.terminal_text()
        produced(
            Database(demo.home),
            verdicts=("stranded", "healthy"),
            causes=("proxy",),
            incident_causes=("proxy",),
        )
    finally:
        family = demo.processes()
        # As a terminal does: to make and to what it runs.
        os.killpg(demo.process.pid, signal.SIGINT)
        demo.process.wait(timeout=180)
    eventually_sync(lambda: all(is_gone(process.pid) for process in family))
