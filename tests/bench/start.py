"""Seconds from `make demo` to a page for a signed-in user: first in a fresh clone, and later."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import aiohttp

from fleet.processes import children
from fleet.processes.valkey import find_free_port
from tests.bench import _demo
from tests.bench.measure import BenchError, Outcome, Target, percentile

#: "Within 3 minutes of the first run and 15 s of later ones". Seconds.
_FIRST, _LATER = 180.0, 15.0
_TIMEOUT = 600.0
_LATER_TIMES = 3
_POLL = 0.05


def run(*, quick: bool) -> Outcome:
    """Start and stop the demo repeatedly; `quick` uses this checkout and measures no first start."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        home, clone = Path(folder) / "home", Path(folder) / "clone"
        if quick:
            argv = [sys.executable, "manage.py", "demo", f"--port={find_free_port()}"]
            return _outcome([], [_time_start(argv, _demo.ROOT, home) for _ in range(2)][1:])
        _clone(clone)
        argv = ["make", "demo", f"ARGS=--port={find_free_port()}"]
        times = [_time_start(argv, clone, home) for _ in range(1 + _LATER_TIMES)]
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


def _time_start(argv: Sequence[str], checkout: Path, home: Path) -> float:
    """Return the seconds until a signed-in user gets the page. Raises BenchError."""
    start = time.monotonic()
    with _start_demo(argv, checkout, home) as demo:
        asyncio.run(_await_sign_in(demo, home, start + _TIMEOUT))
        took = time.monotonic() - start
    print(f"{took:.1f} s", file=sys.stderr, flush=True)
    return took


@contextlib.contextmanager
def _start_demo(argv: Sequence[str], checkout: Path, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    # Variables of an outer `make bench` must not reach the clone's make.
    make_variables = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "VENV"}
    env = {name: value for name, value in os.environ.items() if name not in make_variables}
    home.mkdir(parents=True, exist_ok=True)
    (home / "demo.json").unlink(missing_ok=True)
    with (home / "bench.log").open("wb") as log:
        demo = children.spawn(argv, env=dict(env, REFLOAT_HOME=str(home)), log=log, cwd=str(checkout))
    try:
        yield demo
    finally:
        children.stop([demo], grace=30.0)


async def _await_sign_in(demo: subprocess.Popen[bytes], home: Path, deadline: float) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        while True:
            if demo.poll() is not None or time.monotonic() > deadline:
                raise BenchError(
                    f"the demo did not start:\n{(home / 'bench.log').read_text('utf-8', 'replace')[-2000:]}"
                )
            with contextlib.suppress(BenchError, aiohttp.ClientError):
                demo_access = _demo.read(home)
                await _demo.DemoClient(demo_access, session).sign_in()
                async with session.get(f"{demo_access.url}/", allow_redirects=False) as page:
                    if page.status == 200:
                        return
            await asyncio.sleep(_POLL)
