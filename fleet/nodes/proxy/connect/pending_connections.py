"""Connections without a request yet: their number is limited, and the oldest ones make room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

Connection = TypeVar("Connection", bound=Hashable)


class PendingConnections(Generic[Connection]):
    """Connections that are not admitted yet, by address. Users send their request at once and leave it soon."""

    def __init__(self) -> None:
        #: Ordered from the oldest to the newest.
        self._addresses: dict[Connection, str] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def add(self, connection: Connection, address: str, limit: int) -> Connection | None:
        """Add a connection; if there are `limit` already, return the one to close.

        That is the oldest one of the address with the most connections, so that one address cannot shut out all others.
        """
        evicted_connection = self._oldest_of_busiest_address() if len(self._addresses) >= limit else None
        if evicted_connection is not None:
            del self._addresses[evicted_connection]
        self._addresses[connection] = address
        return evicted_connection

    def remove(self, connection: Connection) -> None:
        """Remove a connection that was admitted or has closed. An unknown connection is no error."""
        self._addresses.pop(connection, None)

    def _oldest_of_busiest_address(self) -> Connection | None:
        if not self._addresses:
            return None
        (busiest, _), *_rest = Counter(self._addresses.values()).most_common(1)
        return next(connection for connection, address in self._addresses.items() if address == busiest)
