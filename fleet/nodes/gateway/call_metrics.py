"""Metrics of finished calls, as `prometheus_client` collects them. docs/reference/gateway.md

A counter and a histogram of that library take a lock for each of their numbers, five for a call. Here one event loop
counts and is scraped, so a call adds to plain numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as TallyCounter
from collections.abc import Iterable
from itertools import accumulate

from prometheus_client import CollectorRegistry, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from typing_extensions import override

#: Upper bounds of durations, seconds, each inclusive.
_BOUNDS: tuple[float, ...] = tuple(map(float, Histogram.DEFAULT_BUCKETS))


class _RuleDurations:
    """Durations of the calls of one rule."""

    __slots__ = ("bucket_counts", "call_count", "total_seconds")

    def __init__(self) -> None:
        #: Number of calls up to each bound and above the one before it.
        self.bucket_counts = [0] * len(_BOUNDS)
        self.call_count = 0
        self.total_seconds = 0.0

    def add(self, seconds: float) -> None:
        self.bucket_counts[bisect_left(_BOUNDS, seconds)] += 1
        self.call_count += 1
        self.total_seconds += seconds


class CallMetrics(Collector):
    """Counts of calls by rule and status, and durations by rule."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counts: TallyCounter[tuple[str, str]] = TallyCounter()
        self._durations: dict[str, _RuleDurations] = {}
        registry.register(self)

    def record(self, rule: str, status: str, seconds: float) -> None:
        """Count a finished call."""
        self._counts[rule, status] += 1
        durations = self._durations.get(rule)
        if durations is None:
            durations = self._durations[rule] = _RuleDurations()
        durations.add(seconds)

    def call_count_of(self, rule: str) -> int:
        """Return the number of finished calls of a rule."""
        return self._durations[rule].call_count if rule in self._durations else 0

    @override
    def collect(self) -> Iterable[Metric]:
        calls = CounterMetricFamily(
            "refloat_gateway_calls", "Finished calls, by rule and status", labels=["rule", "status"]
        )
        for (rule, status), count in self._counts.items():
            calls.add_metric([rule, status], count)
        call_seconds = HistogramMetricFamily(
            "refloat_gateway_call_seconds",
            "Duration of calls including retries, in seconds",
            labels=["rule"],
        )
        for rule, durations in self._durations.items():
            bounds = map(floatToGoString, _BOUNDS)
            buckets = list(zip(bounds, map(float, accumulate(durations.bucket_counts)), strict=True))
            call_seconds.add_metric([rule], buckets, durations.total_seconds)
        return [calls, call_seconds]
