"""Seconds from `make demo` to the live states of all agents on a user's page: first in a fresh clone, and later.

The page itself comes earlier: it says then that no poll has concluded yet.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fleet.processes.valkey import find_free_port
from tests.bench import _demo, _starts
from tests.bench.measure import BenchError, Figure, Outcome, Target

#: "Within 3 minutes of the first run and 15 s of later ones". Seconds.
_FIRST, _LATER = 180.0, 15.0
#: Fresh clones, each of which is started twice.
_CLONES = 3


def run(*, quick: bool) -> Outcome:
    """Start and stop the demo repeatedly; `quick` starts this checkout once, with few agents."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        if quick:
            argv = [sys.executable, "manage.py", "demo", f"--port={find_free_port()}"]
            argv += _demo.QUICK_FLAGS
            start = _starts.time_demo(argv, _demo.ROOT, Path(folder) / "home", agents=_demo.QUICK_AGENTS)
            return Outcome(_figures("later", [start]))
        first, later = [], []
        for number in range(_CLONES):
            clone, home = Path(folder) / f"clone-{number}", Path(folder) / f"home-{number}"
            _clone(clone)
            argv = ["make", "demo", f"ARGS=--port={find_free_port()}"]
            first.append(_starts.time_demo(argv, clone, home))
            later.append(_starts.time_demo(argv, clone, home))
        targets = (Target("first_s", at_most=_FIRST), Target("later_s", at_most=_LATER))
        return Outcome({**_figures("first", first), **_figures("later", later)}, targets)


def _figures(name: str, starts: Sequence[_starts.DemoStart]) -> dict[str, Figure]:
    """Return the medians of several starts, and the slowest one."""
    return {
        f"{name}_times": len(starts),
        f"{name}_page_s": statistics.median(start.page for start in starts),
        f"{name}_s": statistics.median(start.live for start in starts),
        f"{name}_slowest_s": max(start.live for start in starts),
    }


def _clone(folder: Path) -> None:
    """Clone the repository as a new user would. Raises BenchError."""
    argv = ["git", "clone", "--quiet", "--depth", "1", f"file://{_demo.ROOT}", str(folder)]
    process = subprocess.run(argv, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise BenchError(f"the first start needs a clone of this folder: {process.stderr.strip()}")
