"""The part of the bench `alerts` with all that a second of an outage has: record in Redis, database, notifications.

Half of the proxies fail at once. The record is written as workers do, and read as the alerting process does. Each
incident notifies a channel; nothing is sent, because other threads send what was queued.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fleet.monitoring.evidence import Timing
from fleet.monitoring.pollers.conclude import conclude
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.reader import open_reader
from fleet.monitoring.state.writer import Writer
from tests.bench._record import CLUSTER, PROXIES, FilledRecord, fill
from tests.bench.measure import BenchError, Figure

_PREFIX = "bench-alerts"
_TIMING = Timing(round_interval=1.0)
#: Longest time from the failure to the first notification, and from the recovery to the last one, seconds.
_MAX_SECONDS = 60
#: Group wait, and time from the recovery until an incident is resolved.
_WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """What one evaluation cost, in ms, and the notifications that it queued."""

    wall: float
    cpu: float
    delivery_count: int


class Outage:
    """A fleet in a real record, and an evaluator of its own. Needs Django."""

    def __init__(self, redis_url: str, agents: int) -> None:
        from fleet.alerts.evaluator import Evaluator
        from fleet.models.alerting import AlertRule, Channel, Route
        from fleet.models.clusters import Cluster, ensure_default_cluster
        from fleet.models.incidents import Incident

        Cluster.objects.all().delete()
        Incident.objects.all().delete()
        ensure_default_cluster()
        # Without thresholds every failing proxy is an incident. Shorter waits only mean fewer evaluations.
        AlertRule.objects.update(
            min_count=1,
            min_share=0.0,
            pending_seconds=0.0,
            group_wait=_WAIT_SECONDS,
            recover_seconds=_WAIT_SECONDS,
        )
        channel = Channel.objects.create(
            name="bench", kind="webhook", config={"url": "https://bench.example/"}, per_minute=100_000
        )
        for route in Route.objects.filter(parent=None):
            route.channels.add(channel)
        self._now = time.time()
        self._round = 0
        self._writer = Writer(connect(redis_url), _PREFIX)
        self._record: FilledRecord = fill(self._writer, agents, self._now, group="")
        self._evaluator = Evaluator(open_reader(redis_url, _PREFIX), "bench", "https://refloat.example")

    def measure(self, repeats: int) -> dict[str, Figure]:
        """Measure calm seconds, the outage from its first second to its notifications, and the recovery."""
        from fleet.models.incidents import Incident

        failed_proxies = range(PROXIES // 2)
        calm_evaluations = [self._evaluate() for _ in range(repeats + 3)][3:]
        first_evaluations = list(self._evaluate_until_queued(failed_proxies))
        incident_count = Incident.objects.filter(state="firing").count()
        changed_evaluations = [self._evaluate(failed_proxies, is_changed=True) for _ in range(repeats + 2)][
            2:
        ]
        last_evaluations = list(self._evaluate_until_queued(()))
        all_evaluations = [*calm_evaluations, *first_evaluations, *changed_evaluations, *last_evaluations]
        return {
            "outage_incidents": incident_count,
            "outage_deliveries": sum(evaluation.delivery_count for evaluation in all_evaluations),
            "outage_calm_ms": round(statistics.median(evaluation.wall for evaluation in calm_evaluations), 1),
            "outage_first_second_ms": round(max(evaluation.wall for evaluation in first_evaluations[:3]), 1),
            "outage_notifying_ms": round(first_evaluations[-1].wall, 1),
            "outage_changing_ms": round(
                statistics.median(evaluation.wall for evaluation in changed_evaluations), 1
            ),
            "outage_changing_cpu_ms": round(
                statistics.median(evaluation.cpu for evaluation in changed_evaluations), 1
            ),
            "outage_resolving_ms": round(max(evaluation.wall for evaluation in last_evaluations), 1),
            "outage_worst_ms": round(max(evaluation.wall for evaluation in all_evaluations), 1),
            "outage_worst_cpu_ms": round(max(evaluation.cpu for evaluation in all_evaluations), 1),
        }

    def _evaluate_until_queued(self, failed_proxies: range | tuple[int, ...]) -> Iterator[_Evaluation]:
        """Yield each second until one queues notifications. Raises BenchError."""
        for _ in range(_MAX_SECONDS):
            evaluation = self._evaluate(failed_proxies)
            yield evaluation
            if evaluation.delivery_count:
                return
        raise BenchError(f"no notification was queued within {_MAX_SECONDS} s of the outage or its end")

    def _evaluate(
        self, failed_proxies: range | tuple[int, ...] = (), *, is_changed: bool = False
    ) -> _Evaluation:
        """Conclude the next second's round, and evaluate it. `is_changed`: an agent of each failing proxy changes."""
        from fleet.models.alerting import Delivery

        self._now += 1.0
        self._round += 1
        if is_changed:
            # The first agents are those with their first tunnel at the proxy of their number.
            expires_in = -1.0 if self._round % 2 else 600.0
            self._record.write_heartbeats_of(
                np.array(failed_proxies, np.uint32), self._now, expires_in=expires_in
            )
        self._record.refresh(self._now, failed_proxies)
        outcome = conclude(
            self._writer, CLUSTER, self._round, now=self._now, timing=_TIMING, clock=time.perf_counter
        )
        assert outcome is not None, "nobody else concludes"
        before_count = Delivery.objects.count()
        cpu, start = time.process_time(), time.perf_counter()
        self._evaluator.evaluate_cluster(CLUSTER, self._now)
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        return _Evaluation(wall * 1000, cpu * 1000, Delivery.objects.count() - before_count)
