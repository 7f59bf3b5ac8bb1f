"""Discovery requests: how a proxy tells agents which proxies there are.

RFD 226, "Proposed Improvements" and "Reducing Discovery Request Traffic"; the JSON is Teleport's. Pure: `now` is an
argument, of any one clock. Expiry is judged by the local clock of observation, so that clocks of proxies may differ.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass

from fleet.protocol import durations

#: What agents of every age accept.
_VERSION = "v2"
#: Teleport's DefaultProxyExpiry; two thirds of it was always the full-list interval.
_DEFAULT_PROXY_EXPIRY = 180.0
#: The seed's mode repeats the full list this often, in TTLs: a lost message is mended.
_RESYNC_TTLS = 10.0

#: uint64, and Go's Duration in nanoseconds.
_HIGHEST_GENERATION = (1 << 64) - 1
_LONGEST_TTL = (1 << 63) - 1

COMPACT_VARIABLE = "TELEPORT_UNSTABLE_PROXY_COMPACT_DISCOVERY"


class DiscoveryError(ValueError):
    """A discovery request that cannot be read."""


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
    draining: bool = False


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
        if proxy.draining:
            entry["draining"] = True
        entries.append(entry)
    return json.dumps({"proxies": entries}, separators=(",", ":")).encode()


# Agents that share a process, or a proxy's many tunnels, meet the same request again and again.
@functools.lru_cache(maxsize=64)
def decode(request: bytes) -> tuple[DiscoveredProxy, ...]:
    """Read a discovery request; unknown keys are ignored. Raises DiscoveryError."""
    try:
        document = json.loads(request)
    except (ValueError, RecursionError) as error:
        raise DiscoveryError(f"the discovery request is not JSON: {error}") from None
    proxies = document.get("proxies") if isinstance(document, dict) else None
    if proxies is None and isinstance(document, dict):
        return ()  # Go writes a nil slice as null
    if not isinstance(proxies, list):
        raise DiscoveryError("the discovery request has no list 'proxies'")
    return tuple(_proxy(entry) for entry in proxies)


def _proxy(entry: object) -> DiscoveredProxy:
    if not isinstance(entry, dict) or entry.get("version") != _VERSION:
        raise DiscoveryError(f"a proxy of the discovery request is not of version {_VERSION!r}")
    metadata = entry.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    group = entry.get("gid", "")
    if not isinstance(name, str) or not name or not isinstance(group, str):
        raise DiscoveryError("a proxy of the discovery request has no name")
    draining = entry.get("draining", False)
    if not isinstance(draining, bool):
        raise DiscoveryError("'draining' of a proxy of the discovery request is neither true nor false")
    return DiscoveredProxy(
        name=name,
        group=group,
        generation=_whole(entry, "ggen", _HIGHEST_GENERATION),
        ttl=durations.from_nanoseconds(_whole(entry, "ttl", _LONGEST_TTL)),
        draining=draining,
    )


def _whole(entry: dict[str, object], key: str, highest: int) -> int:
    value = entry.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= highest:
        raise DiscoveryError(
            f"{key!r} of a proxy of the discovery request is no whole number up to {highest}"
        )
    return value


def generation_of(label: str) -> int:
    """The generation in a proxy's label; 0 when it does not parse, as Teleport reads it."""
    if not (label.isascii() and label.isdigit() and len(label) <= len(str(_HIGHEST_GENERATION))):
        return 0
    generation = int(label)
    return generation if generation <= _HIGHEST_GENERATION else 0


@dataclass(frozen=True, slots=True)
class ProxyResource:
    """What a publisher must know of a proxy's resource."""

    name: str
    group: str
    generation: int
    #: As its resource says, by whatever clock wrote it: only *changes* of it mean anything here.
    expires_at: float
    draining: bool = False
    #: Its own announce TTL, seconds, as its resource says; 0 when that does not.
    ttl: float = 0.0


def _place(proxy: ProxyResource) -> tuple[str, int, bool]:
    return proxy.group, proxy.generation, proxy.draining


@dataclass(frozen=True, slots=True)
class _Known:
    proxy: ProxyResource
    #: The version at which its expiry last changed, and when that was seen here.
    version: int
    seen_at: float


class Publisher:
    """What one proxy knows of all proxies, and what its subscribers have still to hear. One per proxy."""

    def __init__(self, ttl: float, *, compact: bool) -> None:
        #: The sender's own announce TTL, seconds; sent along in compact mode.
        self.ttl = ttl
        self.compact = compact
        self.version = 0
        self._known: dict[str, _Known] = {}

    def observe(self, proxies: Iterable[ProxyResource], now: float) -> bool:
        """Take the full list of the backend; return whether there is something to tell.

        Compact: a proxy came, moved or heartbeated; of an absence nobody is told. Else: one came, moved or went; mere
        heartbeats wait for the ticker, as a full list for each of them is what makes short TTLs dear.
        """
        version = self.version + 1
        known: dict[str, _Known] = {}
        news = False
        for proxy in proxies:
            old = self._known.get(proxy.name)
            if old is not None and old.proxy == proxy:
                known[proxy.name] = old
            else:
                known[proxy.name] = _Known(proxy, version, now)
                news = news or self.compact or old is None or _place(old.proxy) != _place(proxy)
        gone = self._known.keys() - known.keys()
        self._known = known
        if news or gone:
            self.version = version
        return news or (bool(gone) and not self.compact)

    @property
    def full_interval(self) -> float:
        """Seconds between full lists on one tunnel."""
        if self.compact:
            return _RESYNC_TTLS * self.ttl
        return min(_DEFAULT_PROXY_EXPIRY * 2 / 3, self.ttl * 2 / 3)

    def full(self, now: float) -> tuple[DiscoveredProxy, ...]:
        """Every proxy; in compact mode those that heartbeated within our TTL or their own, as seen here."""
        return self._since(0, now)

    def changed(self, version: int, now: float) -> tuple[DiscoveredProxy, ...]:
        """What a subscriber that has read `version` must be sent now; the full list unless compact."""
        return self._since(version if self.compact else 0, now)

    def _since(self, version: int, now: float) -> tuple[DiscoveredProxy, ...]:
        ttl = self.ttl if self.compact else 0.0
        return tuple(
            DiscoveredProxy(
                known.proxy.name, known.proxy.group, known.proxy.generation, ttl, known.proxy.draining
            )
            for known in self._known.values()
            if known.version > version and not (self.compact and self._is_expired(known, now))
        )

    def _is_expired(self, known: _Known, now: float) -> bool:
        # While TTLs are mixed, one that heartbeats seldom must be told of to agents that come between two of its own.
        return now - known.seen_at > max(self.ttl, known.proxy.ttl)


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
            proxies = publisher.changed(self._version, now)
        self._version = publisher.version
        return proxies
