"""Loads a history into the configured database and measures it. Needs Django set up."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from django.conf import settings
from django.core.management import call_command
from django.db import connection

from dashboards.fleet.agent_history import read_agent_changes
from fleet.models.clusters import ensure_default_cluster
from fleet.models.history import AgentChange, FleetMinute, Keyframe
from fleet.models.inventory import Agent, Instance
from fleet.models.moments import to_moment
from fleet.models.partitions import day_of, ensure_partitions
from fleet.monitoring.evidence import Timing
from fleet.monitoring.history import keyframes
from fleet.monitoring.history.minutes import RESOLUTIONS, minute_of, pack_groups
from fleet.monitoring.history.past import Changes, apply_changes
from fleet.monitoring.history.past_columns import PastColumns, empty_columns
from fleet.monitoring.history.past_table import read_past_table
from fleet.monitoring.history.retention import compact_past_days
from fleet.monitoring.history.store import flush_outbox
from fleet.monitoring.pollers.conclude import conclude
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.outbox import GROUP_COUNT, GroupKind
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.writer import Writer
from fleet.processes import garbage
from fleet.vocabulary.verdicts import State
from tests.bench._history_fleet import DAY_SECONDS, HistoryFleet
from tests.bench._record import CLUSTER, FilledRecord, fill
from tests.bench.measure import percentile

_PREFIX = "bench-history"
_DAYS = 90
#: Changes between two keyframes, as in production, where also the number of agents counts.
_KEYFRAME_CHANGES = 50_000
_TIMING = Timing(round_interval=5.0)
_TIMELINES = 21
_MOMENTS = 11
_ROUNDS = 24
_COLUMNS = "agent_id, at, cause, auth, recovers_after_ms, old, new, reason, recovery, proxies, evidence"


def measure_database(row_count: int, agent_count: int) -> dict[str, float]:
    """Fill the database, and return the figures."""
    garbage.collect_less()
    call_command("migrate", verbosity=0)
    ensure_default_cluster()
    bench = _Bench(row_count, agent_count)
    is_loaded = bench.find_loaded_history()
    bench.start_fleet()
    if not is_loaded:
        bench.load()
    return bench.measure_size() | bench.measure_reads() | bench.measure_writes()


class _Bench:
    """A fleet in a record and its history in the database."""

    def __init__(self, row_count: int, agent_count: int) -> None:
        self._rows_per_day = row_count // _DAYS
        self._agent_count = agent_count
        self._writer = Writer(connect(settings.REDIS_URL), _PREFIX)
        self._draws = np.random.default_rng(7)
        self._round = 0
        self._loaded_row_count = 0
        #: End of the loaded days and number of rows, written when all are loaded.
        self._size_file = Path(settings.REFLOAT_HOME) / "loaded-history.json"
        # On a day boundary: only whole days are loaded.
        self._end = time.time() // DAY_SECONDS * DAY_SECONDS
        self._start = self._end - _DAYS * DAY_SECONDS

    def find_loaded_history(self) -> bool:
        """Return whether the database has the history of an earlier run, and measure that one."""
        if not self._size_file.exists():
            return False
        self._end, self._loaded_row_count = json.loads(self._size_file.read_text())
        self._start = self._end - _DAYS * DAY_SECONDS
        return True

    def start_fleet(self) -> None:
        """Write a record with all agents, and their rows and instances to the database."""
        self._filled: FilledRecord = fill(self._writer, self._agent_count, time.time())
        self._conclude()
        self._flush()
        # What rounds of this run and of earlier ones have written: the loaded history ends before.
        AgentChange.objects.filter(at__gte=self._end).delete()
        Keyframe.objects.filter(at__gte=self._end).delete()
        FleetMinute.objects.filter(at__gte=self._end).delete()

    def _conclude(self) -> None:
        self._round += 1
        self._filled.refresh(time.time())
        outcome = conclude(
            self._writer, CLUSTER, self._round, now=time.time(), timing=_TIMING, clock=time.perf_counter
        )
        assert outcome is not None, "nobody else concludes"

    def _flush(self) -> None:
        while flush_outbox(self._writer, CLUSTER):
            pass

    def load(self) -> None:
        """Write 90 days: changes as one bulk load per day in the order of time, with all indexes in place."""
        agents = np.array(Agent.objects.order_by("pk").values_list("pk", flat=True), np.uint32)
        keys = {
            kind: list(Instance.objects.filter(kind=kind).values_list("pk", flat=True))
            for kind in ("auth", "proxy")
        }
        proxies = np.array(keys["proxy"], np.uint32)
        states = np.full(len(agents), State.HEALTHY, np.uint8)
        fleet = HistoryFleet(agents, keys["auth"], proxies, self._draws, states)
        keyframe_interval = max(_KEYFRAME_CHANGES, self._agent_count)
        columns, change_count = empty_columns(self._start), 0
        self._insert_keyframe(columns)
        ensure_partitions(
            "fleet_agentchange", [day_of(self._start + day * DAY_SECONDS) for day in range(_DAYS)]
        )
        if connection.vendor == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA synchronous = OFF")
                cursor.execute("PRAGMA cache_size = -1000000")
        for day, changes in enumerate(fleet.days(self._start, _DAYS, self._rows_per_day)):
            self._insert(changes)
            first = 0
            while first < len(changes.rows):
                # A keyframe is due after as many changes as the fleet has agents.
                part = slice(first, first + keyframe_interval - change_count)
                columns = apply_changes(
                    columns, Changes(changes.rows[part], changes.proxies[part], changes.evidence[part])
                )
                change_count += len(changes.rows[part])
                first = part.stop
                if change_count == keyframe_interval:
                    self._insert_keyframe(columns)
                    change_count = 0
            self._insert_minutes(columns, self._start + day * DAY_SECONDS)
            self._loaded_row_count += len(changes.rows)
            print(f"day {day + 1} of {_DAYS}", end="\r", file=sys.stderr)
        # As the task does each hour.
        compact_past_days(self._end + DAY_SECONDS)
        self._size_file.write_text(json.dumps((self._end, self._loaded_row_count)))
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute(
                "ANALYZE" if connection.vendor == "postgresql" else "PRAGMA wal_checkpoint(TRUNCATE)"
            )

    def _insert(self, changes: Changes) -> None:
        names = ("agent", "at", "cause", "auth", "recovers_after_ms", "old", "new", "reason", "recovery")
        columns = [changes.rows[name] for name in names]
        columns[1] = np.round(columns[1] * 1000).astype(np.int64)
        values = zip(*(column.tolist() for column in columns), changes.proxies, changes.evidence, strict=True)
        if connection.vendor == "postgresql":
            _copy(values)
            return
        marks = ", ".join(["%s"] * 11)
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.executemany(
                f"INSERT OR IGNORE INTO fleet_agentchange ({_COLUMNS}) VALUES ({marks})", list(values)
            )
            cursor.execute("COMMIT")

    def _insert_keyframe(self, columns: PastColumns) -> None:
        Keyframe.objects.create(cluster_id=CLUSTER, at=columns.at, content=keyframes.pack(columns))

    def _insert_minutes(self, columns: PastColumns, day_start: float) -> None:
        """Write the counts of a day in the resolution of its age, each with the counts of the day's end."""
        age = self._end - day_start
        resolution = max(seconds for seconds, minimum_age in RESOLUTIONS if age > minimum_age)
        state_counts = np.bincount(columns.states, minlength=len(State)).astype("<u4").tobytes()
        groups = pack_groups(_count_groups(columns), np.arange(0x1_0000))
        FleetMinute.objects.bulk_create(
            FleetMinute(
                cluster_id=CLUSTER,
                at=minute_of(day_start + offset),
                resolution=resolution,
                state_counts=state_counts,
                stranded_peak=1,
                at_risk_peak=1,
                change_count=self._rows_per_day * resolution // 86_400,
                groups=groups,
            )
            for offset in range(0, 86_400, resolution)
        )

    def measure_size(self) -> dict[str, float]:
        """Bytes of the whole database, with the tables of agents and instances."""
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("SELECT pg_database_size(current_database())")
                size = cursor.fetchone()[0]
                tables = _postgres_sizes(cursor)
            else:
                size = Path(settings.DATABASES["default"]["NAME"]).stat().st_size
                tables = {}
        return {
            "rows": self._loaded_row_count,
            "keyframes": Keyframe.objects.count(),
            "minute_rows": FleetMinute.objects.count(),
            "size_gb": size / 1e9,
            "bytes_per_row": size / self._loaded_row_count,
            "keyframe_mb": sum(len(row.content) for row in Keyframe.objects.iterator()) / 1e6,
            **tables,
        }

    def measure_reads(self) -> dict[str, float]:
        """Return the milliseconds of the timelines of agents, and of the whole fleet at moments."""
        ids = list(Agent.objects.values_list("agent_id", flat=True))
        agents = [ids[number] for number in self._draws.integers(0, len(ids), _TIMELINES)]
        timelines = [
            _milliseconds(partial(read_agent_changes, CLUSTER, agent, self._end, 50)) for agent in agents
        ]
        # Not before the first keyframe.
        moments = self._draws.uniform(self._start + 2 * DAY_SECONDS, self._end, _MOMENTS).tolist()
        present = Reader(self._writer.redis, _PREFIX).table(CLUSTER, time.time())
        # The first one of the process imports modules and opens connections.
        pasts = [
            _milliseconds(partial(read_past_table, CLUSTER, moment, present))
            for moment in (moments[0], *moments)
        ][1:]
        return {
            "timeline_ms": percentile(timelines, 0.5),
            "timeline_slowest_ms": max(timelines),
            "fleet_at_ms": percentile(pasts, 0.5),
            "fleet_at_slowest_ms": max(pasts),
        }

    def measure_writes(self) -> dict[str, float]:
        """CPU of writing the rounds of two minutes with 1 % changed, of this process and of the database server."""
        changing_agents = np.sort(
            self._draws.choice(self._agent_count, self._agent_count // 100, replace=False)
        ).astype(np.uint32)
        # The first one of the process opens connections.
        self._change(changing_agents, number=1)
        self._flush()
        # A day later one is due.
        keyframe_seconds = _cpu_seconds(
            partial(keyframes.save_if_due, self._writer, CLUSTER, time.time() + DAY_SECONDS)
        )
        spent = 0.0
        for number in range(_ROUNDS):
            self._change(changing_agents, number)
            spent += _cpu_seconds(self._flush)
        seconds_per_round = spent / _ROUNDS
        rounds_per_keyframe = max(_KEYFRAME_CHANGES, self._agent_count) / len(changing_agents)
        per_round = seconds_per_round + keyframe_seconds / rounds_per_keyframe
        return {
            "write_ms_per_round": seconds_per_round * 1000,
            "keyframe_ms": keyframe_seconds * 1000,
            "write_cpu_percent": per_round / _TIMING.round_interval * 100,
        }

    def _change(self, agents: Any, number: int) -> None:
        self._filled.write_heartbeats_of(agents, time.time(), expires_in=600.0 if number % 2 else -1.0)
        self._conclude()


def _copy(values: Any) -> None:
    """Copy rows into the partitions of their days."""
    connection.ensure_connection()
    with (
        connection.connection.cursor() as cursor,
        cursor.copy(f"COPY fleet_agentchange ({_COLUMNS}) FROM STDIN (FORMAT BINARY)") as copy,
    ):
        copy.set_types(["int4", "timestamptz", *["int4"] * 3, *["int2"] * 4, "bytea", "bytea"])
        previous_at, moment = None, None
        for agent, at, *rest in values:
            if at != previous_at:
                previous_at, moment = at, to_moment(at / 1000)
            copy.write_row((agent, moment, *rest))


def _count_groups(columns: PastColumns) -> np.ndarray[Any, Any]:
    parts = []
    for kind, instances in (
        (GroupKind.PROXY, columns.proxies),
        (GroupKind.AUTH, columns.auths),
        (GroupKind.CAUSE, np.maximum(columns.causes, 0)),
    ):
        keys, counts = np.unique(instances.astype(np.int64) * len(State) + columns.states, return_counts=True)
        rows = np.zeros(len(keys), GROUP_COUNT)
        rows["kind"], rows["instance"], rows["state"], rows["count"] = kind, keys // 10, keys % 10, counts
        parts.append(rows)
    return np.concatenate(parts)


def _postgres_sizes(cursor: Any) -> dict[str, float]:
    """Return the megabytes of the changes, of their indexes, and of the keyframes and counts."""
    cursor.execute(
        "SELECT sum(pg_table_size(inhrelid)), sum(pg_indexes_size(inhrelid)) FROM pg_inherits"
        " WHERE inhparent = 'fleet_agentchange'::regclass"
    )
    table, indexes = cursor.fetchone()
    cursor.execute(
        "SELECT pg_total_relation_size('fleet_keyframe') + pg_total_relation_size('fleet_fleetminute')"
    )
    return {
        "table_mb": float(table) / 1e6,
        "index_mb": float(indexes) / 1e6,
        "other_mb": cursor.fetchone()[0] / 1e6,
    }


def _milliseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def _cpu_seconds(work: Callable[[], object]) -> float:
    before = _used_cpu()
    work()
    return _used_cpu() - before


def _used_cpu() -> float:
    """CPU seconds of this process and of the database server, whose processes are children of the one of ours."""
    servers: list[psutil.Process] = []
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            postmaster = psutil.Process(cursor.fetchone()[0]).parent()
        assert postmaster is not None, "a backend has a parent"
        servers = [postmaster, *postmaster.children()]
    times = [process.cpu_times() for process in servers]
    return time.process_time() + sum(cpu.user + cpu.system for cpu in times)
