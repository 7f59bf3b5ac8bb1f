"""Minutes of faults played and undone: everything heals, nothing dies, nothing complains, nothing grows."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.fakes.waiting import eventually_sync
from tests.flow.running import Demo, start_demo

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

AGENTS = 12
#: Faults are played so long, seconds; from the end of the first part on nothing may grow any more.
SOAK = 180.0
WARM_UP = 60.0
#: Growth of one process, bytes.
MAX_GROWTH = 30e6
#: More open files of one process: a request that is being answered has a connection or two.
MAX_FILES = 8
#: A balancer has two for each link, and every agent may open one more in need, which it keeps.
MAX_LINK_FILES = MAX_FILES + 2 * AGENTS
#: A frozen or parted instance is seen by its polls; its agents need a tunnel or a heartbeat again, seconds.
SEEN, HEALED = 180.0, 300.0

#: The last line of a traceback that tells of a wait that was too long. A machine that stands still has those, and the
#: log says what was tried again.
_STALLED = re.compile(
    r"[\w.]*(TimeoutError|TimeLimitExceeded|StateUnavailable)\b|[\w.]*OperationalError: database is locked"
)
_ONE_TRACEBACK = r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n(?=[ \t]))*\S.*"
#: With what led to it.
_TRACEBACK = re.compile(
    rf"{_ONE_TRACEBACK}(?:\n\n(?:During handling|The above exception).*\n\n{_ONE_TRACEBACK})*"
)

#: What is done to an instance, and how it is undone.
FAULTS = (
    ("freeze", "resume", "proxy-1"),
    ("block-backend", "unblock-backend", "auth-1"),
    ("blackhole", "unblackhole", "proxy-2"),
    ("freeze", "resume", "auth-2"),
    ("block-backend", "unblock-backend", "proxy-1"),
    ("blackhole", "unblackhole", "auth-1"),
)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    """A demo of its own, small, with all its agents healthy."""
    demo_process = start_demo(tmp_path, "--auths", "2", "--proxies", "2", "--agents", str(AGENTS))
    try:
        demo_process.await_counts({"healthy": AGENTS})
        yield demo_process
    finally:
        demo_process.stop()


def test_faults_for_minutes_leave_no_trace(demo: Demo) -> None:
    """Each fault is seen and heals; at the end every process is the one it was, as big as it was, with clean logs."""
    processes = _processes_of(demo)
    before = {process.pid for process in demo.processes()}
    start = time.monotonic()

    _inject_faults(demo, lambda: time.monotonic() - start > WARM_UP)
    warm = _sizes(processes)
    _inject_faults(demo, lambda: time.monotonic() - start > SOAK)

    assert {process.pid for process in demo.processes()} == before
    assert "; restarting in" not in demo.terminal_text()
    assert _tracebacks(demo) == {}
    grown = {}

    def steady() -> bool:
        nonlocal grown
        grown = _grown(warm, _sizes(processes))
        return not grown

    with contextlib.suppress(AssertionError):  # the next line says more
        eventually_sync(steady, seconds=HEALED)
    assert grown == {}


def _inject_faults(demo: Demo, enough: Callable[[], bool]) -> None:
    """Play every fault at least once, and go on until it is enough."""
    while True:
        for fault, undo, name in FAULTS:
            demo.fleet(fault, name)
            try:
                eventually_sync(lambda name=name: _instance_states(demo)[name] != "ok", seconds=SEEN)
            finally:
                demo.fleet(undo, name)
            eventually_sync(lambda: _is_healthy(demo), seconds=HEALED)
        if enough():
            return


def _is_healthy(demo: Demo) -> bool:
    """Every instance is ok; every agent works: an agent that opened a tunnel in need keeps it and reads excess."""
    counts = demo.counts()
    return (
        set(_instance_states(demo).values()) == {"ok"}
        and set(counts) <= {"healthy", "excess"}
        and sum(counts.values()) == AGENTS
    )


def _instance_states(demo: Demo) -> dict[str, str]:
    return {instance["name"]: instance["state"] for instance in demo.get("instances")["instances"]}


def _processes_of(demo: Demo) -> dict[str, psutil.Process]:
    """What must not grow, by name: the web process, the worker of the rounds, the balancers."""
    marks = {"uvicorn": "web", "polls@%h": "worker-polls"}
    processes = {
        name: process
        for process in demo.processes()
        for mark, name in marks.items()
        if mark in process.cmdline()
    }
    for row in json.loads(demo.fleet("ps", "--json")):
        if row["role"] == "balancer":
            processes[row["name"]] = psutil.Process(row["pid"])
    assert {"web", "worker-polls"} < set(processes), sorted(processes)
    return processes


def _sizes(processes: dict[str, psutil.Process]) -> dict[str, tuple[int, int]]:
    """Bytes of memory and open files by name."""
    return {name: (process.memory_info().rss, process.num_fds()) for name, process in processes.items()}


def _grown(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> dict[str, str]:
    """Return the processes that grew more than a steady process does, by name."""
    return {
        name: f"{(after[name][0] - rss) / 1e6:+.0f} MB, {after[name][1] - fds:+d} files"
        for name, (rss, fds) in before.items()
        if after[name][0] - rss > MAX_GROWTH
        or after[name][1] - fds > (MAX_LINK_FILES if name.endswith("-balancer") else MAX_FILES)
    }


def _tracebacks(demo: Demo) -> dict[str, str]:
    """By file, the last traceback that any process wrote and that is not of a wait."""
    tracebacks = {}
    for log in demo.home.rglob("*.log"):
        for traceback in _TRACEBACK.findall(log.read_text(errors="replace")):
            if not _STALLED.match(traceback.rpartition("\n")[2]):
                tracebacks[str(log.relative_to(demo.home))] = traceback[-4000:]
    return tracebacks
