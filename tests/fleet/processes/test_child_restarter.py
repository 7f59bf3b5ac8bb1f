"""A dead child is started again after a growing pause, and complaints in logs reach the terminal."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleet.processes.child_restarter import ChildRestarter, exit_text, pause_before_start, read_errors
from fleet.processes.supervisor import Child, Supervisor, SupervisorError


@dataclass
class _Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class _Stage:
    """A keeper over children that really run, a clock that does not, and what was said."""

    supervisor: Supervisor
    clock: _Clock = field(default_factory=_Clock)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keeper = ChildRestarter(self.supervisor, self.said.append, self.clock)

    def start(self, code: str) -> Child:
        return self.supervisor.start("worker", [sys.executable, "-c", code])

    def end(self, child: Child) -> None:
        child.process.wait()
        self.keeper.on_exit(child)


@pytest.fixture
def stage(tmp_path: Path) -> _Stage:
    """No signal handlers: the supervisor is not entered, only asked to start and to restart."""
    return _Stage(Supervisor(logs=tmp_path))


@pytest.mark.parametrize(("failures", "pause"), [(1, 1.0), (2, 2.0), (5, 16.0), (6, 30.0), (2000, 30.0)])
def test_pause_grows_to_its_ceiling(failures: int, pause: float) -> None:
    """Doubling, and never longer than half a minute."""
    assert pause_before_start(failures) == pause


def test_killed_child_starts_again_after_a_second(stage: _Stage) -> None:
    """One SIGKILL costs a second of pages or rounds; a second one soon after it costs more."""
    child = stage.start("import time; time.sleep(3600)")
    for pause in (1, 2):
        child.process.kill()
        stage.end(child)
        assert f"was terminated by SIGKILL; restarting in {pause} s" in stage.said[-1]
        stage.clock.now += pause
        stage.keeper.tick()
        assert child.is_alive()
    child.process.kill()
    child.process.wait()


def test_how_it_ended_names_the_signal() -> None:
    """People read names, not negative numbers."""
    assert exit_text(-signal.SIGKILL) == "was terminated by SIGKILL"
    assert exit_text(3) == "ended with exit code 3"


def test_dead_child_is_started_again_when_its_pause_is_over(stage: _Stage) -> None:
    """It is reported with its last words, and not started before its time."""
    child = stage.start("import sys; print('out of ideas'); sys.exit(3)")
    first = child.pid
    stage.end(child)

    stage.keeper.tick()
    assert child.pid == first

    stage.clock.now += 1.0
    stage.keeper.tick()

    assert child.pid != first
    assert stage.said[0].startswith("worker ended with exit code 3: out of ideas; restarting in 1 s (log: ")
    assert stage.said[1] == "worker was restarted"
    child.process.wait()


def test_long_life_forgives(stage: _Stage) -> None:
    """A child that lived for more than a minute begins with the shortest pause again."""
    child = stage.start("")
    stage.keeper.tick()
    for life, pause in ((0.0, 1), (5.0, 2), (61.0, 1)):
        stage.clock.now += life
        stage.end(child)
        assert f"restarting in {pause} s" in stage.said[-1]
        stage.clock.now += pause
        stage.keeper.tick()
    child.process.wait()


def test_start_that_fails_is_tried_again(stage: _Stage) -> None:
    """A program that cannot be started now is said, and kept on the list."""
    child = stage.start("")
    child.argv = ("no-such-program",)
    stage.end(child)
    stage.clock.now += 1.0

    stage.keeper.tick()

    assert "cannot start no-such-program" in stage.said[-1]
    with pytest.raises(SupervisorError):
        stage.supervisor.restart(child)


def test_complaints_are_told_at_once_and_then_gathered(stage: _Stage, tmp_path: Path) -> None:
    """The first is told as it comes; a flood becomes one line in ten seconds."""
    child = Child("polls", ("polls",), tmp_path / "polls.log", subprocess.Popen(["true"]))
    child.process.wait()
    stage.supervisor.children.append(child)
    child.log.write_text("[INFO] fine\n[ERROR] first\n")
    stage.keeper.tick()
    with child.log.open("a") as log:
        log.write("[ERROR] second\n[CRITICAL] third\n")
    stage.keeper.tick()
    told_early = list(stage.said)

    stage.clock.now += 10.0
    stage.keeper.tick()

    assert told_early == [f"polls: [ERROR] first (log: {child.log})"]
    assert stage.said[1:] == [f"polls: 2 errors, last one: [CRITICAL] third (log: {child.log})"]


def test_complaints_waits_for_whole_lines(tmp_path: Path) -> None:
    """A line half written is read when it is whole, once."""
    log = tmp_path / "log"
    log.write_text("ERROR: a\nERROR: b")
    first, read = read_errors(log, 0)
    with log.open("a") as more:
        more.write("c\n")
    second, _ = read_errors(log, read)

    assert (first, second) == (["ERROR: a"], ["ERROR: bc"])


def test_complaints_of_a_missing_log() -> None:
    """No log yet is no complaint."""
    assert read_errors(Path("nowhere/at/all"), 7) == ([], 7)
