"""Forked copies of a process that behave like separate programs. A program forks them, and never pytest."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fleet.processes import forks
from tests.fakes.waiting import eventually_sync, is_gone

_PARENT_PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from fleet.processes import forks

def begin():
    env = {**os.environ, "PLACE": "copy"}
    os.environ.clear()
    os.environ.update(env)
    print("begun", flush=True)

signal.signal(signal.SIGTERM, lambda *_: Path(sys.argv[1], "parent").touch())
with Path(sys.argv[1], "log").open("ab") as log:
    child = forks.spawn(
        "program", (sys.executable, "-m", *sys.argv[2:]), log=log, begin=begin,
    )
print(child.pid, flush=True)
print("ended with", child.wait(), flush=True)
"""
_PROGRAM = """
import json, os, signal, sys, time
print(json.dumps({"argv": sys.argv[1:], "place": os.environ["PLACE"], "name": __name__, "session": os.getsid(0)}))
sys.stdout.flush()
if sys.argv[1:] == ["fail"]:
    sys.exit(7)
if sys.argv[1:] == ["crash"]:
    raise ValueError("no luck")
time.sleep(600)
"""


class ForkingParent:
    """A program that runs another program as its forked copy."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        (folder / "program_of_a_test.py").write_text(_PROGRAM)
        self.folder = folder
        argv = [sys.executable, "-c", _PARENT_PROGRAM, str(folder), "program_of_a_test", *arguments]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
        self.process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.pid = int(self.process.stdout.readline())

    def read_remaining_output(self) -> str:
        """Return the output of the parent until it ends."""
        assert self.process.stdout is not None
        # Not `communicate`: it leaves out what `readline` has read beyond the first line.
        with self.process.stdout as output:
            rest = output.read()
        self.process.wait(timeout=60)
        return rest

    def read_log(self) -> str:
        """Return the output of the copy."""
        return (self.folder / "log").read_text()

    def read_report(self) -> dict[str, object]:
        """Return the report of the program about itself."""
        eventually_sync(lambda: "}" in self.read_log())
        response: dict[str, object] = json.loads(self.read_log().splitlines()[1])
        return response


@pytest.fixture
def sleeping_parent(tmp_path: Path) -> Iterator[ForkingParent]:
    """Yield the parent of a copy that runs until it is ended."""
    parent = ForkingParent(tmp_path, "--flag", "x")
    yield parent
    parent.process.kill()
    parent.process.wait()
    if parent.process.stdout is not None:
        parent.process.stdout.close()


def test_copy_runs_the_program_with_its_environment_and_session(sleeping_parent: ForkingParent) -> None:
    """The program runs as with `python -m`, and its output is in the log."""
    response = sleeping_parent.read_report()

    assert response == {
        "argv": ["--flag", "x"],
        "place": "copy",
        "name": "__main__",
        "session": sleeping_parent.pid,
    }
    assert sleeping_parent.read_log().startswith("begun\n")


def test_copy_has_the_command_line_of_the_program(sleeping_parent: ForkingParent) -> None:
    """`ps` shows the program and not its parent."""
    sleeping_parent.read_report()

    command_line = [argument for argument in psutil.Process(sleeping_parent.pid).cmdline() if argument]
    assert command_line == [sys.executable, "-m", "program_of_a_test", "--flag", "x"]


def test_sigterm_ends_the_copy_without_handlers_of_its_parent(sleeping_parent: ForkingParent) -> None:
    """The parent gets the exit status."""
    sleeping_parent.read_report()
    os.kill(sleeping_parent.pid, signal.SIGTERM)

    assert sleeping_parent.read_remaining_output() == "ended with -15\n"
    assert not (sleeping_parent.folder / "parent").exists()


def test_copy_dies_with_its_parent(sleeping_parent: ForkingParent) -> None:
    """A parent that dies without cleaning up leaves no processes behind."""
    sleeping_parent.read_report()
    sleeping_parent.process.kill()
    sleeping_parent.process.wait()

    eventually_sync(lambda: is_gone(sleeping_parent.pid))


@pytest.mark.parametrize(
    ("argument", "code", "log_text"), [("fail", 7, "fail"), ("crash", 1, "ValueError: no luck")]
)
def test_failed_copy_has_its_exit_code_and_log(
    tmp_path: Path, argument: str, code: int, log_text: str
) -> None:
    """The exit code is the program's, and a traceback is in its log."""
    parent = ForkingParent(tmp_path, argument)

    assert parent.read_remaining_output() == f"ended with {code}\n"
    assert log_text in parent.read_log()


def test_only_python_modules_can_be_forked() -> None:
    """Other programs must be executed."""
    assert forks.is_possible((sys.executable, "-m", "celery"))
    assert not forks.is_possible((sys.executable, "-c", "pass"))
    assert not forks.is_possible(("/usr/bin/valkey-server", "-m", "x"))
