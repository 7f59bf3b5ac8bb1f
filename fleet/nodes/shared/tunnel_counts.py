"""How many tunnels agents want and have, for `/metrics` of auths and agents."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

#: Tunnels an agent wants, and tunnels it has.
TunnelCounts = tuple[int, int]


class TunnelCountCollector(Collector):
    """How many agents want so many tunnels and have so many, by `desired` and `actual`."""

    def __init__(self, name: str, counts: Callable[[], Iterable[TunnelCounts]]) -> None:
        """`places` tells of each agent, when somebody looks."""
        self._name = name
        self._counts = counts

    @override
    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            self._name, "Agents by the tunnels they want and have", labels=["desired", "actual"]
        )
        for (desired_count, actual), agents in sorted(Tally(self._counts()).items()):
            family.add_metric([str(desired_count), str(actual)], agents)
        yield family
