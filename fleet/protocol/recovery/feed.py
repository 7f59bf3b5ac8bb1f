"""A list that is read by revision: "what changed since revision R of epoch E", else everything.

The one law, tested: an old list with all later answers applied is the list. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

#: Removals remembered; who missed more than these gets the full list.
_TOMBSTONES = 20_000


@dataclass(frozen=True, slots=True)
class FeedPage(Generic[T]):
    """One answer of a feed."""

    epoch: str
    #: The revision this answer reaches: ask again from here.
    revision: int
    #: It begins a full list: forget what you had.
    full: bool
    #: There is more now: ask again at once.
    more: bool
    updates: tuple[T, ...]
    removed_keys: tuple[str, ...]


class RevisionFeed(Generic[T]):
    """The list and its log of changes. One epoch is one life of it."""

    def __init__(self, epoch: str, *, tombstones: int = _TOMBSTONES) -> None:
        self.epoch = epoch
        self.revision = 0
        # Both in the order of their revisions: a change moves its key to the end.
        self._live: dict[str, tuple[int, T]] = {}
        self._dead: dict[str, int] = {}
        self._tombstones = tombstones
        # Removals up to here are forgotten.
        self._floor = 0

    def __len__(self) -> int:
        return len(self._live)

    def get(self, key: str) -> T | None:
        """The value of a key; None when it has none."""
        entry = self._live.get(key)
        return None if entry is None else entry[1]

    def put(self, key: str, value: T) -> None:
        """Add or change a key."""
        self.revision += 1
        self._live.pop(key, None)
        self._dead.pop(key, None)
        self._live[key] = (self.revision, value)

    def remove(self, key: str) -> None:
        """Remove a key; one that is not there changes nothing."""
        if self._live.pop(key, None) is None:
            return
        self.revision += 1
        self._dead[key] = self.revision
        if len(self._dead) > self._tombstones:
            oldest = next(iter(self._dead))
            self._floor = self._dead.pop(oldest)

    def since(self, epoch: str, revision: int, limit: int) -> FeedPage[T]:
        """At most `limit` changes after `revision`; the full list for another epoch or a forgotten revision."""
        full = epoch != self.epoch or revision < self._floor or revision > self.revision
        start = 0 if full else revision
        full = full or start == 0
        changes: list[tuple[int, str, T | None]] = [
            (at, key, value) for key, (at, value) in self._after(start)
        ]
        if not full:
            changes += [(at, key, None) for key, at in self._removed_after(start)]
        changes.sort(key=lambda change: change[0])
        more = len(changes) > limit
        page = changes[:limit]
        return FeedPage(
            epoch=self.epoch,
            revision=page[-1][0] if more else self.revision,
            full=full,
            more=more,
            updates=tuple(value for _, _, value in page if value is not None),
            removed_keys=tuple(key for _, key, value in page if value is None),
        )

    def _after(self, revision: int) -> list[tuple[str, tuple[int, T]]]:
        entries = []
        for key in reversed(self._live):
            entry = self._live[key]
            if entry[0] <= revision:
                break
            entries.append((key, entry))
        return entries

    def _removed_after(self, revision: int) -> list[tuple[str, int]]:
        removals = []
        for key in reversed(self._dead):
            at = self._dead[key]
            if at <= revision:
                break
            removals.append((key, at))
        return removals
