"""Choice of the auth for a proxy's next heartbeat, and its timeout. Pure: `now` and chance are arguments.

RFD 226, "Auth HTTP Clients": an unhealthy auth closes the connection with `Connection: close`, and the client uses
another auth. A failure has the same effect, so that one frozen auth costs a proxy one timeout and not its resource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fleet.protocol.backoff import Backoff

#: Bounds of the timeout. An auth allows its backend 0.7 s, and its error says more than a timeout here. Seconds.
_SHORTEST_TIMEOUT, _LONGEST_TIMEOUT = 1.0, 5.0
#: Timeout of one request, as a share of the TTL.
_TIMEOUT_SHARE = 0.1
#: Time for all requests of one heartbeat, as a share of the TTL: 0.4 of it are left when the heartbeat is due.
_HEARTBEAT_SHARE = 0.3
#: Seconds for which an auth that failed or closed the connection is tried after the others.
_BACKOFF = Backoff(first=1.0, ceiling=60.0, factor=2.0)


def request_timeout(ttl: float) -> float:
    """Return the timeout of one request for an announce TTL. Seconds."""
    return min(max(_TIMEOUT_SHARE * ttl, _SHORTEST_TIMEOUT), _LONGEST_TIMEOUT)


def max_requests(ttl: float) -> int:
    """Return the maximum number of requests of one heartbeat: at least two, and as many as the TTL allows."""
    return max(2, int(_HEARTBEAT_SHARE * ttl / request_timeout(ttl)))


@dataclass(slots=True)
class _AuthHistory:
    """Result of the last requests to one auth."""

    failures: int = 0
    #: Until then the auth comes after the others, by the caller's clock.
    avoided_until: float = float("-inf")


class AuthChoice:
    """The addresses of auths, with the result of the last requests to each. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._histories: dict[str, _AuthHistory] = {}
        #: The auth that received the last heartbeat and has the connection; None: choose again.
        self.current_address: str | None = None

    def update(self, addresses: Iterable[str]) -> None:
        """Replace the known addresses.

        An empty list changes nothing: an auth that expired from the list may still be the only one.
        """
        new_addresses = tuple(dict.fromkeys(addresses))
        if not new_addresses:
            return
        self._histories = {address: self._histories.get(address, _AuthHistory()) for address in new_addresses}
        if self.current_address not in self._histories:
            self.current_address = None

    def addresses_to_try(self, now: float, chance: Callable[[], float], limit: int) -> tuple[str, ...]:
        """Return the addresses that one heartbeat tries, at most `limit`; a single address is tried twice.

        It may be a load balancer, and a second connection may reach another auth.
        """
        order = self.order(now, chance)
        return order * 2 if len(order) == 1 else order[:limit]

    def order(self, now: float, chance: Callable[[], float]) -> tuple[str, ...]:
        """Return all addresses in the order to try them.

        First the auth that has the connection; then the others at random, so that proxies spread; last those that
        failed recently, the earliest to be allowed again first. No auth is left out: a suspicion must not become an
        outage.
        """
        chances = {address: chance() for address in self._histories}

        def rank(address: str) -> tuple[bool, float, float]:
            backoff_left = max(self._histories[address].avoided_until - now, 0.0)
            return address != self.current_address, backoff_left, chances[address]

        return tuple(sorted(self._histories, key=rank))

    def record_success(self, address: str, now: float, chance: float, *, is_closing: bool) -> None:
        """Record a successful heartbeat; `is_closing`: the auth closed the connection, because it is unhealthy."""
        history = self._histories[address]
        if is_closing:
            self._avoid(history, now, chance)
            self.current_address = None
        else:
            self._histories[address] = _AuthHistory()
            self.current_address = address

    def record_failure(self, address: str, now: float, chance: float) -> None:
        """Record a failed heartbeat."""
        self._avoid(self._histories[address], now, chance)
        if self.current_address == address:
            self.current_address = None

    @staticmethod
    def _avoid(history: _AuthHistory, now: float, chance: float) -> None:
        history.failures += 1
        history.avoided_until = now + _BACKOFF.wait(history.failures, chance)
