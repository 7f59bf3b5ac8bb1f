"""A Teleport cluster of 10,000 agents: CPU and bytes of a round with a watch, and of one that reads the lists.

Also the rounds until a watch that was lost is noticed, and until another worker replaces one that was killed.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.watch_leases import WatchLeases
from fleet.processes import valkey
from tests.bench._watch_worker import CLUSTER
from tests.bench.measure import BenchError, Figure, Outcome, Target
from tests.fakes import teleport
from tests.fakes.teleport import TeleportCluster, teleport_cluster

#: Heartbeats come twice per TTL.
_TTL_SECONDS = 600.0
_INTERVAL = 5.0
#: Seconds until a round must have been polled.
_TIMEOUT = 60.0
#: Seconds between two looks at a lease.
_TICK = 0.05
#: A watch that is noticed or replaced later than this is lost for good.
_MAX_ROUNDS = 10
_LIMITS = (
    Target("cpu_share", at_most=0.1),
    Target("bytes_share", at_most=0.1),
    Target("lost_rounds", at_most=2),
    Target("silence_rounds", at_most=2),
    Target("takeover_rounds", at_most=2),
    Target("lists_after_loss", at_most=1),
    Target("lists_after_takeover", at_most=1),
)


@dataclass(frozen=True, slots=True)
class _Size:
    agents: int
    #: Rounds that are measured: those with a watch include two inventories, which come once a minute.
    watch_rounds: int
    list_rounds: int


def run(*, quick: bool) -> Outcome:
    """Measure rounds with a watch, its loss, its takeover, and rounds with lists, one after the other."""
    if reason := teleport.missing_reason():
        raise BenchError(reason)
    size = _Size(500, 2, 2) if quick else _Size(10_000, 24, 6)
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        server = valkey.start(Path(folder) / "valkey", persist=False)
        (Path(folder) / "teleport").mkdir()
        try:
            with teleport_cluster(Path(folder) / "teleport") as cluster:
                cluster.change("settings", agent_ttl_seconds=_TTL_SECONDS)
                cluster.change("agents", kind="node", count=size.agents)
                figures, peers = _measure(cluster, server.url, size)
        finally:
            server.stop()
    return Outcome(figures, () if quick else _LIMITS, peers)


def _measure(cluster: TeleportCluster, url: str, size: _Size) -> tuple[dict[str, Figure], dict[str, Figure]]:
    with _run_worker(cluster, url, "watch") as holder:
        epoch = holder.await_watch("list")
        watch_cost = _measure_rounds(cluster, holder, size.watch_rounds)
        if holder.last_epoch != epoch:
            raise BenchError("the watch was lost while it was measured: the machine is too busy")
        lists = _count_lists(cluster)
        cluster.change("watches", drop="*")
        lost_rounds = holder.count_rounds_until_new_watch(epoch)
        holder.await_rounds(2)
        lists_after_loss = _count_lists(cluster) - lists
        silence_rounds = _measure_silence(cluster, WatchLeases(connect(url), "watch"), holder)
        with _run_worker(cluster, url, "watch") as successor:
            epoch, lists = holder.last_epoch, _count_lists(cluster)
            holder.process.kill()
            takeover_rounds = successor.count_rounds_until_new_watch(epoch)
            successor.await_rounds(2)
            lists_after_takeover = _count_lists(cluster) - lists
    with _run_worker(cluster, url, "list", "--list") as lister:
        lister.await_rounds(2)
        list_cost = _measure_rounds(cluster, lister, size.list_rounds)
    pages = -(-size.agents // 1000)
    other_kinds = 4
    figures: dict[str, Figure] = {
        "cpu_ms_per_round": watch_cost.cpu * 1000,
        "kb_per_round": watch_cost.bytes / 1000,
        "cpu_share": watch_cost.cpu / list_cost.cpu,
        "bytes_share": watch_cost.bytes / list_cost.bytes,
        "events_kb_per_round": watch_cost.event_bytes / 1000,
        "lost_rounds": lost_rounds,
        "silence_rounds": silence_rounds,
        "lists_after_loss": lists_after_loss / (pages + other_kinds),
        "takeover_rounds": takeover_rounds,
        "lists_after_takeover": lists_after_takeover / (pages + other_kinds),
    }
    peers: dict[str, Figure] = {
        "list_cpu_ms_per_round": list_cost.cpu * 1000,
        "list_kb_per_round": list_cost.bytes / 1000,
    }
    return figures, peers


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a round costs the worker: seconds of CPU, and bytes that the auths sent."""

    cpu: float
    bytes: float
    event_bytes: float


class _RunningWorker:
    """A worker process, and the rounds that it polled."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._reports: queue.Queue[dict[str, Any]] = queue.Queue()
        self.last_epoch = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None, "the process was started with a pipe"
        for line in self.process.stdout:
            self._reports.put(json.loads(line))

    def await_round(self) -> dict[str, Any]:
        """Return the report of the next round. Raises BenchError."""
        try:
            report = self._reports.get(timeout=_TIMEOUT)
        except queue.Empty:
            raise BenchError(f"a worker polled no round (exit code {self.process.poll()})") from None
        self.last_epoch = report["epoch"]
        return report

    def await_rounds(self, count: int) -> None:
        """Wait for the next rounds."""
        for _ in range(count):
            self.await_round()

    def await_watch(self, list_epoch: str) -> str:
        """Wait until changes of a watch were recorded; return its epoch. Raises BenchError."""
        for _ in range(_MAX_ROUNDS):
            report = self.await_round()
            if report["epoch"] not in {"", list_epoch} and report["revision"] > 0:
                return str(report["epoch"])
        raise BenchError("the worker did not open a watch")

    def count_rounds_until_new_watch(self, epoch: str) -> int:
        """Return how many rounds from now on it takes until another watch has recorded its list. Raises BenchError."""
        now = time.time()
        count = 0
        while count < _MAX_ROUNDS:
            report = self.await_round()
            count += report["at"] >= now
            if report["epoch"] not in {"", "list", epoch}:
                return count
        raise BenchError("no worker opened another watch")


@contextmanager
def _run_worker(cluster: TeleportCluster, url: str, prefix: str, *options: str) -> Iterator[_RunningWorker]:
    key, certificate, authority = map(str, cluster.tls_files)
    argv = [sys.executable, "-m", "tests.bench._watch_worker", "--url", url, "--prefix", prefix]
    argv += ["--address", cluster.auth_address(), "--interval", str(_INTERVAL), *options]
    argv += ["--key", key, "--certificate", certificate, "--authority", authority]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        yield _RunningWorker(process)
    finally:
        with process:
            process.kill()


def _measure_rounds(cluster: TeleportCluster, worker: _RunningWorker, rounds: int) -> _Cost:
    """Return the cost per round, from the end of one round to the end of a later one."""
    process = psutil.Process(worker.process.pid)
    worker.await_round()
    cpu, state = process.cpu_times(), cluster.state()["bytes"]
    worker.await_rounds(rounds)
    cpu_after, state_after = process.cpu_times(), cluster.state()["bytes"]
    seconds = cpu_after.user + cpu_after.system - cpu.user - cpu.system
    sent_bytes = {method: count - state.get(method, 0) for method, count in state_after.items()}
    event_bytes = sum(count for method, count in sent_bytes.items() if method.endswith("/WatchEvents"))
    return _Cost(seconds / rounds, sum(sent_bytes.values()) / rounds, event_bytes / rounds)


def _measure_silence(cluster: TeleportCluster, leases: WatchLeases, holder: _RunningWorker) -> float:
    """Freeze the auths; return after how many rounds the watch is given back. Raises BenchError."""
    lease = leases.read(CLUSTER, "", 0)
    if lease is None:
        raise BenchError("no worker holds a watch")
    started_at = time.monotonic()
    os.kill(cluster.peer.pid, signal.SIGSTOP)
    try:
        while (current := leases.read(CLUSTER, "", 0)) is not None and current.token == lease.token:
            if time.monotonic() - started_at > _MAX_ROUNDS * _INTERVAL:
                raise BenchError("the watch of frozen auths was not given back")
            time.sleep(_TICK)
        seconds = time.monotonic() - started_at
    finally:
        os.kill(cluster.peer.pid, signal.SIGCONT)
    holder.count_rounds_until_new_watch(lease.token)
    return seconds / _INTERVAL


def _count_lists(cluster: TeleportCluster) -> int:
    """Return how many pages of lists of agents were requested."""
    calls = cluster.state()["calls"]
    return sum(count for method, count in calls.items() if method.endswith("/ListResources"))
