"""Discovery for 100 proxies and 2,000 agents: messages, entries and bytes a minute, and how late a death is noticed.

Simulated time; the publisher, the subscribers, the encoder, the agents' tracker and the schedule of heartbeats are the
real ones. Every agent holds a tunnel to every proxy; a sample of agents stands for all, as tunnels do not differ.
"""

from __future__ import annotations

import heapq
import random
import statistics
import sys
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from fleet.protocol.recovery import announce, discovery
from fleet.protocol.recovery.discovery import DiscoveredProxy, ProxyResource, Publisher, Subscriber
from fleet.protocol.recovery.tracker import Tracker
from fleet.wire import fleet_pb2
from tests.bench.measure import Figure, Outcome, Target

_TTLS = {"1m": 60.0, "10m": 600.0}
#: The compressed flag and length before every message of gRPC.
_PREFIX_BYTES = 5
#: How often a proxy reads the backend: announce.CHECK_PERIOD, or a fifth of a short TTL.
_WATCH_SHARE = 5
_TARGETS = (
    *(Target(f"each_heartbeat_to_compact_bytes_{ttl}", at_least=20) for ttl in _TTLS),
    Target("compact_to_ticker_bytes_1m", at_most=1.8),
    Target("compact_to_ticker_bytes_10m", at_most=0.6),
)


@dataclass(frozen=True, slots=True)
class _Size:
    proxies: int
    agents: int
    #: Agents that are really simulated; those whose trackers are asked as well; proxies that die at the end.
    sample: int
    trackers: int
    deaths: int


_WHOLE = _Size(proxies=100, agents=2_000, sample=6, trackers=3, deaths=10)
_QUICK = _Size(proxies=20, agents=2_000, sample=3, trackers=1, deaths=3)


def run(*, quick: bool) -> Outcome:
    """Simulate each publishing method at each TTL, with the same random seed."""
    size = _QUICK if quick else _WHOLE
    figures: dict[str, Figure] = {"proxies": size.proxies, "agents": size.agents}
    peers: dict[str, Figure] = {}
    per_minute: dict[str, float] = {}
    for ttl_name, ttl in _TTLS.items():
        for way, groups in (("each_heartbeat", ""), ("ticker", ""), ("compact", ""), ("compact", "grouped_")):
            name = f"{groups}{way}"
            print(f"TTL {ttl_name}: {name}", file=sys.stderr, flush=True)
            rates = _Simulation(size, ttl, way, is_grouped=bool(groups)).run()
            tunnels = size.proxies * size.agents
            size_figures: dict[str, Figure] = {
                f"{name}_messages_per_min_{ttl_name}": tunnels * rates.messages,
                f"{name}_entries_per_min_{ttl_name}": tunnels * rates.entries,
                f"{name}_bytes_per_min_{ttl_name}": tunnels * rates.bytes,
                f"{name}_detected_p50_s_{ttl_name}": statistics.median(rates.detection_seconds),
                f"{name}_detected_max_s_{ttl_name}": max(rates.detection_seconds),
            }
            (figures if way == "compact" else peers).update(size_figures)
            per_minute[f"{name}_{ttl_name}"] = rates.bytes
        compact = per_minute[f"compact_{ttl_name}"]
        figures[f"each_heartbeat_to_compact_bytes_{ttl_name}"] = (
            per_minute[f"each_heartbeat_{ttl_name}"] / compact
        )
        figures[f"compact_to_ticker_bytes_{ttl_name}"] = compact / per_minute[f"ticker_{ttl_name}"]
    return Outcome(figures, _TARGETS, peers)


@dataclass(slots=True)
class _Traffic:
    """Traffic per tunnel and minute, and the seconds from each death to the last tracker that forgets the proxy."""

    messages: float = 0.0
    entries: float = 0.0
    bytes: float = 0.0
    detection_seconds: list[float] = field(default_factory=list)


@lru_cache(maxsize=4096)
def _size_of(proxies: tuple[DiscoveredProxy, ...]) -> int:
    """Return the bytes on the wire of a discovery message."""
    request = discovery.encode(proxies)
    frame = fleet_pb2.ProxyFrame(discovery=fleet_pb2.Discovery(request=request))
    return _PREFIX_BYTES + frame.ByteSize()


@dataclass(slots=True)
class _Proxy:
    """One proxy's heartbeats, and what it publishes to the sample of its tunnels."""

    resource: ProxyResource
    interval: float
    publisher: Publisher
    subscribers: list[Subscriber]
    joins: list[float]
    alive: bool = True


class _Simulation:
    """One fleet. Ten TTLs to settle, ten that are measured, then some proxies die at once."""

    def __init__(self, size: _Size, ttl: float, way: str, *, is_grouped: bool) -> None:
        self._chance = random.Random(226)  # the same fleet every time
        self._size, self._ttl, self._way = size, ttl, way
        self._settle_end, self._measure_end = 10 * ttl, 20 * ttl
        self._proxies = [self._proxy(is_grouped=is_grouped) for _ in range(size.proxies)]
        self._trackers = [Tracker("bench") for _ in range(size.trackers)]
        self._traffic = _Traffic()
        # How often heartbeats, and the reading of them, come: (when, which proxy, whether it is a heartbeat).
        self._events = [
            *((self._chance.uniform(0, proxy.interval), at, True) for at, proxy in enumerate(self._proxies)),
            *((self._chance.uniform(0, self._watch), at, False) for at in range(size.proxies)),
        ]
        heapq.heapify(self._events)

    @property
    def _watch(self) -> float:
        return min(announce.CHECK_PERIOD, self._ttl / _WATCH_SHARE)

    def _proxy(self, *, is_grouped: bool) -> _Proxy:
        name = str(uuid.UUID(int=self._chance.getrandbits(128), version=4))
        publisher = Publisher(self._ttl, compact=self._way == "compact")
        sample = range(self._size.sample)
        return _Proxy(
            ProxyResource(name, "proxies-eu" if is_grouped else "", 7 if is_grouped else 0, expires_at=0.0),
            announce.draw_schedule(self._ttl, self._chance.random()).interval,
            publisher,
            [Subscriber(publisher) for _ in sample],
            # Tunnels are of every age: their full lists are spread over the whole period.
            [self._chance.uniform(0, self._settle_end) for _ in sample],
        )

    def run(self) -> _Traffic:
        """Run the simulation; return rates per tunnel and minute."""
        for now in self._advance_until(self._measure_end):
            if now < self._settle_end:
                self._traffic = _Traffic()
        minutes = (self._measure_end - self._settle_end) / 60 * self._size.proxies * self._size.sample
        traffic = self._traffic
        rates = _Traffic(traffic.messages / minutes, traffic.entries / minutes, traffic.bytes / minutes)
        rates.detection_seconds = list(self._kill_some())
        return rates

    def _advance_until(self, end: float) -> Iterator[float]:
        """Let one event after another happen; yield when each did."""
        while self._events[0][0] < end:
            now, at, beats = self._events[0]
            proxy = self._proxies[at]
            period = self._beat(proxy, now) if beats else self._publish(proxy, now)
            heapq.heapreplace(self._events, (now + period, at, beats))
            yield now

    def _live_resources(self, now: float) -> Iterator[ProxyResource]:
        return (proxy.resource for proxy in self._proxies if proxy.resource.expires_at > now)

    def _beat(self, proxy: _Proxy, now: float) -> float:
        if proxy.alive:
            resource = proxy.resource
            proxy.resource = ProxyResource(
                resource.name, resource.group, resource.generation, now + self._ttl
            )
            if self._way == "each_heartbeat":
                self._publish_everywhere(now)
        return proxy.interval

    def _publish_everywhere(self, now: float) -> None:
        """Send the full list from every proxy to every agent at once: the naive way."""
        full = tuple(
            DiscoveredProxy(resource.name, resource.group, resource.generation)
            for resource in self._live_resources(now)
        )
        alive = sum(proxy.alive for proxy in self._proxies)
        self._count(full, times=alive * self._size.sample)
        for tracker in self._trackers:
            tracker.track_expected(full, now)

    def _publish(self, proxy: _Proxy, now: float) -> float:
        if proxy.alive and self._way != "each_heartbeat":
            proxy.publisher.observe(self._live_resources(now), now)
            for number, (subscriber, joined_at) in enumerate(
                zip(proxy.subscribers, proxy.joins, strict=True)
            ):
                update = subscriber.read(now) if now >= joined_at else ()
                if update:
                    self._count(update)
                    if number < len(self._trackers):
                        self._trackers[number].track_expected(update, now)
        return self._watch

    def _count(self, update: tuple[DiscoveredProxy, ...], times: int = 1) -> None:
        self._traffic.messages += times
        self._traffic.entries += times * len(update)
        self._traffic.bytes += times * _size_of(update)

    def _kill_some(self) -> Iterable[float]:
        """Stop some proxies at once; yield the seconds until no tracker names each of them."""
        victims = self._chance.sample(self._proxies, self._size.deaths)
        remaining = {proxy.resource.name for proxy in victims}
        for proxy in victims:
            proxy.alive = False
        died = self._measure_end
        # Nobody keeps one for longer than the resource lives and a full list names it, plus the tracker's expiry.
        for now in self._advance_until(died + 3 * self._ttl + 600):
            for name in [name for name in remaining if not self._is_tracked(name, now)]:
                remaining.discard(name)
                yield now - died
        assert not remaining, "an expired proxy is named for ever"

    def _is_tracked(self, name: str, now: float) -> bool:
        return any(name in tracker.tracked_proxies(now) for tracker in self._trackers)
