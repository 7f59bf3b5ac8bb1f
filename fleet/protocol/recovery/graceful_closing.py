"""Closing of tunnels that an agent no longer needs: which one, and when. RFD 226, "Closing Connections".

There are two rules. The RFD's: close a tunnel to an expired proxy, or an excess tunnel to a desired one, after it was
surplus for a random 30 to 60 minutes of its own. Upstream's: close the slowest excess tunnel after a threshold without
any change (each change starts it anew), and never one to an expired proxy. Both close one tunnel at a time. Draining
tunnels, which may take days, do not count and keep no other open. Pure: `now` and `chance`, a number in [0, 1), are
arguments.
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

    #: The proxy is expired, and there are enough tunnels without this one.
    EXPIRED = "expired"
    #: There are more tunnels to desired proxies than needed.
    EXCESS = "excess"


@dataclass(frozen=True, slots=True)
class TunnelState:
    """The current state of one tunnel of the agent."""

    proxy: str
    opened_at: float
    #: No new user connections; the tunnel ends with its last one.
    is_draining: bool = False
    #: Number of user connections.
    session_count: int = 0
    #: Smoothed round-trip time, seconds; None before the first measurement.
    rtt: float | None = None
    #: When the last message of the proxy arrived.
    last_seen_at: float = math.inf


@dataclass(frozen=True, slots=True)
class ClosingPolicy:
    """The rule by which an agent closes tunnels. With neither rule it closes none."""

    #: The RFD's rule: ClusterNetworkingConfig.GracefulTunnelClosing.
    graceful: bool = False
    #: Bounds of the RFD's wait, seconds.
    wait_bounds: tuple[float, float] = DEFAULT_CLOSING_WAIT
    #: Above 0: upstream's rule, with this wait in seconds.
    threshold: float = 0.0

    @classmethod
    def of(cls, config: NetworkingConfig) -> ClosingPolicy:
        """Return the policy of a cluster's networking config."""
        return cls(
            config.graceful_tunnel_closing, config.closing_wait_bounds, config.tunnel_disconnect_threshold
        )

    @property
    def is_active(self) -> bool:
        """Return whether any rule is on."""
        return self.graceful or self.threshold > 0


@dataclass(frozen=True, slots=True)
class ClosingDecision:
    """A tunnel to drain and then close."""

    proxy: str
    reason: ClosingReason


@dataclass(frozen=True, slots=True)
class _Wait:
    """Start, and length in seconds, of the wait before a surplus tunnel is closed."""

    since: float
    seconds: float

    def is_over(self, now: float) -> bool:
        return now - self.since >= self.seconds


class GracefulClosing:
    """Closes the surplus tunnels of one agent. Call `decide` regularly, and drain the tunnel that it returns.

    A proxy may have frozen a moment ago, while its tunnel still looks healthy until pings stay unanswered. So nothing
    is closed until the remaining tunnels received a message after the decision came up: `pings_requested_at` is then
    set, and the caller must ping all tunnels.
    """

    def __init__(self, policy: ClosingPolicy | None = None) -> None:
        self.policy = policy or ClosingPolicy()
        #: Wait of each surplus tunnel, by proxy; drawn once, when the tunnel becomes surplus.
        self._waits: dict[str, _Wait] = {}
        #: Since when answers on the other tunnels are awaited; None while no closing is due.
        self.pings_requested_at: float | None = None
        self._connected_proxies: frozenset[str] = frozenset()
        self._connectivity_changed_at: float | None = None

    def set_policy(self, policy: ClosingPolicy) -> None:
        """Change the policy; waits under the old one do not count."""
        if policy != self.policy:
            self.policy = policy
            self._forget_waits()

    def decide(
        self, tunnels: Collection[TunnelState], snapshot: TrackerSnapshot, now: float, chance: float
    ) -> ClosingDecision | None:
        """Return the one tunnel to drain now; almost always None."""
        connected_proxies = frozenset(tunnel.proxy for tunnel in tunnels)
        if connected_proxies != self._connected_proxies:
            self._connected_proxies, self._connectivity_changed_at = connected_proxies, now
        if not self.policy.is_active or len(tunnels) < 2:
            self._forget_waits()
            return None
        if self.policy.threshold > 0:
            return self._decide_by_upstream(tunnels, snapshot, now)
        return self._decide_by_rfd(tunnels, snapshot, now, chance)

    def _decide_by_rfd(
        self, tunnels: Collection[TunnelState], snapshot: TrackerSnapshot, now: float, chance: float
    ) -> ClosingDecision | None:
        closable = closable_by_rfd(tunnels, snapshot)
        candidates = [tunnel for tunnel in tunnels if not tunnel.is_draining and tunnel.proxy in closable]
        self._draw_waits(candidates, closable, snapshot, now, chance)
        due_tunnels = [tunnel for tunnel in candidates if self._is_due(tunnel, now)]
        if not due_tunnels:
            self.pings_requested_at = None
            return None
        due_tunnel = first_by_rfd(due_tunnels, closable)
        if closable[due_tunnel.proxy] is ClosingReason.EXPIRED:
            selected = due_tunnel
        else:
            # One tunnel is in excess: choose it now, by the current users of each.
            selected = first_by_rfd(
                [candidate for candidate in candidates if closable[candidate.proxy] is ClosingReason.EXCESS],
                closable,
            )
        if not self._confirm_others_live(selected, tunnels, snapshot, now):
            return None
        self._spend_wait(due_tunnel.proxy, selected.proxy)
        return ClosingDecision(selected.proxy, closable[selected.proxy])

    def _draw_waits(
        self,
        candidates: Collection[TunnelState],
        closable: Mapping[str, ClosingReason],
        snapshot: TrackerSnapshot,
        now: float,
        chance: float,
    ) -> None:
        """Draw the wait of each tunnel that just became surplus, and forget those of tunnels that are not any more."""
        expired_proxies = [
            tunnel.proxy for tunnel in candidates if closable[tunnel.proxy] is ClosingReason.EXPIRED
        ]
        # Of the tunnels to desired proxies, only the excess count is surplus: first those that were so for the longest.
        excess = sorted(
            (tunnel for tunnel in candidates if closable[tunnel.proxy] is ClosingReason.EXCESS),
            key=lambda tunnel: (self._surplus_since(tunnel.proxy), *_closing_order(tunnel, closable)),
        )
        surplus_excess = excess[: max(len(excess) - snapshot.connection_count, 0)]
        surplus_proxies = [*expired_proxies, *(tunnel.proxy for tunnel in surplus_excess)]
        low, high = self.policy.wait_bounds
        new_surplus_proxies = [proxy for proxy in surplus_proxies if proxy not in self._waits]
        for number, proxy in enumerate(new_surplus_proxies):
            # Tunnels that become surplus together share one chance: the golden ratio spreads them evenly over the
            # bounds.
            share = (chance + number * _GOLDEN_RATIO) % 1.0
            self._waits[proxy] = _Wait(now, low + share * (high - low))
        self._waits = {proxy: self._waits[proxy] for proxy in surplus_proxies}

    def _surplus_since(self, proxy: str) -> float:
        wait = self._waits.get(proxy)
        return math.inf if wait is None else wait.since

    def _is_due(self, tunnel: TunnelState, now: float) -> bool:
        wait = self._waits.get(tunnel.proxy)
        return wait is not None and wait.is_over(now)

    def _spend_wait(self, due_proxy: str, selected_proxy: str) -> None:
        """Remove the wait that is over; if another tunnel is closed instead, `due_proxy` takes over its wait."""
        own_wait = self._waits.pop(selected_proxy, None)
        if due_proxy != selected_proxy:
            del self._waits[due_proxy]
            if own_wait is not None:
                self._waits[due_proxy] = own_wait

    def _confirm_others_live(
        self, selected: TunnelState, tunnels: Collection[TunnelState], snapshot: TrackerSnapshot, now: float
    ) -> bool:
        """Return whether enough of the other tunnels answered since the pings were requested.

        The first call requests them. Success ends the request.
        """
        if self.pings_requested_at is None:
            self.pings_requested_at = now
        requested_at = self.pings_requested_at
        live_tunnels = [
            tunnel
            for tunnel in tunnels
            if tunnel.proxy == selected.proxy or tunnel.last_seen_at > requested_at
        ]
        if selected.proxy not in closable_by_rfd(live_tunnels, snapshot):
            return False
        self.pings_requested_at = None
        return True

    def _forget_waits(self) -> None:
        self._waits.clear()
        self.pings_requested_at = None

    def _decide_by_upstream(
        self, tunnels: Collection[TunnelState], snapshot: TrackerSnapshot, now: float
    ) -> ClosingDecision | None:
        serving_tunnels = [tunnel for tunnel in tunnels if not tunnel.is_draining]
        desired_tunnels = [tunnel for tunnel in serving_tunnels if tunnel.proxy in snapshot.desired_proxies]
        desired_count = snapshot.connection_count
        if desired_count <= 0 or len(desired_tunnels) <= desired_count:
            return None
        if any(tunnel.rtt is None for tunnel in serving_tunnels):
            return None
        changes = (self._connectivity_changed_at, snapshot.topology_changed_at)
        if any(at is not None and now <= at + self.policy.threshold for at in changes):
            return None
        slowest = max(desired_tunnels, key=lambda tunnel: tunnel.rtt or 0.0)
        self._connectivity_changed_at = now
        return ClosingDecision(slowest.proxy, ClosingReason.EXCESS)


def first_by_rfd(due_tunnels: Collection[TunnelState], closable: Mapping[str, ClosingReason]) -> TunnelState:
    """Return the first of the tunnels whose wait is over; `due_tunnels` must not be empty.

    Tunnels to expired proxies come first, as the least useful; then those with the fewest users; then the newest,
    opened as a replacement during an outage, so that agents return to their earlier distribution.
    """
    return min(due_tunnels, key=lambda tunnel: _closing_order(tunnel, closable))


def _closing_order(tunnel: TunnelState, closable: Mapping[str, ClosingReason]) -> tuple[bool, int, float]:
    return closable[tunnel.proxy] is ClosingReason.EXCESS, tunnel.session_count, -tunnel.opened_at


def closable_by_rfd(tunnels: Collection[TunnelState], snapshot: TrackerSnapshot) -> dict[str, ClosingReason]:
    """Return the tunnels that the RFD's rule could close now if their wait were over: each of them, but only one.

    A tunnel to a tracked proxy of an older generation is never among them: rollouts depend on those.
    """
    serving_tunnels = [tunnel for tunnel in tunnels if not tunnel.is_draining]
    # No proxy is known: the existing tunnels are all there is.
    if len(serving_tunnels) < 2 or not snapshot.desired_proxies:
        return {}
    desired_proxies = {tunnel.proxy for tunnel in serving_tunnels if tunnel.proxy in snapshot.desired_proxies}
    has_excess = 0 < snapshot.connection_count < len(desired_proxies)
    closable = dict.fromkeys(desired_proxies if has_excess else (), ClosingReason.EXCESS)
    # Only with as many tunnels as possible: if there are fewer desired proxies than needed tunnels, that means all of
    # them. Waiting for a number that cannot be reached would keep tunnels to expired proxies forever.
    if len(desired_proxies) >= snapshot.desired_tunnel_count:
        expired_proxies = (
            tunnel.proxy for tunnel in serving_tunnels if tunnel.proxy not in snapshot.tracked_proxies
        )
        closable.update(dict.fromkeys(expired_proxies, ClosingReason.EXPIRED))
    return closable
