"""Dead children are restarted after a growing pause, and errors in their logs are shown on the terminal."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleet.processes.child_restarter import (
    ChildRestarter,
    describe_exit,
    pause_before_start,
    read_error_lines,
)
from fleet.processes.supervisor import Child, Supervisor, SupervisorError


@dataclass
class _Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class _RestarterSetup:
    """A restarter with real children, a fake clock, and the lines that it wrote."""

    supervisor: Supervisor
    clock: _Clock = field(default_factory=_Clock)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restarter = ChildRestarter(self.supervisor, self.lines.append, self.clock)

    def start_child(self, code: str) -> Child:
        return self.supervisor.start("worker", [sys.executable, "-c", code])

    def end_child(self, child: Child) -> None:
        child.process.wait()
        self.restarter.on_exit(child)


@pytest.fixture
def setup(tmp_path: Path) -> _RestarterSetup:
    """Return a setup without signal handlers, because the supervisor is not entered."""
    return _RestarterSetup(Supervisor(logs=tmp_path))


@pytest.mark.parametrize(("failures", "pause"), [(1, 1.0), (2, 2.0), (5, 16.0), (6, 30.0), (2000, 30.0)])
def test_pause_doubles_up_to_its_maximum(failures: int, pause: float) -> None:
    """The maximum is 30 s."""
    assert pause_before_start(failures) == pause


def test_killed_child_is_restarted_after_a_second(setup: _RestarterSetup) -> None:
    """A second SIGKILL soon afterwards doubles the pause."""
    child = setup.start_child("import time; time.sleep(3600)")
    for pause in (1, 2):
        child.process.kill()
        setup.end_child(child)
        assert f"was terminated by SIGKILL; restarting in {pause} s" in setup.lines[-1]
        setup.clock.now += pause
        setup.restarter.tick()
        assert child.is_alive()
    child.process.kill()
    child.process.wait()


def test_exit_text_names_the_signal() -> None:
    """Operators read names more easily than negative numbers."""
    assert describe_exit(-signal.SIGKILL) == "was terminated by SIGKILL"
    assert describe_exit(3) == "ended with exit code 3"


def test_dead_child_is_restarted_after_its_pause(setup: _RestarterSetup) -> None:
    """The report has the last line of its log, and the child is not restarted earlier."""
    child = setup.start_child("import sys; print('out of ideas'); sys.exit(3)")
    first = child.pid
    setup.end_child(child)

    setup.restarter.tick()
    assert child.pid == first

    setup.clock.now += 1.0
    setup.restarter.tick()

    assert child.pid != first
    assert setup.lines[0].startswith("worker ended with exit code 3: out of ideas; restarting in 1 s (log: ")
    assert setup.lines[1] == "worker was restarted"
    child.process.wait()


def test_long_run_resets_the_pause(setup: _RestarterSetup) -> None:
    """A child that ran for more than a minute is restarted after the shortest pause."""
    child = setup.start_child("")
    setup.restarter.tick()
    for uptime, pause in ((0.0, 1), (5.0, 2), (61.0, 1)):
        setup.clock.now += uptime
        setup.end_child(child)
        assert f"restarting in {pause} s" in setup.lines[-1]
        setup.clock.now += pause
        setup.restarter.tick()
    child.process.wait()


def test_failed_restart_is_reported_and_retried(setup: _RestarterSetup) -> None:
    """The child stays on the list."""
    child = setup.start_child("")
    child.argv = ("no-such-program",)
    setup.end_child(child)
    setup.clock.now += 1.0

    setup.restarter.tick()

    assert "cannot start no-such-program" in setup.lines[-1]
    with pytest.raises(SupervisorError):
        setup.supervisor.restart(child)


def test_first_error_is_shown_at_once_and_later_errors_are_summarized(
    setup: _RestarterSetup, tmp_path: Path
) -> None:
    """Many errors become one line in 10 s."""
    child = Child("polls", ("polls",), tmp_path / "polls.log", subprocess.Popen(["true"]))
    child.process.wait()
    setup.supervisor.children.append(child)
    child.log.write_text("[INFO] fine\n[ERROR] first\n")
    setup.restarter.tick()
    with child.log.open("a") as log:
        log.write("[ERROR] second\n[CRITICAL] third\n")
    setup.restarter.tick()
    early_lines = list(setup.lines)

    setup.clock.now += 10.0
    setup.restarter.tick()

    assert early_lines == [f"polls: [ERROR] first (log: {child.log})"]
    assert setup.lines[1:] == [f"polls: 2 errors, last one: [CRITICAL] third (log: {child.log})"]


def test_error_line_is_read_when_it_is_complete(tmp_path: Path) -> None:
    """A partly written line is read later, once."""
    log = tmp_path / "log"
    log.write_text("ERROR: a\nERROR: b")
    first, read = read_error_lines(log, 0)
    with log.open("a") as more:
        more.write("c\n")
    second, _ = read_error_lines(log, read)

    assert (first, second) == (["ERROR: a"], ["ERROR: bc"])


def test_missing_log_has_no_errors() -> None:
    """The position stays the same."""
    assert read_error_lines(Path("nowhere/at/all"), 7) == ([], 7)
