"""A list that is read by revision: the changes since revision R of epoch E, or the full list.

Invariant, covered by tests: an old list with all later pages applied equals the list. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

#: Removals remembered; a reader that missed more gets the full list.
_TOMBSTONES = 20_000


@dataclass(frozen=True, slots=True)
class FeedPage(Generic[T]):
    """One page of a feed."""

    epoch: str
    #: Revision that this page reaches; read on from here.
    revision: int
    #: This page begins a full list: discard the old one.
    full: bool
    #: More changes are waiting: read on at once.
    more: bool
    updates: tuple[T, ...]
    removed_keys: tuple[str, ...]


class RevisionFeed(Generic[T]):
    """A list with a log of its changes. An epoch is one lifetime of the list."""

    def __init__(self, epoch: str, *, tombstones: int = _TOMBSTONES) -> None:
        self.epoch = epoch
        self.revision = 0
        # Both are in the order of revisions: a change moves its key to the end.
        self._entries: dict[str, tuple[int, T]] = {}
        self._removed_revisions: dict[str, int] = {}
        self._tombstones = tombstones
        # Removals up to this revision are forgotten.
        self._last_forgotten_revision = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> T | None:
        """Return the value of a key; None without one."""
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def put(self, key: str, value: T) -> None:
        """Add or change the value of a key."""
        self.revision += 1
        self._entries.pop(key, None)
        self._removed_revisions.pop(key, None)
        self._entries[key] = (self.revision, value)

    def remove(self, key: str) -> None:
        """Remove a key; a missing key changes nothing."""
        if self._entries.pop(key, None) is None:
            return
        self.revision += 1
        self._removed_revisions[key] = self.revision
        if len(self._removed_revisions) > self._tombstones:
            oldest = next(iter(self._removed_revisions))
            self._last_forgotten_revision = self._removed_revisions.pop(oldest)

    def since(self, epoch: str, revision: int, limit: int) -> FeedPage[T]:
        """Return at most `limit` changes after `revision`; the full list for another epoch or a forgotten revision."""
        full = epoch != self.epoch or revision < self._last_forgotten_revision or revision > self.revision
        start = 0 if full else revision
        full = full or start == 0
        changes: list[tuple[int, str, T | None]] = [
            (changed_revision, key, value) for key, (changed_revision, value) in self._entries_after(start)
        ]
        if not full:
            changes += [(removed_revision, key, None) for key, removed_revision in self._removed_after(start)]
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

    def _entries_after(self, revision: int) -> list[tuple[str, tuple[int, T]]]:
        entries = []
        for key in reversed(self._entries):
            entry = self._entries[key]
            if entry[0] <= revision:
                break
            entries.append((key, entry))
        return entries

    def _removed_after(self, revision: int) -> list[tuple[str, int]]:
        removals = []
        for key in reversed(self._removed_revisions):
            removed_revision = self._removed_revisions[key]
            if removed_revision <= revision:
                break
            removals.append((key, removed_revision))
        return removals
