"""The order in which the connections of one channel try its addresses: the address that was left last comes last.

pick_first connects to the first address that answers, so the order decides where a client goes that leaves a sick
server. gRPC does not say to which address a connection went: the first one of its order is taken for it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Address = tuple[str, int]
#: Puts a list into a random order, in place.
Shuffle = Callable[[list[Address]], None]


class AddressOrder:
    """The order for the next connection, and which addresses earlier ones began with."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        """`addresses` in the order of the first connection."""
        self._unused_addresses = list(addresses)
        #: Addresses that a connection began with, the latest last.
        self._used_addresses: list[Address] = []

    @property
    def has_started(self) -> bool:
        """Whether there was a first connection."""
        return bool(self._used_addresses)

    def first_order(self) -> list[Address]:
        """Return the order of the first connection, as it was given; of a later one, that of `following`, unmixed."""
        return self.next_order(lambda addresses: None)

    def next_order(self, shuffle: Shuffle) -> list[Address]:
        """Return the order of a connection that is to go elsewhere.

        1. Addresses that no connection began with, mixed: clients of one server do not all go to the same next one.
        2. The others, the one that was left last at the end.
        """
        shuffle(self._unused_addresses)
        order = [*self._unused_addresses, *self._used_addresses]
        front = order[0]
        self._unused_addresses = [address for address in self._unused_addresses if address != front]
        self._used_addresses = [*(address for address in self._used_addresses if address != front), front]
        return order
