"""Real pollers over a simulated fleet of 100,000 agents on 200 proxies: how soon all are known, what a round costs.

One worker and one conclusion at a time in this process, as a Celery worker does it; the fleet is in processes apart.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.cli.local.simulate import simulate
from fleet.monitoring.evidence import Timing
from fleet.monitoring.pollers.conclude import conclude
from fleet.monitoring.pollers.plan import plan_shards
from fleet.monitoring.pollers.worker import PollingSettings, Worker
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.writer import RecordSeed, Writer
from fleet.processes import children, garbage, valkey
from fleet.vocabulary.verdicts import State
from tests.bench.measure import BenchError, Figure, Outcome, Target

_CLUSTER = "default"
_INTERVAL = 5.0
_TIMING = Timing(round_interval=_INTERVAL)
_DEADLINE = 2.0
#: The size of a shard, as the console's settings have it.
_SHARD = 250
#: Rounds until all agents must be known: a full list is read over several.
_MAX_ROUNDS = 60
_TARGETS = (
    Target("first_sync_s", at_most=30),
    # What a worker with this fleet leaves to others of its core.
    Target("worker_core_percent", at_most=20),
    Target("round_poll_ms", at_most=1000),
    # A frozen instance is silent after two failed polls, and holds up a round no longer than its deadline.
    Target("rounds_to_see_a_frozen_proxy", at_most=2),
    Target("round_with_a_frozen_proxy_ms", at_most=1000 * _DEADLINE + 500),
)


def run(*, quick: bool) -> Outcome:
    """Start the fleet and the record, poll until all agents are known, then measure rounds."""
    garbage.collect_less()  # as the worker does
    agents, proxies = (2_000, 10) if quick else (100_000, 200)
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        server = valkey.start(Path(folder) / "valkey", persist=False)
        fleet = _start_fleet(Path(folder), agents, proxies)
        try:
            bench = _Bench(server.url, fleet.auths)
            figures = bench.measure(agents, rounds=1 if quick else 12, inject_fault=fleet.inject_fault)
            bench.close()
        finally:
            children.stop([fleet.process], grace=20.0)
            server.stop()
    return Outcome({"agents": agents, "proxies": proxies, **figures}, () if quick else _TARGETS)


@dataclass(frozen=True, slots=True)
class _SimulatedFleet:
    process: subprocess.Popen[bytes]
    auths: tuple[str, ...]
    home: Path

    def inject_fault(self, *args: str) -> None:
        """Inject a fault into the simulated fleet."""
        simulate.main(["fault", "--home", str(self.home), *args], standalone_mode=False)


def _start_fleet(home: Path, agents: int, proxies: int) -> _SimulatedFleet:
    argv = [sys.executable, "-m", "fleet.cli.main", "fleet", "simulate", "--home", str(home), "--json"]
    argv += ["--agents", str(agents), "--proxies", str(proxies), "--seed", "1"]
    process = children.spawn(argv, log=subprocess.PIPE, env=dict(os.environ))
    assert process.stdout is not None, "asked for a pipe"
    ready_line = process.stdout.readline()
    try:
        return _SimulatedFleet(process, tuple(json.loads(ready_line)["auths"]), home)
    except ValueError as error:
        children.stop([process])
        raise BenchError(
            f"the simulated fleet did not start: {ready_line.decode(errors='replace')}"
        ) from error


@dataclass(frozen=True, slots=True)
class _Round:
    """What one round cost: seconds, and seconds of CPU of this process."""

    poll: float
    conclude: float
    cpu: float
    counts: Sequence[int]


class _Bench:
    """The part of a console that polls and concludes."""

    def __init__(self, redis_url: str, auths: Sequence[str]) -> None:
        self._writer = Writer(connect(redis_url), "bench")
        self._writer.create(_CLUSTER, RecordSeed())
        self._worker = Worker(self._writer, PollingSettings(_TIMING, _DEADLINE))
        self._auths = auths
        self._number = 0

    def close(self) -> None:
        """Close its connections."""
        self._worker.close()

    def _run_round(self) -> _Round:
        self._number += 1
        start, cpu = time.perf_counter(), time.process_time()
        for shard in plan_shards(self._writer.load_instances(_CLUSTER), _SHARD, time.time()):
            place = self._worker.open_record(_CLUSTER, self._writer.epoch(_CLUSTER))
            bootstrap = self._auths if shard.reads_lists else None
            self._worker.poll_shard(place, self._number, shard.instances, bootstrap)
        polled = time.perf_counter()
        outcome = conclude(
            self._writer, _CLUSTER, self._number, now=time.time(), timing=_TIMING, clock=time.perf_counter
        )
        assert outcome is not None, "nobody else concludes"
        end = time.perf_counter()
        return _Round(polled - start, end - polled, time.process_time() - cpu, outcome.header.counts)

    def measure(self, agents: int, rounds: int, inject_fault: Callable[..., None]) -> dict[str, Figure]:
        """Measure the first sync, then rounds at their interval, then a frozen proxy."""
        start, cpu = time.perf_counter(), time.process_time()
        last_round = self._until(lambda last_round: last_round.counts[State.HEALTHY] == agents, pause=0.0)
        figures: dict[str, Figure] = {
            "first_sync_s": time.perf_counter() - start,
            "first_sync_rounds": self._number,
            "first_sync_cpu_s": time.process_time() - cpu,
        }
        steady = []
        start = time.perf_counter()
        for number in range(rounds):
            time.sleep(max(0.0, start + number * _INTERVAL - time.perf_counter()))
            steady.append(self._run_round())
        figures |= {
            "round_poll_ms": 1000 * statistics.median(last_round.poll for last_round in steady),
            "round_conclude_ms": 1000 * statistics.median(last_round.conclude for last_round in steady),
            "round_cpu_ms": 1000 * statistics.median(last_round.cpu for last_round in steady),
            "worker_core_percent": 100
            * statistics.median(last_round.cpu for last_round in steady)
            / _INTERVAL,
        }
        before = self._number
        inject_fault("freeze", "proxy-1")
        last_round = self._until(lambda last_round: last_round.counts[State.HEALTHY] < agents, pause=0.5)
        figures |= {
            "rounds_to_see_a_frozen_proxy": self._number - before,
            "not_healthy_then": agents - last_round.counts[State.HEALTHY],
            "round_with_a_frozen_proxy_ms": 1000 * (last_round.poll + last_round.conclude),
        }
        return figures

    def _until(self, condition: Callable[[_Round], bool], pause: float) -> _Round:
        """Run rounds until `condition` holds. Raises BenchError when it never does."""
        for _ in range(_MAX_ROUNDS):
            last_round = self._run_round()
            if condition(last_round):
                return last_round
            time.sleep(pause)
        counts = {state.slug: last_round.counts[state] for state in State if last_round.counts[state]}
        raise BenchError(f"not there after {_MAX_ROUNDS} rounds: {counts}")
