from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import timings
from tests.meta.house import ROOT
from tests.timings import Phase

PHASES = [
    Phase("tests/a.py::slow", "setup", "passed", 2.0, 0.5),
    Phase("tests/a.py::slow", "call", "passed", 1.0, 0.25),
    Phase("tests/a.py::quick", "call", "failed", 0.5, 0.5),
    Phase("tests/a.py::quick", "teardown", "passed", 0.0, 0.0),
    Phase("tests/b.py::busy", "call", "passed", 1.0, 1.5),
    Phase("tests/b.py::absent", "setup", "skipped", 0.0, 0.0),
]


def test_cost_of_a_test_sums_its_phases() -> None:
    """Wall and CPU time of set-up, call and tear-down; idle time is the rest, never negative."""
    slowest, second, *_ = timings.by_test(PHASES)

    assert (slowest.name, slowest.wall, slowest.cpu, slowest.idle) == ("tests/a.py::slow", 3.0, 0.75, 2.25)
    assert (second.name, second.idle) == ("tests/b.py::busy", 0.0)


def test_cost_of_a_file_sums_its_tests() -> None:
    """The slowest file comes first."""
    assert [(cost.name, cost.wall) for cost in timings.by_file(PHASES)] == [
        ("tests/a.py", 3.5),
        ("tests/b.py", 1.0),
    ]


def test_outcome_of_a_test_is_its_worst_phase() -> None:
    """A failed call stays failed after a good tear-down."""
    assert timings.outcomes(PHASES) == {"passed": 2, "failed": 1, "skipped": 1}


def test_summary_ends_with_the_counts() -> None:
    """CI reads the last line."""
    assert timings.summary(PHASES).splitlines()[-1] == "2 passed, 1 failed, 1 skipped"


def test_plugin_records_tests_of_every_process(tmp_path: Path) -> None:
    """With two processes each phase is written once, and the CPU time a test used comes with it."""
    (tmp_path / "test_sample.py").write_text(
        "import time\n"
        "def test_busy():\n"
        "    end = time.process_time() + 0.2\n"
        "    while time.process_time() < end: pass\n"
        "def test_idle(): pass\n"
    )
    record = tmp_path / "run.jsonl"
    argv = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "tests.timings", "-n", "2", "-c", os.devnull]
    environment = {
        **os.environ,
        timings.VARIABLE: str(record),
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    subprocess.run(
        [*argv, "--rootdir=.", "test_sample.py"],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
    )

    phases = timings.read(tmp_path)

    assert sorted((phase.test.partition("::")[2], phase.phase) for phase in phases) == [
        (test, phase) for test in ("test_busy", "test_idle") for phase in ("call", "setup", "teardown")
    ]
    assert timings.by_test(phases)[0].cpu >= 0.2
