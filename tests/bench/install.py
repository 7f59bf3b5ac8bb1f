"""Seconds from `refloat demo` and `refloat serve` to their pages, from the wheel in an environment of its own.

The first start of each is with an empty home, and the first one of all compiles the installed modules.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from fleet.processes.valkey import find_free_port
from tests.bench import _demo, _starts
from tests.bench.measure import BenchError, Outcome, Target, percentile

_UV = [sys.executable, "-m", "uv"]
#: Seconds.
_DEMO, _SERVE = 10.0, 5.0
_TIMES = 3
_POLL = 0.02


def run(*, quick: bool) -> Outcome:
    """Install the wheel, then start and stop each command repeatedly, each time with an empty home."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as name:
        folder = Path(name)
        start = time.monotonic()
        refloat = _install(folder, compiles=not quick)
        figures: dict[str, float] = {"install_s": time.monotonic() - start}
        times = 1 if quick else _TIMES
        demo_argv = [str(refloat), "demo", f"--port={find_free_port()}"]
        starts = [_starts.time_demo(demo_argv, folder, folder / f"demo-{n}") for n in range(times)]
        serves = [_time_serve(refloat, folder, folder / f"serve-{n}") for n in range(times)]
    figures["demo_live_s"] = percentile([start.live for start in starts], 0.5)
    for command, seconds in (("demo", [start.page for start in starts]), ("serve", serves)):
        figures |= {
            f"{command}_s": percentile(seconds, 0.5),
            f"{command}_first_s": seconds[0],
            f"{command}_slowest_s": max(seconds),
        }
    return Outcome(figures, [Target("demo_s", at_most=_DEMO), Target("serve_s", at_most=_SERVE)])


def _install(folder: Path, *, compiles: bool) -> Path:
    """Build the wheel and install it; return the command. pip compiles all modules, which takes a minute of CPU.

    Raises BenchError.
    """
    environment = folder / "environment"
    _run([*_UV, "build", "--quiet", "--wheel", "--out-dir", str(folder / "dist"), str(_demo.ROOT)])
    (wheel,) = (folder / "dist").glob("*.whl")
    _run([*_UV, "venv", "--quiet", "--python", sys.executable, str(environment)])
    python = ["--python", str(environment / "bin/python")]
    constraints = ["--constraints", str(_demo.ROOT / "constraints.txt")]
    compilation = ["--compile-bytecode"] if compiles else []
    _run([*_UV, "pip", "install", "--quiet", *compilation, *python, *constraints, str(wheel)])
    return environment / "bin/refloat"


def _run(argv: Sequence[str]) -> None:
    process = subprocess.run(argv, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise BenchError(f"the wheel could not be installed: {process.stderr.strip()[-2000:]}")


def _time_serve(refloat: Path, folder: Path, home: Path) -> float:
    """Return the seconds until the page that creates the first administrator loads. Raises BenchError."""
    start = time.monotonic()
    with _starts.start_program([str(refloat), "serve", f"--port={find_free_port()}"], folder, home) as serve:
        while not _setup_page_loads(home):
            if serve.poll() is not None or time.monotonic() > start + _starts.TIMEOUT:
                raise BenchError(
                    f"refloat serve did not start:\n{_starts.output_of(home).read_text()[-2000:]}"
                )
            time.sleep(_POLL)
        took = time.monotonic() - start
    print(f"serve: {took:.1f} s", file=sys.stderr, flush=True)
    return took


def _setup_page_loads(home: Path) -> bool:
    link = re.search(r"http://\S+/setup/\S+/", _starts.output_of(home).read_text("utf-8", "replace"))
    if link is None:
        return False
    try:
        with urllib.request.urlopen(link[0], timeout=30) as page:
            return "Create the first administrator" in page.read().decode()
    except OSError:
        return False
