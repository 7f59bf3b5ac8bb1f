"""The address order of the connections of one channel: the address that was left most recently comes last.

pick_first connects to the first address that answers, so the order decides where a client goes when it leaves an
unhealthy server. gRPC does not report which address it connected to: the first of the order is assumed. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Address = tuple[str, int]
#: Shuffles a list in place.
Shuffle = Callable[[list[Address]], None]


class AddressOrder:
    """Address order for the next connection, with a record of the addresses that earlier orders began with."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        """Start with `addresses` in the order of the first connection."""
        self._unused_addresses = list(addresses)
        #: Addresses that earlier orders began with, the latest last.
        self._used_addresses: list[Address] = []

    @property
    def has_started(self) -> bool:
        """Return whether the first connection was made."""
        return bool(self._used_addresses)

    def first_order(self) -> list[Address]:
        """Return the order without shuffling: for the first connection the given one."""
        return self.next_order(lambda addresses: None)

    def next_order(self, shuffle: Shuffle) -> list[Address]:
        """Return the order of a connection that is to reach another server.

        1. Addresses that no order began with, shuffled: the clients of one server must not all go to the same next one.
        2. The others, the most recently left one last.
        """
        shuffle(self._unused_addresses)
        order = [*self._unused_addresses, *self._used_addresses]
        front = order[0]
        self._unused_addresses = [address for address in self._unused_addresses if address != front]
        self._used_addresses = [*(address for address in self._used_addresses if address != front), front]
        return order
