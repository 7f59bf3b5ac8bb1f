"""Which of several load balancers an agent dials next: by what came of its dials, for it makes no probes.

Agents are many: probes of theirs would be a load of their own. docs/destination-health.md, "Agents".
"""

from __future__ import annotations

from collections.abc import Sequence

from fleet.protocol.destination import picker
from fleet.protocol.destination.health import Destination, RequestOutcome, HealthSettings
from fleet.protocol.destination.picker import Candidate, Picker

Address = tuple[str, int]

#: Two of four dials within a minute that came to nothing, and it is left alone for as long as an agent pauses at most
#: between dials. Seconds. Not Degraded first: an agent dials one at a time and needs an answer, so a share of its dials
#: that goes on to a dead balancer only keeps it stranded for longer.
_SETTINGS = HealthSettings(
    failure_rate=None, unhealthy_rate=0.5, rate_window=60.0, rate_minimum=2, reactivate_after=8.0
)
#: What a balancer can take nobody knows: the last one that answers may have all.
_PICKING_SETTINGS = picker.with_headroom(picker.DEFAULTS, None)


class ProxyChoice:
    """The addresses, with what was seen of each."""

    def __init__(self, addresses: Sequence[Address], now: float) -> None:
        """Know nothing of them yet."""
        self._addresses = {f"{host}:{port}": (host, port) for host, port in addresses}
        self._destinations = {name: Destination(now, _SETTINGS) for name in self._addresses}
        self._last = ""

    def pick(self, now: float, chance: float) -> Address:
        """Choose for the next dial: alike among those that answer, any when none does."""
        candidates = [Candidate(name, destination.verdict(now).health) for name, destination in self._destinations.items()]
        choice = Picker(candidates, now, _PICKING_SETTINGS).pick(chance)
        assert choice is not None, "nobody drains these, so there is always one"
        self._last = choice.name
        return self._addresses[choice.name]

    def record_dial(self, now: float, *, has_response: bool) -> None:
        """Take note of what came of the last dial: whether some proxy answered, be it with a refusal."""
        if self._last:
            self._destinations[self._last].record_request(RequestOutcome.SUCCESS if has_response else RequestOutcome.FAILURE, now)
