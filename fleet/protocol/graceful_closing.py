"""Which tunnel an agent closes because it needs it no more, and when: RFD 226, "Closing Connections".

Two rules. The RFD's: a tunnel to an expired proxy, or one too many to desired proxies, after
that held for a random 30 to 60 minutes. Upstream's: one too many, the slowest, after a threshold without change, and
never an expired one. Either lets one tunnel go and waits anew before the next. What drains, for days perhaps where
users stay, counts for nothing and keeps no other open. Pure: `now` and `chance`, a number in [0, 1), are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from fleet.protocol.networking_config import DEFAULT_CLOSING_WAIT, NetworkingConfig
from fleet.protocol.tracker import Snapshot


class Reason(StrEnum):
    """Why a tunnel is closed."""

    #: Its proxy is expired, and the tunnels wanted stand without it.
    EXPIRED = "expired"
    #: There are more tunnels to desired proxies than wanted.
    EXCESS = "excess"


@dataclass(frozen=True, slots=True)
class LiveTunnel:
    """A tunnel of the agent, as it is now."""

    proxy: str
    opened_at: float
    #: It takes nobody new and ends with its last user connection.
    draining: bool = False
    #: User connections on it.
    sessions: int = 0
    #: Smoothed round-trip time, seconds; None before it was measured.
    rtt: float | None = None
    #: When its proxy was last heard of.
    heard_at: float = math.inf


@dataclass(frozen=True, slots=True)
class ClosingPolicy:
    """Which rule an agent follows. With neither it closes nothing."""

    #: The RFD's rule, ClusterNetworkingConfig.GracefulTunnelClosing.
    graceful: bool = False
    #: Bounds of the RFD's wait, seconds.
    wait: tuple[float, float] = DEFAULT_CLOSING_WAIT
    #: Above 0: upstream's rule, with this wait, seconds.
    threshold: float = 0.0

    @classmethod
    def of(cls, config: NetworkingConfig) -> ClosingPolicy:
        """What a cluster's config says."""
        return cls(config.graceful_tunnel_closing, config.closing_wait, config.tunnel_disconnect_threshold)

    @property
    def active(self) -> bool:
        """Whether anything is ever closed."""
        return self.graceful or self.threshold > 0


@dataclass(frozen=True, slots=True)
class Closing:
    """A tunnel to drain and close now."""

    proxy: str
    reason: Reason


class GracefulClosing:
    """The closings of one agent. Ask `decide` now and then; what it answers must then be drained.

    A proxy may have frozen a moment ago, and its tunnel looks well until pings remain unanswered. So nothing is closed
    on the strength of tunnels that were not heard of since it came to closing: `asked_at` then says that all are to
    be pinged.
    """

    def __init__(self, policy: ClosingPolicy | None = None) -> None:
        self.policy = policy or ClosingPolicy()
        #: Since when each tunnel could be closed, by proxy.
        self._since: dict[str, float] = {}
        #: The wait drawn for the next closing; None while nothing can be closed.
        self._wait: float | None = None
        self._closed_at: float | None = None
        #: Since when an answer on the other tunnels is waited for; None while nothing is about to be closed.
        self.asked_at: float | None = None
        self._seen: frozenset[str] = frozenset()
        self._connectivity_changed_at: float | None = None

    def set_policy(self, policy: ClosingPolicy) -> None:
        """Follow another rule; what was waited for under the old one does not count."""
        if policy != self.policy:
            self.policy = policy
            self._forget()

    def decide(
        self, tunnels: Collection[LiveTunnel], snapshot: Snapshot, now: float, chance: float
    ) -> Closing | None:
        """The one tunnel to drain now; None almost always."""
        seen = frozenset(tunnel.proxy for tunnel in tunnels)
        if seen != self._seen:
            self._seen, self._connectivity_changed_at = seen, now
        if not self.policy.active or len(tunnels) < 2:
            self._forget()
            return None
        if self.policy.threshold > 0:
            return self._upstream(tunnels, snapshot, now)
        return self._graceful(tunnels, snapshot, now, chance)

    def _graceful(
        self, tunnels: Collection[LiveTunnel], snapshot: Snapshot, now: float, chance: float
    ) -> Closing | None:
        closable = closable_by_rfd(tunnels, snapshot)
        self._since = {proxy: self._since.get(proxy, now) for proxy in closable}
        if not closable:
            self._forget()
            return None
        if self._wait is None:
            low, high = self.policy.wait
            self._wait = low + chance * (high - low)
        ripe = [
            tunnel
            for tunnel in tunnels
            if not tunnel.draining
            and tunnel.proxy in closable
            and now - self._waiting_since(tunnel.proxy) >= self._wait
        ]
        if not ripe:
            self.asked_at = None
            return None
        chosen = first_by_rfd(ripe, closable)
        if not self._answered(chosen, tunnels, snapshot, now):
            return None
        self._closed_at, self._wait = now, None
        return Closing(chosen.proxy, closable[chosen.proxy])

    def _answered(
        self, chosen: LiveTunnel, tunnels: Collection[LiveTunnel], snapshot: Snapshot, now: float
    ) -> bool:
        """Whether the others are known to work, and are enough; if that is not known yet, begin to ask."""
        if self.asked_at is None:
            self.asked_at = now
        asked_at = self.asked_at
        heard = [one for one in tunnels if one.proxy == chosen.proxy or one.heard_at > asked_at]
        if chosen.proxy not in closable_by_rfd(heard, snapshot):
            return False
        self.asked_at = None
        return True

    def _waiting_since(self, proxy: str) -> float:
        since = self._since[proxy]
        return since if self._closed_at is None else max(since, self._closed_at)

    def _forget(self) -> None:
        self._since.clear()
        self._wait = self.asked_at = None

    def _upstream(self, tunnels: Collection[LiveTunnel], snapshot: Snapshot, now: float) -> Closing | None:
        live = [tunnel for tunnel in tunnels if not tunnel.draining]
        desired = [tunnel for tunnel in live if tunnel.proxy in snapshot.desired]
        wanted = snapshot.connection_count
        if wanted <= 0 or len(desired) <= wanted:
            return None
        if any(tunnel.rtt is None for tunnel in live):
            return None
        changes = (self._connectivity_changed_at, snapshot.topology_changed_at)
        if any(at is not None and now <= at + self.policy.threshold for at in changes):
            return None
        slowest = max(desired, key=lambda tunnel: tunnel.rtt or 0.0)
        self._connectivity_changed_at = now
        return Closing(slowest.proxy, Reason.EXCESS)


def first_by_rfd(ripe: Collection[LiveTunnel], closable: Mapping[str, Reason]) -> LiveTunnel:
    """Which of the ripe tunnels goes first; there must be one.

    Expired ones first: they serve least. Then whom fewest users notice; then the newest, the stand-in that was opened
    while something was down, so that agents go back to where they were spread.
    """
    return min(ripe, key=lambda one: (closable[one.proxy] is Reason.EXCESS, one.sessions, -one.opened_at))


def closable_by_rfd(tunnels: Collection[LiveTunnel], snapshot: Snapshot) -> dict[str, Reason]:
    """The tunnels any one of which the RFD's rule would let go now, were the wait over.

    A tunnel to a tracked proxy of an older generation is never among them: rollouts rest on those.
    """
    live = [tunnel for tunnel in tunnels if not tunnel.draining]
    # Nothing is known of any proxy: whatever stands is all there is.
    if len(live) < 2 or not snapshot.desired:
        return {}
    desired = {tunnel.proxy for tunnel in live if tunnel.proxy in snapshot.desired}
    mesh = snapshot.connection_count <= 0
    too_many = not mesh and len(desired) > snapshot.connection_count
    closable = dict.fromkeys(desired if too_many else (), Reason.EXCESS)
    # Not capped by how many desired proxies there are, as dialling is: with fewer proxies than tunnels wanted, one on a
    # proxy that lost only its heartbeats is better than none.
    if len(desired) >= (len(snapshot.desired) if mesh else snapshot.connection_count):
        expired = (tunnel.proxy for tunnel in live if tunnel.proxy not in snapshot.tracked)
        closable.update(dict.fromkeys(expired, Reason.EXPIRED))
    return closable
