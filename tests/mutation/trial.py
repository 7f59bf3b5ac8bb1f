"""Runs the nearest tests of mutants in a copy of the tree, so that the tree itself is never changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
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


class BrokenBaselineError(Exception):
    """The tests fail without any mutant."""


class Trial:
    """A copy of the tree in a folder, and the time that each selection of tests takes there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seconds_by_tests: dict[Sequence[str], float] = {}
        names = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    def judge(self, module: str, source: str, tests: Sequence[str]) -> Outcome:
        """Return what tests do when a module has another source. Raises BrokenBaselineError."""
        if not tests:
            return Outcome.UNTESTED
        key = tuple(tests)
        if key not in self._seconds_by_tests:
            started_at = time.monotonic()
            code, output = self._run(tests, timeout=None)
            if code == _NOTHING_COLLECTED:
                return Outcome.UNTESTED
            if code:
                raise BrokenBaselineError(f"{' '.join(tests)} fail without a mutant:\n{output[-2000:]}")
            self._seconds_by_tests[key] = time.monotonic() - started_at
        path = self._folder / module
        original = path.read_text()
        path.write_text(source)
        try:
            code, _ = self._run(
                tests, timeout=_TIMEOUT_FACTOR * self._seconds_by_tests[key] + _TIMEOUT_EXTRA_SECONDS
            )
        except subprocess.TimeoutExpired:
            return Outcome.TIMED_OUT
        finally:
            path.write_text(original)
        return Outcome.KILLED if code else Outcome.SURVIVED

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
