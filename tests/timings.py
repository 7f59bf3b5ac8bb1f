"""What each test costs: a pytest plugin that records it, and a command that sums it up at the end of `.ci/run`.

Wall time is that of set-up, call and tear-down. CPU time is that of the test's process and of the child processes
that ended meanwhile, so a server that many tests share counts for the test that stops it. What is left is idle.

`TEST_TIMINGS=FILE pytest …` appends one JSON object a phase; `python -m tests.timings FOLDER` reads every `*.jsonl`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

VARIABLE = "TEST_TIMINGS"
#: Rows of each table.
ROWS = 10


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of one test: `setup`, `call` or `teardown`; times in seconds."""

    test: str
    phase: str
    outcome: str
    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Cost:
    """The sum of some phases, in seconds."""

    name: str
    wall: float
    cpu: float

    @property
    def idle(self) -> float:
        """Seconds in which neither the test nor a child process of it computed."""
        return max(self.wall - self.cpu, 0.0)


class Recorder:
    """Measures in the process that runs the tests, and writes in the one that reports."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.phases: list[Phase] = []
        self._cpu = _cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the CPU time since the last report; xdist carries attributes of a report to the controller."""
        report = yield
        before, self._cpu = self._cpu, _cpu_seconds()
        report.cpu_seconds = self._cpu - before  # type: ignore[attr-defined]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report, and write it to the file if there is one."""
        phase = Phase(
            report.nodeid,
            report.when or "",
            report.outcome,
            round(report.duration, 3),
            round(getattr(report, "cpu_seconds", 0.0), 3),
        )
        self.phases.append(phase)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(asdict(phase)) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the slowest tests of this run."""
        slowest = [cost for cost in by_test(self.phases)[:ROWS] if cost.wall >= 1.0]
        if slowest:
            terminalreporter.section("slowest tests")
            terminalreporter.write_line(table(slowest))


def pytest_configure(config: pytest.Config) -> None:
    """Record in every process; write in the controller only."""
    # Taken out: a test may run tests of its own.
    variable_value = os.environ.pop(VARIABLE, None)
    writes = variable_value and not hasattr(config, "workerinput")
    config.pluginmanager.register(
        Recorder(Path(variable_value) if variable_value and writes else None), "timings-recorder"
    )


def by_test(phases: Iterable[Phase]) -> list[Cost]:
    """Return the cost of each test, the slowest first."""
    return _sums((phase.test, phase) for phase in phases)


def by_file(phases: Iterable[Phase]) -> list[Cost]:
    """Return the cost of each test file, the slowest first."""
    return _sums((phase.test.partition("::")[0], phase) for phase in phases)


def outcomes(phases: Iterable[Phase]) -> Counter[str]:
    """Count tests by outcome: a test that fails in any phase has failed, one without a call was skipped."""
    worst: dict[str, str] = {}
    rank = {"passed": 0, "skipped": 1, "failed": 2}
    for phase in phases:
        before = worst.get(phase.test, "passed")
        worst[phase.test] = max(before, phase.outcome, key=lambda outcome: rank[outcome])
    return Counter(worst.values())


def table(costs: Iterable[Cost]) -> str:
    """Return costs as aligned lines."""
    lines = ["    wall      cpu     idle  (seconds)"]
    lines += [f"{cost.wall:8.1f} {cost.cpu:8.1f} {cost.idle:8.1f}  {cost.name}" for cost in costs]
    return "\n".join(lines)


def summary(phases: Iterable[Phase]) -> str:
    """Return the slowest tests, the files that used most CPU time, and the number of tests by outcome."""
    costs = list(phases)
    counts = outcomes(costs)
    return "\n".join(
        [
            "Slowest tests",
            table(by_test(costs)[:ROWS]),
            "",
            "Test files that used most CPU time",
            table(sorted(by_file(costs), key=lambda cost: -cost.cpu)[:ROWS]),
            "",
            f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped",
        ]
    )


def read(folder: Path) -> list[Phase]:
    """Return the phases of every `*.jsonl` in a folder."""
    return [
        Phase(**json.loads(line))
        for file in sorted(folder.glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]


def _sums(phases_by_name: Iterable[tuple[str, Phase]]) -> list[Cost]:
    wall: defaultdict[str, float] = defaultdict(float)
    cpu: defaultdict[str, float] = defaultdict(float)
    for name, phase in phases_by_name:
        wall[name] += phase.wall
        cpu[name] += phase.cpu
    return sorted((Cost(name, wall[name], cpu[name]) for name in wall), key=lambda cost: -cost.wall)


def _cpu_seconds() -> float:
    """CPU seconds of this process and of its child processes that ended."""
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    print(summary(read(Path(sys.argv[1]))))
