"""Runs the nearest tests of mutants in a copy of the tree, so that the tree itself is never changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

from tests.mutation.areas import ROOT

#: Seconds that tests may need for a mutant: a multiple of their time without it, and the start of Python.
_TIMEOUT_FACTOR, _TIMEOUT_EXTRA_SECONDS = 4.0, 30.0
_NOTHING_COLLECTED = 5


class Outcome(StrEnum):
    """What the nearest tests did."""

    KILLED = "killed"
    #: They did not end in time, as in an endless loop.
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    #: No fast test imports the module.
    UNTESTED = "untested"
    #: The tests fail without the mutant too.
    BROKEN = "broken"


class BrokenBaselineError(Exception):
    """The tests fail without any mutant."""


class Baselines:
    """Seconds that selections of tests take without a mutant; threads share them."""

    def __init__(self) -> None:
        self._locks: dict[Sequence[str], threading.Lock] = {}
        #: None: the files have no test that runs.
        self._seconds: dict[Sequence[str], float | None] = {}

    def read(self, tests: Sequence[str], measure: Callable[[], float | None]) -> float | None:
        """Return the seconds of a selection, measured by the first thread that needs them."""
        with self._locks.setdefault(tests, threading.Lock()):
            if tests not in self._seconds:
                self._seconds[tests] = measure()
            return self._seconds[tests]


class Trial:
    """A copy of the tree in a folder."""

    def __init__(self, folder: Path, baselines: Baselines) -> None:
        self._folder = folder
        self._baselines = baselines
        names = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    def judge(self, module: str, source: str, tests: Sequence[str]) -> Outcome:
        """Return what tests do when a module has another source: the first file, then the others if need be.

        Raises BrokenBaselineError.
        """
        outcomes = {Outcome.UNTESTED}
        for selection in (tuple(tests[:1]), tuple(tests[1:])):
            if selection:
                outcome = self._judge_by(module, source, selection)
                if outcome in (Outcome.KILLED, Outcome.TIMED_OUT):
                    return outcome
                outcomes.add(outcome)
        return Outcome.SURVIVED if Outcome.SURVIVED in outcomes else Outcome.UNTESTED

    def _judge_by(self, module: str, source: str, tests: Sequence[str]) -> Outcome:
        seconds = self._baselines.read(tests, lambda: self._measure(tests))
        if seconds is None:
            return Outcome.UNTESTED
        path = self._folder / module
        original = path.read_text()
        path.write_text(source)
        try:
            code, _ = self._run(tests, timeout=_TIMEOUT_FACTOR * seconds + _TIMEOUT_EXTRA_SECONDS)
        except subprocess.TimeoutExpired:
            return Outcome.TIMED_OUT
        finally:
            path.write_text(original)
        return Outcome.KILLED if code else Outcome.SURVIVED

    def _measure(self, tests: Sequence[str]) -> float | None:
        started_at = time.monotonic()
        code, output = self._run(tests, timeout=None)
        if code == _NOTHING_COLLECTED:
            return None
        if code:
            raise BrokenBaselineError(f"{' '.join(tests)} fail without a mutant:\n{output[-2000:]}")
        return time.monotonic() - started_at

    def _run(self, tests: Sequence[str], timeout: float | None) -> tuple[int, str]:
        """Run tests until the first failure. Raises subprocess.TimeoutExpired."""
        command = [
            *(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--numprocesses", "0"),
            *("-m", "not slow and not browser", *tests),
        ]
        # Compiled modules are recognized by the second: a mutant must not run with the bytecode of another.
        environment = {**os.environ, "PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1"}
        with subprocess.Popen(
            command, cwd=self._folder, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                raise
            return process.returncode, output
