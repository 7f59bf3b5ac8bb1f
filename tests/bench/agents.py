"""Memory and CPU of 200 agents in a local fleet of real processes, and of their auths and proxies.

One connection to a proxy each, announce TTLs as `refloat fleet up` has them: 10 s for instances, 20 s for agents.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.bench.measure import BenchError, Outcome, Target, sleep_for

_ROOT = Path(__file__).resolve().parents[2]
_CLI = [sys.executable, "-m", "fleet.cli"]
_AGENTS = 200
_READY_WITHIN = 120.0
#: Until startup costs are over: every agent has dialled, announced itself and read its config.
_SETTLE = 20.0


def run(*, quick: bool) -> Outcome:
    """Watch the processes of a plain fleet, then of one with mutual TLS."""
    plain = _measure(10.0 if quick else 60.0)
    tls = _measure(10.0 if quick else 30.0, "--tls")
    figures = {**plain, **{f"tls_{name}": value for name, value in tls.items()}}
    return Outcome(figures, [Target("agents_mb", at_most=100), Target("agents_core_percent", at_most=5)])


def _measure(seconds: float, *flags: str) -> dict[str, float | int]:
    with _fleet(*flags) as members:
        sleep_for(_SETTLE)
        before = {name: _cpu(process) for name, process in members.items()}
        took = sleep_for(seconds)
        shares = {name: (_cpu(process) - before[name]) / took * 100 for name, process in members.items()}
        megabytes = {name: process.memory_info().rss / 1e6 for name, process in members.items()}
    figures: dict[str, float | int] = {"agents": _AGENTS}
    for group in ("agents", "auth-1", "proxy-1"):
        (name,) = [name for name in members if name.startswith(group)]
        key = group.removesuffix("-1")
        figures[f"{key}_mb"] = round(megabytes[name], 1)
        figures[f"{key}_core_percent"] = round(shares[name], 2)
    print(f"{' '.join(flags) or 'plain'}: {figures}")
    return figures


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextlib.contextmanager
def _fleet(*flags: str) -> Iterator[dict[str, psutil.Process]]:
    """Start a fleet and yield its processes by name. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as home:
        env = dict(os.environ, REFLOAT_HOME=home)
        shape = ["--auths", "3", "--proxies", "4", "--agents", str(_AGENTS), "--connections", "1"]
        argv = [*_CLI, "fleet", "up", *shape, *flags]
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
