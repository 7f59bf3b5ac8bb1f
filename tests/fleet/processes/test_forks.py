"""Copies of a process that behave like programs of their own. The copies are made by a program, never by pytest."""

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
from tests.fakes.waiting import eventually_sync, gone

_PARENT = """
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


class Parent:
    """A program that runs another as its copy."""

    def __init__(self, folder: Path, *words: str) -> None:
        (folder / "program_of_a_test.py").write_text(_PROGRAM)
        self.folder = folder
        argv = [sys.executable, "-c", _PARENT, str(folder), "program_of_a_test", *words]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
        self.process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.pid = int(self.process.stdout.readline())

    def rest(self) -> str:
        """What it says until it ends."""
        return self.process.communicate(timeout=60)[0]

    def log(self) -> str:
        """What the copy said."""
        return (self.folder / "log").read_text()

    def answer(self) -> dict[str, object]:
        """What the program says of itself."""
        eventually_sync(lambda: "}" in self.log())
        answer: dict[str, object] = json.loads(self.log().splitlines()[1])
        return answer


@pytest.fixture
def sleeping(tmp_path: Path) -> Iterator[Parent]:
    """A copy that runs until it is ended."""
    made = Parent(tmp_path, "--flag", "x")
    yield made
    made.process.kill()
    made.process.wait()
    if made.process.stdout is not None:
        made.process.stdout.close()


def test_copy_runs_the_program_with_its_own_environment(sleeping: Parent) -> None:
    """As `python -m` would; in a session of its own, its words in the log."""
    answer = sleeping.answer()

    assert answer == {"argv": ["--flag", "x"], "place": "copy", "name": "__main__", "session": sleeping.pid}
    assert sleeping.log().startswith("begun\n")


def test_copy_is_shown_as_the_program(sleeping: Parent) -> None:
    """Whoever looks with `ps` sees what runs, not who began it."""
    sleeping.answer()

    words = [word for word in psutil.Process(sleeping.pid).cmdline() if word]
    assert words == [sys.executable, "-m", "program_of_a_test", "--flag", "x"]


def test_copy_ends_by_sigterm_without_the_handlers_of_its_parent(sleeping: Parent) -> None:
    """The parent learns how it ended."""
    sleeping.answer()
    os.kill(sleeping.pid, signal.SIGTERM)

    assert sleeping.rest() == "ended with -15\n"
    assert not (sleeping.folder / "parent").exists()


def test_copy_dies_with_its_parent(sleeping: Parent) -> None:
    """A parent that dies without a chance to clean up leaves nothing behind."""
    sleeping.answer()
    sleeping.process.kill()
    sleeping.process.wait()

    eventually_sync(lambda: gone(sleeping.pid))


@pytest.mark.parametrize(
    ("word", "code", "words"), [("fail", 7, "fail"), ("crash", 1, "ValueError: no luck")]
)
def test_copy_that_fails_says_so(tmp_path: Path, word: str, code: int, words: str) -> None:
    """The exit code is the program's, a traceback goes to its log."""
    parent = Parent(tmp_path, word)

    assert parent.rest() == f"ended with {code}\n"
    assert words in parent.log()


def test_only_modules_can_be_copies() -> None:
    """A program of another make is executed."""
    assert forks.is_possible((sys.executable, "-m", "celery"))
    assert not forks.is_possible((sys.executable, "-c", "pass"))
    assert not forks.is_possible(("/usr/bin/valkey-server", "-m", "x"))
