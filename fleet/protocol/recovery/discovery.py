"""Discovery requests: how a proxy sends its agents the list of proxies.

RFD 226, "Proposed Improvements" and "Reducing Discovery Request Traffic"; the JSON is Teleport's. Pure: `now` is an
argument, of any one clock. Expiry is computed from local observation times, so the clocks of proxies may differ.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass

from fleet.protocol import durations
from fleet.protocol.recovery import announce

#: The version that agents of every age accept.
_VERSION = "v2"
#: Teleport's proxySyncInterval, two thirds of its DefaultProxyExpiry of 3 min: maximum seconds between full lists.
_LONGEST_FULL_INTERVAL = 120.0
#: Full lists per TTL. A list with a new heartbeat arrives before the lifetime of the previous one has passed, even with
#: the longest heartbeat interval (0.6 TTL) and read interval (0.1 TTL).
_LISTS_PER_TTL = 6.0
#: Interval of full lists in compact mode, in TTLs: repairs the loss of a message.
_RESYNC_TTLS = 10.0
#: Interval at which a proxy reads the list of proxies in compact mode, in TTLs; heartbeats in between share a message.
_GATHER_TTLS = 0.2
_READ_TTLS = 0.1
#: A heartbeat observed at most so long ago, in TTLs, is sent with the whole TTL.
_FRESH_AGE_TTLS = 0.05
#: Granularity of remaining lifetimes, in TTLs: rounding down lets tunnels share one message.
_GRAIN_TTLS = 0.01

#: Maximum of a uint64, and of Go's Duration in nanoseconds.
_HIGHEST_GENERATION = (1 << 64) - 1
_LONGEST_TTL_NANOSECONDS = (1 << 63) - 1

#: Seconds that RFD 226 sets out to shorten: the default announce TTL, 10 min, plus the trackers' default expiry, 3 min.
RFD_DETECTION_SECONDS = announce.DEFAULT_TTL + 180.0

COMPACT_VARIABLE = "TELEPORT_UNSTABLE_PROXY_COMPACT_DISCOVERY"


class DiscoveryError(ValueError):
    """A discovery request, or one of its entries, that cannot be read."""


@dataclass(frozen=True, slots=True)
class DiscoveredProxy:
    """One proxy of a discovery request."""

    #: Host UUID.
    name: str
    group: str = ""
    generation: int = 0
    #: Seconds for which the receiver keeps the proxy; 0 when the sender sent none.
    ttl: float = 0.0
    #: The proxy keeps its tunnels and takes no new ones. Our own field; agents that do not know it ignore it.
    is_draining: bool = False
    #: The sender's announce TTL in seconds if `ttl` is the rest of it; else 0. Our own field, too.
    announce_ttl: float = 0.0

    @property
    def lifetime(self) -> float:
        """The sender's announce TTL in seconds; 0 when the sender sent none."""
        return self.announce_ttl or self.ttl


@dataclass(frozen=True, slots=True)
class DiscoveryRequest:
    """A discovery request as read."""

    proxies: tuple[DiscoveredProxy, ...]
    #: Why entries were skipped, one message each.
    skip_reasons: tuple[str, ...] = ()


@functools.lru_cache(maxsize=64)
def encode(proxies: tuple[DiscoveredProxy, ...]) -> bytes:
    """Return a discovery request as JSON; zero values are left out, as with Go's omitempty."""
    entries = []
    for proxy in proxies:
        entry: dict[str, object] = {"version": _VERSION, "metadata": {"name": proxy.name}}
        if proxy.group:
            entry["gid"] = proxy.group
        if proxy.generation:
            entry["ggen"] = proxy.generation
        if proxy.ttl:
            entry["ttl"] = durations.to_nanoseconds(proxy.ttl)
        if proxy.is_draining:
            entry["draining"] = True
        if proxy.announce_ttl:
            entry["announce_ttl"] = durations.to_nanoseconds(proxy.announce_ttl)
        entries.append(entry)
    return json.dumps({"proxies": entries}, separators=(",", ":")).encode()


# Agents of one process, and a proxy's many tunnels, receive identical requests.
@functools.lru_cache(maxsize=64)
def decode(request: bytes) -> DiscoveryRequest:
    """Return a discovery request from JSON. Raises DiscoveryError.

    Unknown keys are ignored. An entry that cannot be read is skipped, so that it does not hide the others.
    """
    try:
        document = json.loads(request)
    except (ValueError, RecursionError) as error:
        raise DiscoveryError(f"the discovery request is not JSON: {error}") from None
    entries = document.get("proxies") if isinstance(document, dict) else None
    if entries is None and isinstance(document, dict):
        return DiscoveryRequest(())  # Go writes a nil slice as null
    if not isinstance(entries, list):
        raise DiscoveryError("the discovery request has no list named 'proxies'")
    proxies, skip_reasons = [], []
    for entry in entries:
        try:
            proxies.append(_read_proxy(entry))
        except DiscoveryError as error:
            skip_reasons.append(str(error))
    return DiscoveryRequest(tuple(proxies), tuple(skip_reasons))


def _read_proxy(entry: object) -> DiscoveredProxy:
    if not isinstance(entry, dict) or entry.get("version") != _VERSION:
        raise DiscoveryError(f"a proxy in the discovery request does not have version {_VERSION!r}")
    metadata = entry.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    group = entry.get("gid", "")
    if not isinstance(name, str) or not name or not isinstance(group, str):
        raise DiscoveryError("a proxy in the discovery request has no name")
    is_draining = entry.get("draining", False)
    if not isinstance(is_draining, bool):
        raise DiscoveryError("'draining' of a proxy in the discovery request is not true or false")
    return DiscoveredProxy(
        name=name,
        group=group,
        generation=_read_whole_number(entry, "ggen", _HIGHEST_GENERATION),
        ttl=durations.from_nanoseconds(_read_whole_number(entry, "ttl", _LONGEST_TTL_NANOSECONDS)),
        is_draining=is_draining,
        announce_ttl=durations.from_nanoseconds(
            _read_whole_number(entry, "announce_ttl", _LONGEST_TTL_NANOSECONDS)
        ),
    )


def _read_whole_number(entry: dict[str, object], key: str, highest: int) -> int:
    number = entry.get(key, 0)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= highest:
        raise DiscoveryError(
            f"{key!r} of a proxy in the discovery request is not a whole number from 0 to {highest}"
        )
    return number


def generation_of(label: str) -> int:
    """Return the generation in a proxy's label; 0 when it does not parse, as in Teleport."""
    if not (label.isascii() and label.isdigit() and len(label) <= len(str(_HIGHEST_GENERATION))):
        return 0
    generation = int(label)
    return generation if generation <= _HIGHEST_GENERATION else 0


def read_interval(ttl: float, *, compact: bool) -> float:
    """Return the seconds between two reads of the list of proxies, for a proxy with this announce TTL."""
    return min(announce.CHECK_PERIOD, ttl * (_GATHER_TTLS if compact else _READ_TTLS))


def full_interval(ttl: float, *, compact: bool) -> float:
    """Return the seconds between full lists on one tunnel, for a proxy with this announce TTL."""
    return _RESYNC_TTLS * ttl if compact else min(_LONGEST_FULL_INTERVAL, ttl / _LISTS_PER_TTL)


def detection_seconds(ttl: float, *, compact: bool) -> float:
    """Return after how many seconds without a heartbeat an agent's tracker has dropped a proxy, at the latest.

    Every list carries the rest of the lifetime since the last heartbeat was observed, so repeats do not extend it.
    """
    return ttl * (1 + _FRESH_AGE_TTLS * compact) + read_interval(ttl, compact=compact)


@dataclass(frozen=True, slots=True)
class ProxyResource:
    """The parts of a proxy's resource that a publisher needs."""

    name: str
    group: str
    generation: int
    #: Expiry in the resource, by its writer's clock: only *changes* of it mean anything here.
    expires_at: float
    is_draining: bool = False
    #: The proxy's own announce TTL in seconds, from its resource; 0 when unknown.
    ttl: float = 0.0


def _selection_key(proxy: ProxyResource) -> tuple[str, int, bool]:
    return proxy.group, proxy.generation, proxy.is_draining


@dataclass(frozen=True, slots=True)
class _ProxyEntry:
    proxy: ProxyResource
    #: Publisher version at which the resource last changed.
    version: int
    #: Local time at which the expiry last changed: the last heartbeat.
    heartbeat_at: float


class Publisher:
    """The list of proxies as one proxy knows it, and the changes for each subscriber. One per proxy."""

    def __init__(self, ttl: float, *, compact: bool) -> None:
        #: The sender's own announce TTL in seconds; the maximum TTL in its messages.
        self.ttl = ttl
        self.compact = compact
        self.version = 0
        self._entries: dict[str, _ProxyEntry] = {}

    def observe(self, proxies: Iterable[ProxyResource], now: float) -> bool:
        """Take the full list of the backend; return whether there is a message to send.

        In compact mode: a proxy came, changed or sent a heartbeat; a missing proxy is not sent. Otherwise: a proxy
        came, changed or went; heartbeats alone wait for the next full list, because a full list for each one is
        expensive.
        """
        version = self.version + 1
        entries: dict[str, _ProxyEntry] = {}
        has_changes = False
        for proxy in proxies:
            old = self._entries.get(proxy.name)
            if old is not None and old.proxy == proxy:
                entries[proxy.name] = old
                continue
            is_heartbeat = old is None or old.proxy.expires_at != proxy.expires_at
            entries[proxy.name] = _ProxyEntry(
                proxy, version, now if old is None or is_heartbeat else old.heartbeat_at
            )
            has_changes = (
                has_changes
                or self.compact
                or old is None
                or _selection_key(old.proxy) != _selection_key(proxy)
            )
        removed_names = self._entries.keys() - entries.keys()
        self._entries = entries
        if has_changes or removed_names:
            self.version = version
        return has_changes or (bool(removed_names) and not self.compact)

    @property
    def full_interval(self) -> float:
        """Seconds between full lists on one tunnel."""
        return full_interval(self.ttl, compact=self.compact)

    def full_list(self, now: float) -> tuple[DiscoveredProxy, ...]:
        """Return every proxy with a heartbeat within our TTL or its own, with the rest of that lifetime."""
        proxies_with_ttl = (
            (entry.proxy, self._remaining_ttl(entry, now)) for entry in self._entries.values()
        )
        return tuple(self._discovered_proxy(proxy, ttl) for proxy, ttl in proxies_with_ttl if ttl > 0)

    def changed_since(self, version: int, now: float) -> tuple[DiscoveredProxy, ...]:
        """Return what to send a subscriber that has received `version`: the full list unless compact."""
        if not self.compact:
            return self.full_list(now)
        proxies_with_ttl = (
            (entry.proxy, self.ttl if self._is_fresh(entry, now) else self._remaining_ttl(entry, now))
            for entry in self._entries.values()
            if entry.version > version
        )
        return tuple(self._discovered_proxy(proxy, ttl) for proxy, ttl in proxies_with_ttl if ttl > 0)

    def _is_fresh(self, entry: _ProxyEntry, now: float) -> bool:
        return now - entry.heartbeat_at <= _FRESH_AGE_TTLS * self.ttl

    def _remaining_ttl(self, entry: _ProxyEntry, now: float) -> float:
        """Return the rest of a proxy's lifetime in seconds, at most our TTL; 0 when it is over.

        With mixed TTLs, agents that connect between two heartbeats of a slow proxy must still be sent that proxy.
        """
        grain = _GRAIN_TTLS * self.ttl
        age = math.ceil((now - entry.heartbeat_at) / grain) * grain
        remaining_ttl = max(self.ttl, entry.proxy.ttl) - age
        return min(self.ttl, remaining_ttl) if remaining_ttl >= grain / 2 else 0.0

    def _discovered_proxy(self, proxy: ProxyResource, ttl: float) -> DiscoveredProxy:
        announce_ttl = self.ttl if ttl < self.ttl else 0.0
        return DiscoveredProxy(
            proxy.name, proxy.group, proxy.generation, ttl, proxy.is_draining, announce_ttl
        )


class Subscriber:
    """Position of one tunnel in a publisher's messages. The first read is always the full list."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._version = 0
        #: When the next full list is due; None before the first.
        self.next_full_at: float | None = None

    def read(self, now: float) -> tuple[DiscoveredProxy, ...]:
        """Return what to send now, merged since the last read; empty means send nothing."""
        publisher = self._publisher
        if self.next_full_at is None or now >= self.next_full_at:
            proxies = publisher.full_list(now)
            if not proxies:
                return ()
            self.next_full_at = now + publisher.full_interval
        elif self._version == publisher.version:
            return ()
        else:
            proxies = publisher.changed_since(self._version, now)
        self._version = publisher.version
        return proxies
