"""An agent's choice among several load balancers for its next dial, by the results of earlier dials.

Agents do not probe: there are so many of them that probes would be a load of their own.
docs/reference/destination-health.md,
"Agents".
"""

from __future__ import annotations

from collections.abc import Sequence

from fleet.protocol.destination.health import Destination, HealthSettings, RequestOutcome
from fleet.protocol.destination.picker import Candidate, Picker

Address = tuple[str, int]

#: If two of four dials within 60 s failed, the load balancer is avoided for 8 s, the longest pause between two dials.
#: It does not become Degraded first: an agent dials one at a time and needs a response, so dials that still go to a
#: dead balancer only keep the agent stranded for longer.
_HEALTH_SETTINGS = HealthSettings(
    failure_rate=None, unhealthy_rate=0.5, rate_window=60.0, rate_min_requests=2, reactivate_after=8.0
)


class ProxyChoice:
    """The load balancers' addresses and the results of dials to them."""

    def __init__(self, addresses: Sequence[Address], now: float) -> None:
        """All addresses start without results."""
        self._addresses = {f"{host}:{port}": (host, port) for host, port in addresses}
        self._destinations = {name: Destination(now, _HEALTH_SETTINGS) for name in self._addresses}
        self._last_dialed = ""

    def pick(self, now: float, chance: float) -> Address:
        """Return the address for the next dial: at random among those that respond, or among all if none does."""
        candidates = [
            Candidate(name, destination.verdict(now).health)
            for name, destination in self._destinations.items()
        ]
        choice = Picker(candidates, now).pick(chance)
        assert choice is not None, "nobody can drain these, so one is always picked"
        self._last_dialed = choice.name
        return self._addresses[choice.name]

    def record_dial(self, now: float, *, has_response: bool) -> None:
        """Record the result of the last dial. `has_response`: some proxy responded, even if it refused."""
        if self._last_dialed:
            self._destinations[self._last_dialed].record_request(
                RequestOutcome.SUCCESS if has_response else RequestOutcome.FAILURE, now
            )
