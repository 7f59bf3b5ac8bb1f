"""Discovery requests: how a proxy tells agents which proxies there are.

RFD 226, "Proposed Improvements" and "Reducing Discovery Request Traffic"; the JSON is Teleport's. Pure: `now` is an
argument, of any one clock. Expiry is judged by the local clock of observation, so that clocks of proxies may differ.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass

from fleet.protocol import durations
from fleet.protocol.recovery import announce

#: What agents of every age accept.
_VERSION = "v2"
#: Teleport's proxySyncInterval is two thirds of its DefaultProxyExpiry, 3 min: full lists come at least this often.
_LONGEST_FULL_INTERVAL = 120.0
#: Full lists per TTL: with the longest heartbeat interval (0.6 TTL) and the interval of reading (0.1 TTL) before it,
#: the list that carries a heartbeat arrives before the lifetime that the heartbeat before it left has passed.
_LISTS_PER_TTL = 6.0
#: Compact mode repeats the full list this often, in TTLs: a lost message is mended.
_RESYNC_TTLS = 10.0
#: How often a proxy reads the list of proxies, in TTLs: in compact mode what heartbeats in between shares a message.
_GATHER_TTLS = 0.2
_READ_TTLS = 0.1
#: A heartbeat that was seen this recently, in TTLs, is news: it is sent with the whole TTL.
_NEWS_TTLS = 0.05
#: Remaining lifetimes are rounded down to this, in TTLs, so that tunnels which are told together share one message.
_GRAIN_TTLS = 0.01

#: uint64, and Go's Duration in nanoseconds.
_HIGHEST_GENERATION = (1 << 64) - 1
_LONGEST_TTL = (1 << 63) - 1

#: What RFD 226 sets out to shorten: the default announce TTL, 10 min, and the default expiry of trackers, 3 min.
RFD_DETECTION = announce.DEFAULT_TTL + 180.0

COMPACT_VARIABLE = "TELEPORT_UNSTABLE_PROXY_COMPACT_DISCOVERY"


class DiscoveryError(ValueError):
    """A discovery request, or an entry of one, that cannot be read."""


@dataclass(frozen=True, slots=True)
class DiscoveredProxy:
    """One proxy of a discovery request."""

    #: Host UUID.
    name: str
    group: str = ""
    generation: int = 0
    #: Seconds the receiver keeps it; 0 when the sender did not say.
    ttl: float = 0.0
    #: It keeps the tunnels it has and takes no new ones. Ours: agents that do not know the key pass over it.
    is_draining: bool = False
    #: The sender's announce TTL where `ttl` is what remains of it, seconds; else 0. Ours, as above.
    announce_ttl: float = 0.0

    @property
    def lifetime(self) -> float:
        """The sender's announce TTL, seconds; 0 when the sender did not say."""
        return self.announce_ttl or self.ttl


@dataclass(frozen=True, slots=True)
class DiscoveryRequest:
    """A discovery request as it was read."""

    proxies: tuple[DiscoveredProxy, ...]
    #: Why entries were skipped, one sentence for each.
    skip_reasons: tuple[str, ...] = ()


@functools.lru_cache(maxsize=64)
def encode(proxies: tuple[DiscoveredProxy, ...]) -> bytes:
    """Write a discovery request; zero values are left out as Go's omitempty does."""
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


# Agents that share a process, or a proxy's many tunnels, meet the same request again and again.
@functools.lru_cache(maxsize=64)
def decode(request: bytes) -> DiscoveryRequest:
    """Read a discovery request. Raises DiscoveryError for what is none.

    Unknown keys are ignored. An entry that cannot be read is skipped, so that it hides none of the others.
    """
    try:
        document = json.loads(request)
    except (ValueError, RecursionError) as error:
        raise DiscoveryError(f"the discovery request is not JSON: {error}") from None
    entries = document.get("proxies") if isinstance(document, dict) else None
    if entries is None and isinstance(document, dict):
        return DiscoveryRequest(())  # Go writes a nil slice as null
    if not isinstance(entries, list):
        raise DiscoveryError("the discovery request has no list 'proxies'")
    proxies, skip_reasons = [], []
    for entry in entries:
        try:
            proxies.append(_proxy(entry))
        except DiscoveryError as error:
            skip_reasons.append(str(error))
    return DiscoveryRequest(tuple(proxies), tuple(skip_reasons))


def _proxy(entry: object) -> DiscoveredProxy:
    if not isinstance(entry, dict) or entry.get("version") != _VERSION:
        raise DiscoveryError(f"a proxy of the discovery request is not of version {_VERSION!r}")
    metadata = entry.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    group = entry.get("gid", "")
    if not isinstance(name, str) or not name or not isinstance(group, str):
        raise DiscoveryError("a proxy of the discovery request has no name")
    is_draining = entry.get("draining", False)
    if not isinstance(is_draining, bool):
        raise DiscoveryError("'draining' of a proxy of the discovery request is neither true nor false")
    return DiscoveredProxy(
        name=name,
        group=group,
        generation=_read_whole_number(entry, "ggen", _HIGHEST_GENERATION),
        ttl=durations.from_nanoseconds(_read_whole_number(entry, "ttl", _LONGEST_TTL)),
        is_draining=is_draining,
        announce_ttl=durations.from_nanoseconds(_read_whole_number(entry, "announce_ttl", _LONGEST_TTL)),
    )


def _read_whole_number(entry: dict[str, object], key: str, highest: int) -> int:
    number = entry.get(key, 0)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= highest:
        raise DiscoveryError(
            f"{key!r} of a proxy of the discovery request is no whole number up to {highest}"
        )
    return number


def generation_of(label: str) -> int:
    """The generation in a proxy's label; 0 when it does not parse, as Teleport reads it."""
    if not (label.isascii() and label.isdigit() and len(label) <= len(str(_HIGHEST_GENERATION))):
        return 0
    generation = int(label)
    return generation if generation <= _HIGHEST_GENERATION else 0


def read_interval(ttl: float, *, compact: bool) -> float:
    """Return how often a proxy of this announce TTL reads the list of proxies, seconds."""
    return min(announce.CHECK_PERIOD, ttl * (_GATHER_TTLS if compact else _READ_TTLS))


def full_interval(ttl: float, *, compact: bool) -> float:
    """Return the seconds between full lists on one tunnel of a proxy of this announce TTL."""
    return _RESYNC_TTLS * ttl if compact else min(_LONGEST_FULL_INTERVAL, ttl / _LISTS_PER_TTL)


def detection(ttl: float, *, compact: bool) -> float:
    """Return when at the latest an agent's tracker drops a proxy, seconds after its last heartbeat.

    Every list carries what remains of the lifetime since that heartbeat was seen, so repeating it extends nothing.
    """
    return ttl * (1 + _NEWS_TTLS * compact) + read_interval(ttl, compact=compact)


@dataclass(frozen=True, slots=True)
class ProxyResource:
    """What a publisher must know of a proxy's resource."""

    name: str
    group: str
    generation: int
    #: As its resource says, by whatever clock wrote it: only *changes* of it mean anything here.
    expires_at: float
    is_draining: bool = False
    #: Its own announce TTL, seconds, as its resource says; 0 when that does not.
    ttl: float = 0.0


def _place(proxy: ProxyResource) -> tuple[str, int, bool]:
    return proxy.group, proxy.generation, proxy.is_draining


@dataclass(frozen=True, slots=True)
class _ProxyEntry:
    proxy: ProxyResource
    #: The version at which its resource last changed.
    version: int
    #: When its expiry last changed, as seen here: its last heartbeat.
    beat_at: float


class Publisher:
    """What one proxy knows of all proxies, and what its subscribers have still to hear. One per proxy."""

    def __init__(self, ttl: float, *, compact: bool) -> None:
        #: The sender's own announce TTL, seconds; the most that is sent along.
        self.ttl = ttl
        self.compact = compact
        self.version = 0
        self._entries: dict[str, _ProxyEntry] = {}

    def observe(self, proxies: Iterable[ProxyResource], now: float) -> bool:
        """Take the full list of the backend; return whether there is something to tell.

        Compact: a proxy came, moved or heartbeated; of an absence nobody is told. Else: one came, moved or went; mere
        heartbeats wait for the ticker, as a full list for each of them is what makes short TTLs dear.
        """
        version = self.version + 1
        entries: dict[str, _ProxyEntry] = {}
        has_news = False
        for proxy in proxies:
            old = self._entries.get(proxy.name)
            if old is not None and old.proxy == proxy:
                entries[proxy.name] = old
                continue
            is_heartbeat = old is None or old.proxy.expires_at != proxy.expires_at
            entries[proxy.name] = _ProxyEntry(proxy, version, now if old is None or is_heartbeat else old.beat_at)
            has_news = has_news or self.compact or old is None or _place(old.proxy) != _place(proxy)
        removed_names = self._entries.keys() - entries.keys()
        self._entries = entries
        if has_news or removed_names:
            self.version = version
        return has_news or (bool(removed_names) and not self.compact)

    @property
    def full_interval(self) -> float:
        """Seconds between full lists on one tunnel."""
        return full_interval(self.ttl, compact=self.compact)

    def full(self, now: float) -> tuple[DiscoveredProxy, ...]:
        """Every proxy that heartbeated within our TTL or its own, as seen here, with what remains of that."""
        lifetimes = ((entry.proxy, self._remaining_ttl(entry, now)) for entry in self._entries.values())
        return tuple(self._discovered_proxy(proxy, ttl) for proxy, ttl in lifetimes if ttl > 0)

    def changed_since(self, version: int, now: float) -> tuple[DiscoveredProxy, ...]:
        """What a subscriber that has read `version` must be sent now; the full list unless compact."""
        if not self.compact:
            return self.full(now)
        lifetimes = (
            (entry.proxy, self.ttl if self._is_news(entry, now) else self._remaining_ttl(entry, now))
            for entry in self._entries.values()
            if entry.version > version
        )
        return tuple(self._discovered_proxy(proxy, ttl) for proxy, ttl in lifetimes if ttl > 0)

    def _is_news(self, entry: _ProxyEntry, now: float) -> bool:
        return now - entry.beat_at <= _NEWS_TTLS * self.ttl

    def _remaining_ttl(self, entry: _ProxyEntry, now: float) -> float:
        """What is left of a proxy's lifetime, at most our TTL; not above 0 when it is over.

        While TTLs are mixed, one that heartbeats seldom must be told of to agents that come between two of its own.
        """
        grain = _GRAIN_TTLS * self.ttl
        age = math.ceil((now - entry.beat_at) / grain) * grain
        remaining_ttl = max(self.ttl, entry.proxy.ttl) - age
        return min(self.ttl, remaining_ttl) if remaining_ttl >= grain / 2 else 0.0

    def _discovered_proxy(self, proxy: ProxyResource, ttl: float) -> DiscoveredProxy:
        announce_ttl = self.ttl if ttl < self.ttl else 0.0
        return DiscoveredProxy(proxy.name, proxy.group, proxy.generation, ttl, proxy.is_draining, announce_ttl)


class Subscriber:
    """One tunnel's place in what a publisher sends. The first read is always the full list."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._version = 0
        #: When the next full list is due; None before the first.
        self.full_at: float | None = None

    def read(self, now: float) -> tuple[DiscoveredProxy, ...]:
        """What to send now, coalesced since the last read; empty means send nothing."""
        publisher = self._publisher
        if self.full_at is None or now >= self.full_at:
            proxies = publisher.full(now)
            if not proxies:
                return ()
            self.full_at = now + publisher.full_interval
        elif self._version == publisher.version:
            return ()
        else:
            proxies = publisher.changed_since(self._version, now)
        self._version = publisher.version
        return proxies
