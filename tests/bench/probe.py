"""Probing 500 endpoints by gRPC health: checks for each CPU-second, beside Prometheus' blackbox exporter.

Ours is what the pollers run, in a process of its own. docs/reference/benchmarks.md says what the figures are.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fleet.processes.valkey import find_free_port
from tests.bench.measure import BenchError, Figure, Outcome, Target
from tests.fakes.programs import PeerError, run_program
from tests.meta.house import ROOT

_PROGRAM = "prometheus-blackbox-exporter"
_MODULES = """
modules:
  grpc:
    prober: grpc
    timeout: 10s
    grpc:
      preferred_ip_protocol: ip4
"""
_LIMITS = (Target("reused_to_blackbox", at_least=3.5), Target("new_to_blackbox", at_least=1.1))
#: (endpoints, runs, turns of each prober in a run, checks in a turn over kept connections, and over new ones)
_WHOLE = (500, 5, 4, 1_000, 350)
_QUICK = (20, 1, 2, 100, 50)


class _OrderProcess:
    """A process that executes orders."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.ready = self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "it is a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"an end of the bench ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def execute(self, kind: str, checks: int, addresses: Sequence[str], **more: str) -> dict[str, float]:
        """Send an order and return what it cost."""
        assert self._process.stdin is not None, "it is a pipe"
        order = {"kind": kind, "checks": checks, "addresses": list(addresses), **more}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._read()


@contextmanager
def _start_process(*args: str) -> Iterator[_OrderProcess]:
    argv = [sys.executable, "-m", "tests.bench._probe_ends", *args]
    process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield _OrderProcess(process)
    finally:
        process.kill()
        process.communicate()


def run(*, quick: bool) -> Outcome:
    """Let each prober take its turn in every run; figures are medians."""
    try:
        with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder, ExitStack() as stack:
            return _measure(Path(folder), stack, _QUICK if quick else _WHOLE)
    except PeerError as error:
        raise BenchError(str(error)) from error


def _measure(folder: Path, stack: ExitStack, size: tuple[int, int, int, int, int]) -> Outcome:
    endpoints, runs, turns, checks, fewer = size
    addresses = stack.enter_context(_start_process("endpoints", "--count", str(endpoints))).ready["addresses"]
    prober, exporter = stack.enter_context(_start_process("ours")), _Exporter(folder, stack)
    # Connections that are kept are made before anything is measured; so are the programs' own first times.
    prober.execute("reused", 2 * endpoints, addresses)
    prober.execute("new", endpoints, addresses)
    exporter.measure(endpoints, addresses)
    rates: dict[str, list[float]] = defaultdict(list)
    for number in range(runs):
        print(f"run {number + 1} of {runs}", file=sys.stderr, flush=True)
        turns_of: dict[str, list[_Turn]] = defaultdict(list)
        # Short turns: what else the machine does is then the same for all.
        for _ in range(turns):
            turns_of["reused"].append(_Turn(checks, **prober.execute("reused", checks, addresses)))
            turns_of["new"].append(_Turn(fewer, **prober.execute("new", fewer, addresses)))
            turns_of["blackbox"] += exporter.measure(fewer, addresses)
        for kind, several in turns_of.items():
            if several:
                check_count = sum(turn.checks for turn in several)
                rates[f"{kind}_per_cpu_s"].append(check_count / sum(turn.cpu for turn in several))
                rates[f"{kind}_per_s"].append(check_count / sum(turn.seconds for turn in several))
    return Outcome(*_figures(rates))


@dataclass(frozen=True, slots=True)
class _Turn:
    """What a turn of checks cost the prober."""

    checks: int
    cpu: float
    seconds: float


def _figures(
    rates: Mapping[str, Sequence[float]],
) -> tuple[dict[str, Figure], Sequence[Target], dict[str, Figure]]:
    medians = {name: statistics.median(values) for name, values in rates.items()}
    figures: dict[str, Figure] = {
        name: value for name, value in medians.items() if not name.startswith("blackbox_")
    }
    if "blackbox_per_cpu_s" not in medians:
        return figures, _LIMITS, {"blackbox_missing": f"there is no {_PROGRAM}: make peers"}
    for kind in ("reused", "new"):
        # Of each run by itself: a machine that is slow is slow for both.
        pairs = zip(rates[f"{kind}_per_cpu_s"], rates["blackbox_per_cpu_s"], strict=True)
        figures[f"{kind}_to_blackbox"] = statistics.median(
            [rate / blackbox_rate for rate, blackbox_rate in pairs]
        )
    return figures, _LIMITS, {name: value for name, value in medians.items() if name.startswith("blackbox_")}


class _Exporter:
    """The blackbox exporter, if installed, and the process that drives it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._program = shutil.which(_PROGRAM)
        if self._program is None:
            return
        (folder / "modules.yml").write_text(_MODULES)
        self._address = f"127.0.0.1:{find_free_port()}"
        flags = [f"--config.file={folder / 'modules.yml'}", f"--web.listen-address={self._address}"]
        self._peer = stack.enter_context(run_program(_PROGRAM, [self._program, *flags], folder))
        self._peer.await_output("Listening on|msg=.Listening")
        self._driver = stack.enter_context(_start_process("drive"))

    def measure(self, checks: int, addresses: Sequence[str]) -> list[_Turn]:
        """Run that many checks; return nothing when the exporter is not installed."""
        if self._program is None:
            return []
        process = psutil.Process(self._peer.pid)
        before = process.cpu_times()
        answer = self._driver.execute("blackbox", checks, addresses, exporter=self._address)
        after = process.cpu_times()
        cpu = after.user + after.system - before.user - before.system
        return [_Turn(checks, cpu, answer["seconds"])]
