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

from fleet.processes.valkey import free_port
from tests.bench.measure import BenchError, Figure, Outcome, Target
from tests.fakes.programs import PeerError, running
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


class _End:
    """A process that does orders."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.first = self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "it is a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"an end of the bench ended with {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def do(self, kind: str, checks: int, addresses: Sequence[str], **more: str) -> dict[str, float]:
        """Give an order and wait for what it took."""
        assert self._process.stdin is not None, "it is a pipe"
        order = {"kind": kind, "checks": checks, "addresses": list(addresses), **more}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._read()


@contextmanager
def _end(*words: str) -> Iterator[_End]:
    argv = [sys.executable, "-m", "tests.bench._probe_ends", *words]
    process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield _End(process)
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
    addresses = stack.enter_context(_end("endpoints", "--count", str(endpoints))).first["addresses"]
    ours, exporter = stack.enter_context(_end("ours")), _Exporter(folder, stack)
    # Connections that are kept are made before anything is measured; so are the programs' own first times.
    ours.do("reused", 2 * endpoints, addresses)
    ours.do("new", endpoints, addresses)
    exporter.take(endpoints, addresses)
    seen: dict[str, list[float]] = defaultdict(list)
    for number in range(runs):
        print(f"run {number + 1} of {runs}", file=sys.stderr, flush=True)
        taken: dict[str, list[_Taken]] = defaultdict(list)
        # Short turns: what else the machine does is then the same for all.
        for _ in range(turns):
            taken["reused"].append(_Taken(checks, **ours.do("reused", checks, addresses)))
            taken["new"].append(_Taken(fewer, **ours.do("new", fewer, addresses)))
            taken["blackbox"] += exporter.take(fewer, addresses)
        for kind, several in taken.items():
            if several:
                done = sum(one.checks for one in several)
                seen[f"{kind}_per_cpu_s"].append(done / sum(one.cpu for one in several))
                seen[f"{kind}_per_s"].append(done / sum(one.seconds for one in several))
    return Outcome(*_figures(seen))


@dataclass(frozen=True, slots=True)
class _Taken:
    """What so many checks took of the prober."""

    checks: int
    cpu: float
    seconds: float


def _figures(
    seen: Mapping[str, Sequence[float]],
) -> tuple[dict[str, Figure], Sequence[Target], dict[str, Figure]]:
    medians = {name: statistics.median(values) for name, values in seen.items()}
    figures: dict[str, Figure] = {
        name: value for name, value in medians.items() if not name.startswith("blackbox_")
    }
    if "blackbox_per_cpu_s" not in medians:
        return figures, _LIMITS, {"blackbox_missing": f"there is no {_PROGRAM}: make peers"}
    for kind in ("reused", "new"):
        # Of each run by itself: a machine that is slow is slow for both.
        pairs = zip(seen[f"{kind}_per_cpu_s"], seen["blackbox_per_cpu_s"], strict=True)
        figures[f"{kind}_to_blackbox"] = statistics.median([mine / other for mine, other in pairs])
    return figures, _LIMITS, {name: value for name, value in medians.items() if name.startswith("blackbox_")}


class _Exporter:
    """The blackbox exporter, if there is one, and who asks it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._there = shutil.which(_PROGRAM)
        if self._there is None:
            return
        (folder / "modules.yml").write_text(_MODULES)
        self._address = f"127.0.0.1:{free_port()}"
        flags = [f"--config.file={folder / 'modules.yml'}", f"--web.listen-address={self._address}"]
        self._peer = stack.enter_context(running(_PROGRAM, [self._there, *flags], folder))
        self._peer.await_words("Listening on|msg=.Listening")
        self._driver = stack.enter_context(_end("drive"))

    def take(self, checks: int, addresses: Sequence[str]) -> list[_Taken]:
        """Have it make so many checks; nothing when it is not there."""
        if self._there is None:
            return []
        process = psutil.Process(self._peer.pid)
        before = process.cpu_times()
        taken = self._driver.do("blackbox", checks, addresses, exporter=self._address)
        after = process.cpu_times()
        cpu = after.user + after.system - before.user - before.system
        return [_Taken(checks, cpu, taken["seconds"])]
