"""A round over 10,000, 50,000 and 100,000 agents in ms (read, classify, record, publish), and Valkey bytes per agent.

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
from fleet.monitoring.state.record import load
from fleet.monitoring.state.roster import Rosters
from fleet.monitoring.state.writer import Writer
from fleet.processes import garbage, valkey
from tests.bench import _naive
from tests.bench._record import CLUSTER, fill
from tests.bench.measure import BenchError, Figure, Outcome, Target, median_ms

_SIZES = (10_000, 50_000, 100_000)
_TIMING = Timing(round_interval=5.0)
#: What a quick look compares with: judging 10,000 agents one by one takes seconds already.
_PEER_SIZE = 10_000
_STEPS = ("read", "classify", "record", "publish")
_LIMITS = (
    Target("round_100000_1pct_ms", at_most=50),
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
    """A database of our own, and the channel layer of the console."""
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
    """Nothing remembered, so that rows are made and not found."""
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
        #: The 1 % have expired.
        self._gone = False
        self._writer = Writer(self._redis, "bench")
        self._redis.flushall(asynchronous=False)
        _empty_database()
        self._empty = self._used()
        self._filled = fill(self._writer, agents, time.time())
        # One agent in a hundred, anywhere: the worst for writing rows in place.
        draws = np.random.default_rng(7)
        self._chosen = np.sort(draws.choice(agents, agents // 100, replace=False)).astype(np.uint32)

    def _used(self) -> int:
        return int(cast("dict[str, Any]", self._redis.info("memory"))["used_memory"])

    async def measure(self) -> dict[str, Figure]:
        """Rounds with nothing changed and with 1 % changed, the database's part, and the bytes."""
        from channels.layers import get_channel_layer

        layer = get_channel_layer()
        assert layer is not None, "settings have one"
        first = await self._one(layer, moved=self._agents)
        settled = await asyncio.to_thread(self._settle)
        figures = self._bytes()
        nothing = [await self._after(layer, changed=False) for _ in range(self._rounds)]
        changed = [await self._after(layer, changed=True) for _ in range(self._rounds)]
        batch = await asyncio.to_thread(self._settle)
        return {
            **self._named("0pct", nothing),
            **self._named("1pct", changed),
            f"round_{self._agents}_first_ms": sum(first.values()),
            f"database_{self._agents}_1pct_ms": batch / self._rounds,
            f"database_{self._agents}_first_ms": settled,
            **figures,
        }

    def _named(self, what: str, rounds: list[dict[str, float]]) -> dict[str, Figure]:
        """Medians: the whole round, then its steps."""
        whole = statistics.median(sum(steps.values()) for steps in rounds)
        return {
            f"round_{self._agents}_{what}_ms": whole,
            **{
                f"{step}_{self._agents}_{what}_ms": statistics.median(steps[step] for steps in rounds)
                for step in _STEPS
            },
        }

    async def _after(self, layer: ChannelLayer, *, changed: bool) -> dict[str, float]:
        """A round after new answers of everybody, in which 1 % of the agents expired or came back, or nobody did."""
        now = time.time()
        if changed:
            self._gone = not self._gone
            self._filled.beat(self._chosen, now, expires_in=-1.0 if self._gone else 600.0)
        self._filled.refresh(now)
        return await self._one(layer, moved=len(self._chosen) if changed else 0)

    async def _one(self, layer: ChannelLayer, *, moved: int) -> dict[str, float]:
        """Milliseconds of each step of one round, in which `moved` agents get another state. Raises BenchError."""
        self._round += 1
        done = conclude(
            self._writer, CLUSTER, self._round, now=time.time(), timing=_TIMING, clock=time.perf_counter
        )
        assert done is not None, "nobody else concludes"
        changed = sum(len(event.changes) for event in done.events if isinstance(event, StateDelta))
        if changed != moved:
            raise BenchError(f"{changed} agents changed in a round where {moved} should have")
        began = time.perf_counter()
        await publish(layer, CLUSTER, done.events)
        return {
            **{step: seconds * 1000 for step, seconds in done.step_seconds.items()},
            "publish": (time.perf_counter() - began) * 1000,
        }

    def _settle(self) -> float:
        """Milliseconds until the database has got everything rounds owe to it."""
        from fleet.monitoring.history.store import flush_outbox

        began = time.perf_counter()
        while flush_outbox(self._writer, CLUSTER):
            pass
        return (time.perf_counter() - began) * 1000

    def _bytes(self) -> dict[str, Figure]:
        """Bytes per agent: of live evidence and of everything by key, and by what the server says it uses."""
        keys = self._filled.keys
        by_key = {key: self._size(key) for key in cast("list[bytes]", self._redis.keys("bench:*"))}
        live = sum(by_key.get(key.encode(), 0) for key in (keys.heartbeats, keys.tunnels, keys.listings))
        return {
            f"live_bytes_per_agent_{self._agents}": live / self._agents,
            f"bytes_per_agent_{self._agents}": sum(by_key.values()) / self._agents,
            f"used_memory_per_agent_{self._agents}": (self._used() - self._empty) / self._agents,
        }

    def _size(self, key: bytes) -> int:
        return cast("int | None", self._redis.memory_usage(key.decode(), samples=0)) or 0

    def compare(self) -> dict[str, Figure]:
        """Reading and judging the same agents from a hash of JSON each, one by one, against our columns."""
        now = time.time()
        self._filled.refresh(now)
        record = self._writer.load(CLUSTER)
        frame = prepare_frame(record.evidence(now, _TIMING), now)

        rosters = Rosters(self._redis)

        def packed() -> object:
            seen = load(self._redis, rosters, self._filled.keys)  # nothing kept from the time before
            columns = (seen.heartbeats, seen.memory, seen.tunnel_agents, seen.tunnel_proxies)
            return classify_columns(*columns, prepare_frame(seen.evidence(now, _TIMING), now), now)

        before = self._used()
        _naive.write(self._redis, record)
        size = self._used() - before
        naive = median_ms(3, lambda: _naive.read_and_classify(self._redis, record.ids, frame))
        ours = median_ms(9, packed)
        return {
            f"naive_read_classify_{self._agents}_ms": naive,
            f"packed_read_classify_{self._agents}_ms": ours,
            "naive_to_packed_time": naive / ours,
            f"naive_bytes_per_agent_{self._agents}": size / self._agents,
        }
