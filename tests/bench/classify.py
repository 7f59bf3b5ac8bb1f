"""A round over 10,000, 50,000 and 100,000 agents in ms, its headline in a web process, and Valkey bytes per agent.

The record, the round, the channel layer and the database are the real ones, in a Valkey and an SQLite of our own.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import numpy as np

from fleet.monitoring.classify import classify_columns, prepare_frame
from fleet.monitoring.events import StateDelta
from fleet.monitoring.evidence import Timing
from fleet.monitoring.pollers.conclude import conclude
from fleet.monitoring.publish import ChannelLayer, publish
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.record import load_record
from fleet.monitoring.state.roster import Rosters
from fleet.monitoring.state.writer import Writer
from fleet.processes import garbage, valkey
from tests.bench import _naive
from tests.bench._record import CLUSTER, fill
from tests.bench.measure import BenchError, Figure, Outcome, Target, median_ms

_SIZES = (10_000, 50_000, 100_000)
_TIMING = Timing(round_interval=5.0)
#: The size for the comparison: classifying 10,000 agents one by one already takes seconds.
_PEER_SIZE = 10_000
_STEPS = ("read", "classify", "record", "publish")
_LIMITS = (
    Target("round_100000_1pct_ms", at_most=50),
    *(
        Target(f"headline_100000_{scenario}_cpu_ms", at_most=50)
        for scenario in ("0pct", "1pct", "30pct_stranded")
    ),
    Target("live_bytes_per_agent_100000", at_most=64),
    Target("bytes_per_agent_100000", at_most=200),
)


def run(*, quick: bool) -> Outcome:
    """Measure every size; `--quick` measures the smallest alone, with fewer rounds."""
    figures: dict[str, Figure] = {}
    peers: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        server = valkey.start(Path(folder) / "valkey", persist=False)
        try:
            _set_up_django(Path(folder), server.url)
            garbage.collect_less()  # as the worker does
            for agents in _SIZES[:1] if quick else _SIZES:
                bench = _Bench(server.url, agents, rounds=5 if quick else 15)
                figures |= asyncio.run(bench.measure())
                if agents == _PEER_SIZE:
                    peers |= bench.compare()
        finally:
            server.stop()
    return Outcome(figures, () if quick else _LIMITS, peers)


def _set_up_django(home: Path, redis_url: str) -> None:
    """Create a database, and use the console's channel layer."""
    os.environ |= {
        "REFLOAT_HOME": str(home),
        "REDIS_URL": redis_url,
        "DATABASE_URL": "",
        "DJANGO_SETTINGS_MODULE": "dashboards.config.settings",
    }
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def _empty_database() -> None:
    """Empty the database, so that rows are inserted, not updated."""
    from django.core.management import call_command

    from fleet.models.clusters import ensure_default_cluster

    call_command("flush", interactive=False, verbosity=0)
    ensure_default_cluster()


class _Bench:
    """One size."""

    def __init__(self, redis_url: str, agents: int, rounds: int) -> None:
        self._redis = connect(redis_url)
        self._agents = agents
        self._rounds = rounds
        self._round = 0
        #: CPU of this process in each round: it depends less on other processes than the duration.
        self._round_cpu_ms: list[float] = []
        #: The 1 % have expired.
        self._agents_expired = False
        self._writer = Writer(self._redis, "bench")
        self._reader = Reader(self._redis, "bench")
        self._redis.flushall(asynchronous=False)
        _empty_database()
        self._empty = self._used_memory()
        self._filled = fill(self._writer, agents, time.time())
        # One agent in a hundred, anywhere: the worst for writing rows in place.
        draws = np.random.default_rng(7)
        self._changing_agents = np.sort(draws.choice(agents, agents // 100, replace=False)).astype(np.uint32)

    def _used_memory(self) -> int:
        return int(cast("dict[str, Any]", self._redis.info("memory"))["used_memory"])

    async def measure(self) -> dict[str, Figure]:
        """Rounds with nothing changed and with 1 % changed, the database's part, and the bytes."""
        from channels.layers import get_channel_layer

        layer = get_channel_layer()
        assert layer is not None, "settings have one"
        # The evidence of a fleet that took long to fill, on a busy machine, is too old.
        self._filled.refresh(time.time())
        first = await self._run_round(layer, expected_changes=self._agents)
        settle_ms = await asyncio.to_thread(self._flush_database)
        figures = self._bytes()
        # The first one of a process reads names and labels.
        await asyncio.to_thread(self._describe_fleet)
        steps = await self._measure_rounds(layer, "0pct", is_changed=False)
        steps |= await self._measure_rounds(layer, "1pct", is_changed=True)
        batch = await asyncio.to_thread(self._flush_database)
        await self._strand_agents(layer)
        stranded_steps = await self._measure_rounds(layer, "30pct_stranded", is_changed=False)
        return {
            **steps,
            **{name: ms for name, ms in stranded_steps.items() if name.startswith("headline")},
            f"round_{self._agents}_first_ms": sum(first.values()),
            f"database_{self._agents}_1pct_ms": batch / self._rounds,
            f"database_{self._agents}_first_ms": settle_ms,
            **figures,
        }

    async def _measure_rounds(
        self, layer: ChannelLayer, scenario: str, *, is_changed: bool
    ) -> dict[str, Figure]:
        """Return medians of rounds and of their headlines."""
        rounds, headlines = [], []
        for _ in range(self._rounds):
            rounds.append(await self._run_changed_round(layer, is_changed=is_changed))
            headlines.append(await asyncio.to_thread(self._describe_fleet))
        return {
            **self._medians(scenario, rounds),
            f"round_{self._agents}_{scenario}_cpu_ms": statistics.median(self._round_cpu_ms[-self._rounds :]),
            f"headline_{self._agents}_{scenario}_cpu_ms": statistics.median(headlines),
        }

    def _describe_fleet(self) -> float:
        """Return the CPU milliseconds of a web process that reads the newest round and makes its headline."""
        from dashboards.live.hub import create_headline_message
        from dashboards.shared import headlines

        start = time.process_time()
        now = time.time()
        incidents = headlines.read_open_incidents(CLUSTER)
        table = self._reader.table(CLUSTER, now)
        create_headline_message(headlines.headline_of(table, incidents, now), CLUSTER)
        return (time.process_time() - start) * 1000

    async def _strand_agents(self, layer: ChannelLayer) -> None:
        """Run a round in which 30 % of the agents become stranded."""
        agents = np.arange(self._agents * 3 // 10, dtype=np.uint32)
        is_new = (
            ~np.isin(agents, self._changing_agents) if self._agents_expired else np.ones(len(agents), bool)
        )
        now = time.time()
        self._filled.write_heartbeats_of(agents, now, expires_in=-1.0)
        self._filled.refresh(now)
        await self._run_round(layer, expected_changes=int(is_new.sum()))

    def _medians(self, scenario: str, rounds: list[dict[str, float]]) -> dict[str, Figure]:
        """Return medians of the whole round and of its steps."""
        whole = statistics.median(sum(steps.values()) for steps in rounds)
        return {
            f"round_{self._agents}_{scenario}_ms": whole,
            **{
                f"{step}_{self._agents}_{scenario}_ms": statistics.median(steps[step] for steps in rounds)
                for step in _STEPS
            },
        }

    async def _run_changed_round(self, layer: ChannelLayer, *, is_changed: bool) -> dict[str, float]:
        """Run a round after new responses of all instances, where 1 % of the agents expire or come back, or none."""
        now = time.time()
        if is_changed:
            self._agents_expired = not self._agents_expired
            self._filled.write_heartbeats_of(
                self._changing_agents, now, expires_in=-1.0 if self._agents_expired else 600.0
            )
        self._filled.refresh(now)
        return await self._run_round(layer, expected_changes=len(self._changing_agents) if is_changed else 0)

    async def _run_round(self, layer: ChannelLayer, *, expected_changes: int) -> dict[str, float]:
        """Milliseconds of each step of one round, in which `moved` agents get another state. Raises BenchError."""
        self._round += 1
        cpu_start = time.process_time()
        outcome = conclude(
            self._writer, CLUSTER, self._round, now=time.time(), timing=_TIMING, clock=time.perf_counter
        )
        assert outcome is not None, "nobody else concludes"
        change_count = sum(len(event.changes) for event in outcome.events if isinstance(event, StateDelta))
        if change_count != expected_changes:
            raise BenchError(f"{change_count} agents changed in a round where {expected_changes} should have")
        start = time.perf_counter()
        await publish(layer, CLUSTER, outcome.events)
        self._round_cpu_ms.append((time.process_time() - cpu_start) * 1000)
        return {
            **{step: seconds * 1000 for step, seconds in outcome.step_seconds.items()},
            "publish": (time.perf_counter() - start) * 1000,
        }

    def _flush_database(self) -> float:
        """Return the milliseconds until the outbox of all rounds is in the database."""
        from fleet.monitoring.history.store import flush_outbox

        start = time.perf_counter()
        while flush_outbox(self._writer, CLUSTER):
            pass
        return (time.perf_counter() - start) * 1000

    def _bytes(self) -> dict[str, Figure]:
        """Bytes per agent: of live evidence and of everything by key, and by what the server says it uses."""
        keys = self._filled.keys
        by_key = {key: self._size(key) for key in cast("list[bytes]", self._redis.keys("bench:*"))}
        live = sum(by_key.get(key.encode(), 0) for key in (keys.heartbeats, keys.tunnels, keys.listings))
        return {
            f"live_bytes_per_agent_{self._agents}": live / self._agents,
            f"bytes_per_agent_{self._agents}": sum(by_key.values()) / self._agents,
            f"used_memory_per_agent_{self._agents}": (self._used_memory() - self._empty) / self._agents,
        }

    def _size(self, key: bytes) -> int:
        return cast("int | None", self._redis.memory_usage(key.decode(), samples=0)) or 0

    def compare(self) -> dict[str, Figure]:
        """Compare reading and classifying the same agents from JSON hashes, one by one, with our columns."""
        now = time.time()
        self._filled.refresh(now)
        record = self._writer.load(CLUSTER)
        frame = prepare_frame(record.evidence(now, _TIMING), now)

        rosters = Rosters(self._redis)

        def classify_record() -> object:
            loaded_record = load_record(
                self._redis, rosters, self._filled.keys
            )  # nothing kept from the time before
            columns = (
                loaded_record.heartbeats,
                loaded_record.memory,
                loaded_record.tunnel_agents,
                loaded_record.tunnel_proxies,
            )
            return classify_columns(*columns, prepare_frame(loaded_record.evidence(now, _TIMING), now), now)

        before = self._used_memory()
        _naive.write(self._redis, record)
        size = self._used_memory() - before
        naive = median_ms(3, lambda: _naive.read_and_classify(self._redis, record.ids, frame))
        packed_ms = median_ms(9, classify_record)
        return {
            f"naive_read_classify_{self._agents}_ms": naive,
            f"packed_read_classify_{self._agents}_ms": packed_ms,
            "naive_to_packed_time": naive / packed_ms,
            f"naive_bytes_per_agent_{self._agents}": size / self._agents,
        }
