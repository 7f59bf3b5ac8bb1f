"""The agent's proxy tracker: known proxies, proxies with a tunnel of this agent, and whether to dial another.

Teleport's `reversetunnel/track`, with RFD 226's TTL instead of DefaultProxyExpiry. Pure: `now` is an argument, of any
one clock (use a monotonic one: a jump of the wall clock must not strand agents).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from fleet.protocol.recovery.discovery import DiscoveredProxy

#: Seconds for which a proxy without a TTL is kept.
DEFAULT_PROXY_EXPIRY = 180.0


class ClaimError(Exception):
    """A lease that cannot claim a proxy; `is_duplicate`: another lease of this agent has that proxy."""

    def __init__(self, sentence: str, *, is_duplicate: bool = False) -> None:
        super().__init__(sentence)
        self.is_duplicate = is_duplicate


@dataclass(frozen=True, slots=True)
class TrackerEntry:
    """Data of one known proxy."""

    group: str
    generation: int
    #: Expiry, by the caller's clock.
    expires_at: float
    #: The proxy takes no new tunnels.
    is_draining: bool = False

    @property
    def selection_key(self) -> tuple[str, int, bool]:
        """The values that decide whether the proxy is desired."""
        return self.group, self.generation, self.is_draining


@dataclass(frozen=True, slots=True)
class TrackerSnapshot:
    """Summary of the tracker. Names are host UUIDs, sorted."""

    #: Number of tunnels to open; 0 means one to every desired proxy (agent mesh).
    connection_count: int
    claimed_proxies: tuple[str, ...]
    tracked_proxies: tuple[str, ...]
    desired_proxies: tuple[str, ...]
    #: Announce TTL in the last discovery request, seconds; 0 without one.
    last_announce_ttl: float
    #: When the set of desired proxies last changed; None before the first proxy.
    topology_changed_at: float | None
    #: Proxies that the agent leaves once it has another, and those among them that are about to shut down.
    leaving_proxies: tuple[str, ...] = ()
    departing_proxies: tuple[str, ...] = ()
    #: Dials whose proxy is not known yet.
    inflight_count: int = 0

    @property
    def desired_tunnel_count(self) -> int:
        """Number of tunnels that the agent needs."""
        proxy_count = len(self.desired_proxies)
        return min(proxy_count, self.connection_count) if self.connection_count > 0 else proxy_count


class Tracker:
    """An agent's knowledge of proxies, filled by discovery requests only. Raises ValueError without a cluster name."""

    def __init__(
        self, cluster: str, connection_count: int = 0, default_expiry: float = DEFAULT_PROXY_EXPIRY
    ) -> None:
        if not cluster:
            raise ValueError("a tracker needs the name of its cluster")
        self._suffix = f".{cluster}"
        self._connection_count = connection_count
        self._default_expiry = default_expiry if default_expiry > 0 else DEFAULT_PROXY_EXPIRY
        self._tracked_proxies: dict[str, TrackerEntry] = {}
        self._claimed_proxies: set[str] = set()
        # Claimed proxies to leave, and those among them that are about to shut down.
        self._leaving_proxies: set[str] = set()
        self._departing_proxies: set[str] = set()
        self._inflight_count = 0
        self._last_lease_id = 0
        # The last check found nothing to do and nothing changed since, so further calls are cheap.
        self._cannot_lease = False
        self._last_announce_ttl = 0.0
        self._last_desired_proxies: set[str] = set()
        self._topology_changed_at: float | None = None

    def track_expected(self, proxies: Iterable[DiscoveredProxy], now: float) -> bool:
        """Process a discovery request: each of its proxies is known for its TTL from now, or for the default expiry.

        Return whether a proxy came or changed its selection key; heartbeats alone do not change the result of
        `try_acquire`.
        """
        has_changed = False
        for proxy in proxies:
            if proxy.name in self._departing_proxies:
                continue  # the sender does not know yet that it shuts down
            ttl = proxy.ttl if proxy.ttl > 0 else self._default_expiry
            old = self._tracked_proxies.get(proxy.name)
            tracked_proxy = TrackerEntry(proxy.group, proxy.generation, now + ttl, proxy.is_draining)
            has_changed = has_changed or old is None or old.selection_key != tracked_proxy.selection_key
            self._tracked_proxies[proxy.name] = tracked_proxy
            self._last_announce_ttl = proxy.lifetime
            self._cannot_lease = False
        if has_changed:
            self._record_topology(now)
        return has_changed

    def set_connection_count(self, count: int) -> bool:
        """Set the number of tunnels to open; 0 or less means one to every desired proxy. Return whether it changed."""
        has_changed = count != self._connection_count
        if has_changed:
            self._connection_count = count
            self._cannot_lease = False
        return has_changed

    def mark_leaving(self, name: str, now: float, *, is_departing: bool = False) -> bool:
        """Mark a claimed proxy as to be left for another; return whether there is, or may be, another.

        `is_departing`: the proxy shuts down, so it counts as expired until its tunnel ends. A draining or expired proxy
        may be left even if there are fewer other proxies than the agent needs tunnels.
        """
        self._expire(now)
        if is_departing and name in self._claimed_proxies:
            self._departing_proxies.add(name)
            self._forget([name], now)
        desired_proxies = self._desired_proxies(leaving_name=name)
        other_proxies = desired_proxies - self._leaving_proxies - {name}
        if name not in self._claimed_proxies or (
            name in desired_proxies and len(other_proxies) < self._desired_tunnel_count(desired_proxies)
        ):
            return False
        self._leaving_proxies.add(name)
        self._cannot_lease = False
        return True

    def can_close(self, name: str, live_proxies: Iterable[str], now: float) -> bool:
        """Return whether the tunnel to `name` can be closed while tunnels to `live_proxies` work: make before break."""
        self._expire(now)
        desired_proxies = self._desired_proxies(leaving_name=name)
        other_proxies = set(live_proxies) - self._leaving_proxies - {name}
        return bool(other_proxies & self._tracked_proxies.keys()) and len(
            other_proxies & desired_proxies
        ) >= self._desired_tunnel_count(desired_proxies)

    def try_acquire(self, now: float) -> TunnelLease | None:
        """Return a lease to dial one more tunnel; None when there are enough, open or being dialled."""
        self._expire(now)
        if self._cannot_lease:
            return None
        if not self._needs_dial():
            self._cannot_lease = True
            return None
        self._last_lease_id += 1
        self._inflight_count += 1
        return TunnelLease(self, self._last_lease_id)

    def next_expiry(self) -> float | None:
        """Return when the next known proxy expires: only then can `try_acquire` change its result without an event."""
        return min((proxy.expires_at for proxy in self._tracked_proxies.values()), default=None)

    def tracked_proxies(self, now: float) -> dict[str, TrackerEntry]:
        """Return all known proxies that have not expired, by name."""
        self._expire(now)
        return dict(self._tracked_proxies)

    def desired_proxy_count(self, now: float) -> int:
        """Return the number of desired proxies."""
        self._expire(now)
        return len(self._desired_proxies())

    def is_claimed(self, *principals: str) -> bool:
        """Return whether a tunnel of this agent ends at that proxy; advisory."""
        return self._resolve(principals) in self._claimed_proxies

    def snapshot(self, now: float) -> TrackerSnapshot:
        """Return the state for reports."""
        self._expire(now)
        return TrackerSnapshot(
            connection_count=max(self._connection_count, 0),
            claimed_proxies=tuple(sorted(self._claimed_proxies)),
            tracked_proxies=tuple(sorted(self._tracked_proxies)),
            desired_proxies=tuple(sorted(self._desired_proxies())),
            last_announce_ttl=self._last_announce_ttl,
            topology_changed_at=self._topology_changed_at,
            leaving_proxies=tuple(sorted(self._leaving_proxies)),
            departing_proxies=tuple(sorted(self._departing_proxies)),
            inflight_count=self._inflight_count,
        )

    def _needs_dial(self) -> bool:
        # Bootstrap: without known proxies or without tunnels, dial one at a time, whatever is desired.
        if self._inflight_count == 0 and (not self._claimed_proxies or not self._tracked_proxies):
            return True
        desired_proxies = self._desired_proxies()
        # Claims on expired proxies, on old generations and on proxies to leave do not count: new tunnels open while
        # those stay.
        available_proxies = desired_proxies - self._leaving_proxies
        desired_count = min(self._desired_tunnel_count(desired_proxies), len(available_proxies))
        return desired_count > len(self._claimed_proxies & available_proxies) + self._inflight_count

    def _desired_tunnel_count(self, desired_proxies: set[str]) -> int:
        return (
            len(desired_proxies)
            if self._connection_count <= 0
            else min(len(desired_proxies), self._connection_count)
        )

    def _desired_proxies(self, leaving_name: str = "") -> set[str]:
        # A draining proxy stays desired while the agent has a tunnel to it, but no new tunnel is opened there.
        kept_claims = self._claimed_proxies - {leaving_name}
        available_proxies = {
            name: proxy
            for name, proxy in self._tracked_proxies.items()
            if not proxy.is_draining or name in kept_claims
        }
        newest: dict[str, int] = {}
        for proxy in available_proxies.values():
            newest[proxy.group] = max(newest.get(proxy.group, 0), proxy.generation)
        return {name for name, proxy in available_proxies.items() if proxy.generation == newest[proxy.group]}

    def _expire(self, now: float) -> None:
        expired_names = [name for name, proxy in self._tracked_proxies.items() if proxy.expires_at < now]
        if expired_names:
            self._forget(expired_names, now)

    def _forget(self, names: Iterable[str], now: float) -> None:
        for name in names:
            self._tracked_proxies.pop(name, None)
        self._cannot_lease = False
        self._record_topology(now)

    def _record_topology(self, now: float) -> None:
        desired_proxies = self._desired_proxies()
        if desired_proxies != self._last_desired_proxies:
            self._last_desired_proxies, self._topology_changed_at = desired_proxies, now

    def _resolve(self, principals: Iterable[str]) -> str:
        """Return the proxy that a set of principals names: a known one, else the first, without the cluster's name."""
        first = ""
        for principal in principals:
            name = principal.removesuffix(self._suffix)
            if name in self._tracked_proxies or name in self._claimed_proxies:
                return name
            first = first or name
        return first

    def _claim(self, principals: tuple[str, ...]) -> str:
        name = self._resolve(principals)
        if not name:
            raise ClaimError("cannot claim a proxy without a name")
        if name in self._claimed_proxies:
            raise ClaimError(f"this agent already has a tunnel to proxy {name}", is_duplicate=True)
        self._inflight_count -= 1
        self._claimed_proxies.add(name)
        self._cannot_lease = False
        return name

    def _release(self, name: str | None) -> None:
        if name is None:
            self._inflight_count -= 1
        else:
            for names in (self._claimed_proxies, self._leaving_proxies, self._departing_proxies):
                names.discard(name)
        self._cannot_lease = False


class _LeaseState(Enum):
    UNCLAIMED = auto()
    CLAIMED = auto()
    RELEASED = auto()


class TunnelLease:
    """The right to hold one tunnel: unclaimed while dialling, claimed once its proxy is known, then released."""

    def __init__(self, tracker: Tracker, lease_id: int) -> None:
        self.id = lease_id
        self._tracker = tracker
        self._state = _LeaseState.UNCLAIMED
        self._name: str | None = None

    @property
    def claimed_proxy(self) -> str | None:
        """The claimed proxy; None without one."""
        return self._name if self._state is _LeaseState.CLAIMED else None

    def claim(self, *principals: str) -> str:
        """Claim the proxy that answered and return its name. Raises ClaimError."""
        if self._state is not _LeaseState.UNCLAIMED:
            raise ClaimError(f"lease {self.id} is {self._state.name.lower()}: it cannot claim another proxy")
        self._name = self._tracker._claim(principals)  # noqa: SLF001 - a lease is part of the tracker
        self._state = _LeaseState.CLAIMED
        return self._name

    def release(self) -> None:
        """Release the lease; a second call does nothing."""
        if self._state is _LeaseState.RELEASED:
            return
        self._tracker._release(self.claimed_proxy)  # noqa: SLF001
        self._state = _LeaseState.RELEASED
