"""CPU and memory of an idle demo console: every process of it, without its fleet, while no page is open.

A process is named by its log. Memory is PSS: a page that several processes share counts in parts, so that the sum is
what the console takes from the machine.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil

from tests.bench import _demo
from tests.bench.measure import BenchError, Figure, Outcome, Target, sleep_for

#: The least time that is measured, seconds, and how often in a run.
_SECONDS, _TIMES = 60.0, 1
#: Before that: the page is open while the bench waits for the fleet, and starting has costs that come once.
_SETTLE = 20.0
_AGENTS = 200


@dataclass(frozen=True, slots=True)
class Share:
    """What one process of the console takes."""

    core_percent: float
    pss_mb: float


def run(*, quick: bool, base: Path | None = None) -> Outcome:
    """Measure this console; with `base`, a checkout of another commit, that one too, in turns."""
    seconds, settle, times = (2.0, 0.0, 1) if quick else (_SECONDS, _SETTLE, 3 if base else _TIMES)
    fleet = (_demo.QUICK_AGENTS, _demo.QUICK_FLAGS) if quick else (_AGENTS, ("--no-forwarder",))
    runs: list[Mapping[str, Share]] = []
    base_runs: list[Mapping[str, Share]] = []
    for _ in range(times):
        if base is not None:
            base_runs.append(_measure(base, *fleet, seconds, settle))
        runs.append(_measure(_demo.ROOT, *fleet, seconds, settle))
    limits = (Target("core_percent", at_most=8), Target("pss_mb", at_most=450))
    return Outcome(_figures(runs), () if quick else limits, _figures(base_runs, "base_") if base_runs else {})


def _figures(runs: Sequence[Mapping[str, Share]], prefix: str = "") -> dict[str, Figure]:
    """Medians of the runs: the whole console first, then each process."""

    def middle(values: Sequence[float]) -> float:
        return round(statistics.median(values), 2)

    figures: dict[str, Figure] = {
        f"{prefix}core_percent": middle([sum(share.core_percent for share in run.values()) for run in runs]),
        f"{prefix}pss_mb": middle([sum(share.pss_mb for share in run.values()) for run in runs]),
        f"{prefix}processes": len(runs[-1]),
    }
    for name in sorted(set.intersection(*(set(run) for run in runs))):
        key = f"{prefix}{name.replace('-', '_')}"
        figures[f"{key}_core_percent"] = middle([run[name].core_percent for run in runs])
        figures[f"{key}_pss_mb"] = middle([run[name].pss_mb for run in runs])
    return figures


def _measure(
    root: Path, agents: int, flags: Sequence[str], seconds: float, settle: float
) -> Mapping[str, Share]:
    """Start the demo of a checkout, let it become idle, and watch it. Raises BenchError."""
    with _demo.start_demo(root, *flags) as (process, demo):
        asyncio.run(_await_healthy(demo, agents))
        sleep_for(settle)
        members = console_of(psutil.Process(process.pid), demo.home)
        before = {name: _cpu(member) for name, member in members.items()}
        took = sleep_for(seconds)
        try:
            shares = {
                name: Share((_cpu(member) - before[name]) / took * 100, _pss(member) / 1e6)
                for name, member in members.items()
            }
        except psutil.NoSuchProcess as error:
            raise BenchError(f"a process of the console ended while it was measured: {error}") from error
    total = Share(
        sum(member.core_percent for member in shares.values()),
        sum(member.pss_mb for member in shares.values()),
    )
    for name, member in (*shares.items(), (f"all of {root.name}", total)):
        print(f"{name:<16} {member.core_percent:6.2f} % of a core {member.pss_mb:7.1f} MB", file=sys.stderr)
    return shares


async def _await_healthy(demo: _demo.Demo, agents: int) -> None:
    async with aiohttp.ClientSession() as session:
        await _demo.DemoClient(demo, session).await_healthy(agents=agents)


def console_of(process: psutil.Process, home: Path) -> dict[str, psutil.Process]:
    """Return the processes of a console by name: the command and its descendants, without those of the fleet."""
    members = {"console": process}
    below = list(process.children())
    while below:
        descendant = below.pop()
        name = _log_name(descendant, home)
        if name == "fleet":
            continue
        members[name if name not in members else f"{name}-{descendant.pid}"] = descendant
        below += descendant.children()
    return members


def _log_name(process: psutil.Process, home: Path) -> str:
    """Return the name of the log that a process writes to; without one, its own."""
    log = Path(f"/proc/{process.pid}/fd/1").readlink()
    return log.stem if log.suffix == ".log" and log.is_relative_to(home.resolve()) else process.name()


def _cpu(process: psutil.Process) -> float:
    """Return seconds of CPU so far, with those of children that ended."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def _pss(process: psutil.Process) -> int:
    """Return the bytes of memory of a process, with its part of what it shares."""
    for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text("utf-8").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise BenchError(f"the kernel does not say how much memory process {process.pid} takes")
