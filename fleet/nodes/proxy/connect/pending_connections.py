"""Connections that have asked for nothing yet: so many at most, and those who wait longest make room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

Connection = TypeVar("Connection", bound=Hashable)


class PendingConnections(Generic[Connection]):
    """Who has not been let in yet, by address. Users ask at once, so they leave this list long before they are old."""

    def __init__(self) -> None:
        #: From the oldest to the newest.
        self._addresses: dict[Connection, str] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def add(self, connection: Connection, address: str, limit: int) -> Connection | None:
        """Add a connection; return the one to close for it, where there are `most` already.

        That is the oldest of the address that has most of them, so that one address alone shuts nobody else out.
        """
        evicted_connection = self._oldest_of_busiest_address() if len(self._addresses) >= limit else None
        if evicted_connection is not None:
            del self._addresses[evicted_connection]
        self._addresses[connection] = address
        return evicted_connection

    def remove(self, connection: Connection) -> None:
        """Remove a connection that was let in, or is gone; one that is not there is no error."""
        self._addresses.pop(connection, None)

    def _oldest_of_busiest_address(self) -> Connection | None:
        if not self._addresses:
            return None
        (busiest, _), *_rest = Counter(self._addresses.values()).most_common(1)
        return next(connection for connection, address in self._addresses.items() if address == busiest)
