"""Which tunnel an agent closes because it needs it no more, and when: RFD 226, "Closing Connections".

Two rules. The RFD's: a tunnel to an expired proxy, or one too many to desired proxies, after it was that for a random
30 to 60 minutes of its own. Upstream's: one too many, the slowest, after a threshold without change, which begins anew
with each, and never an expired one. Either lets one tunnel go at a time. What drains, for days perhaps,
counts for nothing and keeps no other open. Pure: `now` and `chance`, a number in [0, 1), are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from fleet.protocol.networking.config import DEFAULT_CLOSING_WAIT, NetworkingConfig
from fleet.protocol.recovery.tracker import TrackerSnapshot

_GOLDEN_RATIO = 0.618033988749895


class ClosingReason(StrEnum):
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
    is_draining: bool = False
    #: User connections on it.
    sessions: int = 0
    #: Smoothed round-trip time, seconds; None before it was measured.
    rtt: float | None = None
    #: When its proxy was last heard of.
    last_seen_at: float = math.inf


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
class ClosingDecision:
    """A tunnel to drain and close now."""

    proxy: str
    reason: ClosingReason


@dataclass(frozen=True, slots=True)
class _Wait:
    """How long a tunnel must have been surplus before it is closed."""

    since: float
    seconds: float

    def is_over(self, now: float) -> bool:
        return now - self.since >= self.seconds


class GracefulClosing:
    """The closings of one agent. Ask `decide` now and then; what it answers must then be drained.

    A proxy may have frozen a moment ago, and its tunnel looks well until pings remain unanswered. So nothing is closed
    on the strength of tunnels that were not heard of since it came to closing: `asked_at` then says that all are to
    be pinged.
    """

    def __init__(self, policy: ClosingPolicy | None = None) -> None:
        self.policy = policy or ClosingPolicy()
        #: The wait of each surplus tunnel, by proxy: drawn once, when the tunnel became surplus.
        self._waits: dict[str, _Wait] = {}
        #: Since when an answer on the other tunnels is waited for; None while nothing is about to be closed.
        self.pings_requested_at: float | None = None
        self._connected_proxies: frozenset[str] = frozenset()
        self._connectivity_changed_at: float | None = None

    def set_policy(self, policy: ClosingPolicy) -> None:
        """Follow another rule; what was waited for under the old one does not count."""
        if policy != self.policy:
            self.policy = policy
            self._forget()

    def decide(
        self, tunnels: Collection[LiveTunnel], snapshot: TrackerSnapshot, now: float, chance: float
    ) -> ClosingDecision | None:
        """The one tunnel to drain now; None almost always."""
        connected_proxies = frozenset(tunnel.proxy for tunnel in tunnels)
        if connected_proxies != self._connected_proxies:
            self._connected_proxies, self._connectivity_changed_at = connected_proxies, now
        if not self.policy.active or len(tunnels) < 2:
            self._forget()
            return None
        if self.policy.threshold > 0:
            return self._upstream(tunnels, snapshot, now)
        return self._graceful(tunnels, snapshot, now, chance)

    def _graceful(
        self, tunnels: Collection[LiveTunnel], snapshot: TrackerSnapshot, now: float, chance: float
    ) -> ClosingDecision | None:
        closable = closable_by_rfd(tunnels, snapshot)
        candidates = [tunnel for tunnel in tunnels if not tunnel.is_draining and tunnel.proxy in closable]
        self._draw(candidates, closable, snapshot, now, chance)
        ripe = [tunnel for tunnel in candidates if self._is_ripe(tunnel, now)]
        if not ripe:
            self.pings_requested_at = None
            return None
        due = first_by_rfd(ripe, closable)
        if closable[due.proxy] is ClosingReason.EXPIRED:
            selected = due
        else:
            # One is too many: who goes is decided now, by the users there are now.
            selected = first_by_rfd(
                [candidate for candidate in candidates if closable[candidate.proxy] is ClosingReason.EXCESS], closable
            )
        if not self._are_others_live(selected, tunnels, snapshot, now):
            return None
        self._spend_wait(due.proxy, selected.proxy)
        return ClosingDecision(selected.proxy, closable[selected.proxy])

    def _draw(
        self,
        candidates: Collection[LiveTunnel],
        closable: Mapping[str, ClosingReason],
        snapshot: TrackerSnapshot,
        now: float,
        chance: float,
    ) -> None:
        """Draw the wait of each tunnel that became surplus now, and forget those of tunnels that are no more."""
        expired_proxies = [tunnel.proxy for tunnel in candidates if closable[tunnel.proxy] is ClosingReason.EXPIRED]
        # Of tunnels to desired proxies as many are surplus as are too many: first those that were so the longest.
        excess = sorted(
            (tunnel for tunnel in candidates if closable[tunnel.proxy] is ClosingReason.EXCESS),
            key=lambda tunnel: (self._surplus_since(tunnel.proxy), *_order(tunnel, closable)),
        )
        too_many = excess[: max(len(excess) - snapshot.connection_count, 0)]
        surplus = [*expired_proxies, *(tunnel.proxy for tunnel in too_many)]
        low, high = self.policy.wait
        fresh = [proxy for proxy in surplus if proxy not in self._waits]
        for number, proxy in enumerate(fresh):
            # One chance for all that became surplus together: the golden ratio spreads them evenly over the bounds.
            share = (chance + number * _GOLDEN_RATIO) % 1.0
            self._waits[proxy] = _Wait(now, low + share * (high - low))
        self._waits = {proxy: self._waits[proxy] for proxy in surplus}

    def _surplus_since(self, proxy: str) -> float:
        wait = self._waits.get(proxy)
        return math.inf if wait is None else wait.since

    def _is_ripe(self, tunnel: LiveTunnel, now: float) -> bool:
        wait = self._waits.get(tunnel.proxy)
        return wait is not None and wait.is_over(now)

    def _spend_wait(self, due_proxy: str, selected_proxy: str) -> None:
        """Use up the wait that is over; where another tunnel goes for it, that one's own wait is left to `due`."""
        own_wait = self._waits.pop(selected_proxy, None)
        if due_proxy != selected_proxy:
            del self._waits[due_proxy]
            if own_wait is not None:
                self._waits[due_proxy] = own_wait

    def _are_others_live(
        self, selected: LiveTunnel, tunnels: Collection[LiveTunnel], snapshot: TrackerSnapshot, now: float
    ) -> bool:
        """Whether the others are known to work, and are enough; if that is not known yet, begin to ask."""
        if self.pings_requested_at is None:
            self.pings_requested_at = now
        requested_at = self.pings_requested_at
        live_tunnels = [tunnel for tunnel in tunnels if tunnel.proxy == selected.proxy or tunnel.last_seen_at > requested_at]
        if selected.proxy not in closable_by_rfd(live_tunnels, snapshot):
            return False
        self.pings_requested_at = None
        return True

    def _forget(self) -> None:
        self._waits.clear()
        self.pings_requested_at = None

    def _upstream(self, tunnels: Collection[LiveTunnel], snapshot: TrackerSnapshot, now: float) -> ClosingDecision | None:
        live = [tunnel for tunnel in tunnels if not tunnel.is_draining]
        desired_tunnels = [tunnel for tunnel in live if tunnel.proxy in snapshot.desired_proxies]
        desired_count = snapshot.connection_count
        if desired_count <= 0 or len(desired_tunnels) <= desired_count:
            return None
        if any(tunnel.rtt is None for tunnel in live):
            return None
        changes = (self._connectivity_changed_at, snapshot.topology_changed_at)
        if any(at is not None and now <= at + self.policy.threshold for at in changes):
            return None
        slowest = max(desired_tunnels, key=lambda tunnel: tunnel.rtt or 0.0)
        self._connectivity_changed_at = now
        return ClosingDecision(slowest.proxy, ClosingReason.EXCESS)


def first_by_rfd(ripe: Collection[LiveTunnel], closable: Mapping[str, ClosingReason]) -> LiveTunnel:
    """Which of the ripe tunnels goes first; there must be one.

    Expired ones first: they serve least. Then whom fewest users notice; then the newest, the stand-in that was opened
    while something was down, so that agents go back to where they were spread.
    """
    return min(ripe, key=lambda tunnel: _order(tunnel, closable))


def _order(tunnel: LiveTunnel, closable: Mapping[str, ClosingReason]) -> tuple[bool, int, float]:
    return closable[tunnel.proxy] is ClosingReason.EXCESS, tunnel.sessions, -tunnel.opened_at


def closable_by_rfd(tunnels: Collection[LiveTunnel], snapshot: TrackerSnapshot) -> dict[str, ClosingReason]:
    """The tunnels any one of which the RFD's rule would let go now, were the wait over.

    A tunnel to a tracked proxy of an older generation is never among them: rollouts rest on those.
    """
    live = [tunnel for tunnel in tunnels if not tunnel.is_draining]
    # Nothing is known of any proxy: whatever stands is all there is.
    if len(live) < 2 or not snapshot.desired_proxies:
        return {}
    desired_proxies = {tunnel.proxy for tunnel in live if tunnel.proxy in snapshot.desired_proxies}
    too_many = 0 < snapshot.connection_count < len(desired_proxies)
    closable = dict.fromkeys(desired_proxies if too_many else (), ClosingReason.EXCESS)
    # Once as many stand as could. With fewer desired proxies than tunnels wanted that is all of them: waiting
    # for a number that cannot be reached would keep what expired for ever.
    if len(desired_proxies) >= snapshot.desired_tunnel_count:
        expired_proxies = (tunnel.proxy for tunnel in live if tunnel.proxy not in snapshot.tracked_proxies)
        closable.update(dict.fromkeys(expired_proxies, ClosingReason.EXPIRED))
    return closable
