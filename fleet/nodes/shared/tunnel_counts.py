"""Metric of desired and actual tunnels per agent, for `/metrics` of auths and agents."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

#: Number of desired tunnels of an agent, and number of its actual tunnels.
TunnelCounts = tuple[int, int]


class TunnelCountCollector(Collector):
    """Number of agents for each pair of desired and actual tunnels (labels `desired` and `actual`)."""

    def __init__(self, name: str, counts: Callable[[], Iterable[TunnelCounts]]) -> None:
        """`counts` is called at each scrape and returns one pair per agent."""
        self._name = name
        self._counts = counts

    @override
    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            self._name, "Agents by number of desired and actual tunnels", labels=["desired", "actual"]
        )
        for (desired_count, actual_count), agent_count in sorted(Tally(self._counts()).items()):
            family.add_metric([str(desired_count), str(actual_count)], agent_count)
        yield family
