"""Memory and CPU of 200 agents in a local fleet of real processes, and of their auths and proxies.

One connection to a proxy each, announce TTLs as `refloat fleet up` has them: 10 s for instances, 20 s for agents.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.bench.measure import BenchError, Figure, Outcome, Target, sleep_for

_ROOT = Path(__file__).resolve().parents[2]
_CLI = [sys.executable, "-m", "fleet.cli"]
_READY_WITHIN = 120.0
_GROUPS = ("agents", "auth-1", "proxy-1")


@dataclass(frozen=True, slots=True)
class _Size:
    """How many agents, how often, and for how long each time, in seconds."""

    agents: int
    auths: int
    proxies: int
    turns: int
    #: Until startup costs are over: every agent has dialled, announced itself and read its config.
    settle: float
    seconds: float


_WHOLE = _Size(agents=200, auths=3, proxies=4, turns=5, settle=20.0, seconds=30.0)
_QUICK = _Size(agents=20, auths=1, proxies=1, turns=1, settle=1.0, seconds=2.0)
#: A figure is the median of the turns; `..._worst` is that of the worst turn.
_TARGETS = (
    Target("agents_mb", at_most=100),
    Target("agents_mb_worst", at_most=100),
    Target("agents_core_percent", at_most=5),
    Target("agents_core_percent_worst", at_most=6),
)


def run(*, quick: bool) -> Outcome:
    """Watch the processes of a plain fleet and of one with mutual TLS, in turns, each time a new fleet."""
    size = _QUICK if quick else _WHOLE
    plain_turns, tls_turns = [], []
    for _ in range(size.turns):
        plain_turns.append(_measure(size))
        tls_turns.append(_measure(size, "--tls"))
    figures: dict[str, Figure] = {"agents": size.agents, "turns": size.turns}
    for prefix, turns in (("", plain_turns), ("tls_", tls_turns)):
        for name in turns[0]:
            values = [turn[name] for turn in turns]
            figures[f"{prefix}{name}"] = round(statistics.median(values), 2)
            figures[f"{prefix}{name}_worst"] = round(max(values), 2)
    return Outcome(figures, () if quick else _TARGETS)


def _measure(size: _Size, *flags: str) -> dict[str, float]:
    with _fleet(size, *flags) as members:
        sleep_for(size.settle)
        before = {name: _cpu(process) for name, process in members.items()}
        took = sleep_for(size.seconds)
        shares = {name: (_cpu(process) - before[name]) / took * 100 for name, process in members.items()}
        megabytes = {name: process.memory_info().rss / 1e6 for name, process in members.items()}
    figures: dict[str, float] = {}
    for group in _GROUPS:
        (name,) = [name for name in members if name.startswith(group)]
        key = group.removesuffix("-1")
        figures[f"{key}_mb"] = megabytes[name]
        figures[f"{key}_core_percent"] = shares[name]
    rounded = {name: round(value, 2) for name, value in figures.items()}
    print(f"{' '.join(flags) or 'plain'}: {rounded}", file=sys.stderr, flush=True)
    return figures


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextlib.contextmanager
def _fleet(size: _Size, *flags: str) -> Iterator[dict[str, psutil.Process]]:
    """Start a fleet and yield its processes by name. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as home:
        env = dict(os.environ, REFLOAT_HOME=home)
        shape = ["--auths", str(size.auths), "--proxies", str(size.proxies), "--agents", str(size.agents)]
        argv = [*_CLI, "fleet", "up", *shape, "--connections", "1", *flags]
        up = subprocess.Popen(argv, cwd=_ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            yield _members(up, env)
        finally:
            up.send_signal(signal.SIGTERM)
            up.communicate()


def _members(up: subprocess.Popen[bytes], env: dict[str, str]) -> dict[str, psutil.Process]:
    deadline = time.monotonic() + _READY_WITHIN
    while time.monotonic() < deadline and up.poll() is None:
        ps = subprocess.run(
            [*_CLI, "fleet", "ps", "--json"], cwd=_ROOT, env=env, capture_output=True, check=False
        )
        rows = json.loads(ps.stdout) if ps.returncode == 0 else []
        processes = {row["name"]: psutil.Process(row["pid"]) for row in rows if row["pid"]}
        if any(name.startswith("agents") for name in processes):
            return processes
        time.sleep(0.5)
    raise BenchError("the fleet did not come up: `refloat fleet up` says why")
