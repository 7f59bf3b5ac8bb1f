"""Seconds from `make demo` to a page for a signed-in user: first in a fresh clone, and later."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fleet.processes.valkey import find_free_port
from tests.bench import _demo, _starts
from tests.bench.measure import BenchError, Outcome, Target, percentile

#: "Within 3 minutes of the first run and 15 s of later ones". Seconds.
_FIRST, _LATER = 180.0, 15.0
_LATER_TIMES = 3


def run(*, quick: bool) -> Outcome:
    """Start and stop the demo repeatedly; `quick` uses this checkout and measures no first start."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        home, clone = Path(folder) / "home", Path(folder) / "clone"
        if quick:
            argv = [sys.executable, "manage.py", "demo", f"--port={find_free_port()}"]
            return _outcome([], [_starts.time_demo(argv, _demo.ROOT, home) for _ in range(2)][1:])
        _clone(clone)
        argv = ["make", "demo", f"ARGS=--port={find_free_port()}"]
        times = [_starts.time_demo(argv, clone, home) for _ in range(1 + _LATER_TIMES)]
        return _outcome(times[:1], times[1:])


def _outcome(first: Sequence[float], later: Sequence[float]) -> Outcome:
    figures = {"later_s": percentile(later, 0.5), "later_slowest_s": max(later), "later_times": len(later)}
    targets = [Target("later_s", at_most=_LATER)]
    if first:
        figures["first_s"] = first[0]
        targets.append(Target("first_s", at_most=_FIRST))
    return Outcome(figures, targets)


def _clone(folder: Path) -> None:
    """Clone the repository as a new user would. Raises BenchError."""
    argv = ["git", "clone", "--quiet", "--depth", "1", f"file://{_demo.ROOT}", str(folder)]
    process = subprocess.run(argv, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise BenchError(f"the first start needs a clone of this folder: {process.stderr.strip()}")
