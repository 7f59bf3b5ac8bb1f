"""Which auth a proxy heartbeats through next, and how long each may take. Pure: `now` and chance come in as arguments.

RFD 226, "Auth HTTP Clients": an unhealthy auth ends the connection by `Connection: close`, and the client goes
elsewhere. A failure does the same, so that one frozen auth costs a proxy one time limit and not its resource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fleet.protocol.backoff import Backoff

#: An auth gives its own backend 0.7 s, and its answer says more than a time limit that runs out here. Seconds.
_SHORTEST_LIMIT, _LONGEST_LIMIT = 1.0, 5.0
#: Of the TTL, for one request.
_LIMIT_SHARE = 0.1
#: Of the TTL, for all requests of one heartbeat: 0.4 of it are left when the heartbeat is due.
_ROUND_SHARE = 0.3
#: How long an auth that failed, or sent us away, comes after the others. Seconds.
_BACKOFF = Backoff(first=1.0, most=60.0, factor=2.0)


def time_limit(ttl: float) -> float:
    """Return how long one request may take, by the announce TTL. Seconds."""
    return min(max(_LIMIT_SHARE * ttl, _SHORTEST_LIMIT), _LONGEST_LIMIT)


def most_requests(ttl: float) -> int:
    """Return how many auths one heartbeat tries at most: a second one always, and no more than the TTL allows."""
    return max(2, int(_ROUND_SHARE * ttl / time_limit(ttl)))


@dataclass(slots=True)
class _AuthHistory:
    """What came of the requests to one auth."""

    failures: int = 0
    #: Until then it comes after the others, by the clock that is passed in.
    avoided_until: float = float("-inf")


class AuthChoice:
    """The addresses of auths, with what came of the requests to each. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._histories: dict[str, _AuthHistory] = {}
        #: The auth that took the last heartbeat, and holds the connection; None: the next one chooses anew.
        self.current: str | None = None

    def update(self, addresses: Iterable[str]) -> None:
        """Take over the addresses that are known now.

        Without any, those known before stay: an auth that expired from the list may still be the only one there is.
        """
        new_addresses = tuple(dict.fromkeys(addresses))
        if not new_addresses:
            return
        self._histories = {address: self._histories.get(address, _AuthHistory()) for address in new_addresses}
        if self.current not in self._histories:
            self.current = None

    def attempts(self, now: float, chance: Callable[[], float], most: int) -> tuple[str, ...]:
        """Return the addresses that one heartbeat tries, `most` of them; the only one is tried twice.

        That may be a load balancer, and a second connection may lead to another auth.
        """
        order = self.order(now, chance)
        return order * 2 if len(order) == 1 else order[:most]

    def order(self, now: float, chance: Callable[[], float]) -> tuple[str, ...]:
        """Return all addresses, the best first.

        The auth that has the connection comes first. Then come the others at random, so that proxies spread, and last
        those that failed lately, the one whose time is over first: no doubt may become an outage.
        """
        chances = {address: chance() for address in self._histories}

        def rank(address: str) -> tuple[bool, float, float]:
            backoff_left = max(self._histories[address].avoided_until - now, 0.0)
            return address != self.current, backoff_left, chances[address]

        return tuple(sorted(self._histories, key=rank))

    def record_success(self, address: str, now: float, chance: float, *, is_closing: bool) -> None:
        """Record that an auth took a heartbeat; `closes`: it ended the connection, because it is unhealthy."""
        history = self._histories[address]
        if is_closing:
            self._avoid(history, now, chance)
            self.current = None
        else:
            self._histories[address] = _AuthHistory()
            self.current = address

    def record_failure(self, address: str, now: float, chance: float) -> None:
        """Record that an auth did not take a heartbeat."""
        self._avoid(self._histories[address], now, chance)
        if self.current == address:
            self.current = None

    @staticmethod
    def _avoid(history: _AuthHistory, now: float, chance: float) -> None:
        history.failures += 1
        history.avoided_until = now + _BACKOFF.wait(history.failures, chance)
