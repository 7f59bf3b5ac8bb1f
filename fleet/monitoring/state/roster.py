"""Dense indices of agents and instances: append-only lists in the record, cached by (epoch, length) per process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import RLock
from typing import cast

import numpy as np
import numpy.typing as npt
from redis import Redis

from fleet.monitoring.state import RecordLostError, StateError
from fleet.monitoring.state.batch import Batch
from fleet.monitoring.state.connect import map_redis_errors
from fleet.protocol import text_limits

#: Most attempts to append, which starts over when another process appends first.
_MAX_ATTEMPTS = 20


@dataclass(slots=True)
class Roster:
    """The part of a roster that this process has read: one list per field of the records, ids first."""

    epoch: str = ""
    #: Number of bytes that were read.
    byte_count: int = 0
    columns: list[list[str]] = field(default_factory=list)
    index_by_id: dict[str, int] = field(default_factory=dict)
    #: Last results of `column_head`, by field.
    _column_heads: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def column(self, number: int) -> list[str]:
        """Return a field of every record, by index; it only grows within an epoch."""
        return self.columns[number] if self.columns else []

    def column_head(self, number: int, count: int) -> tuple[str, ...]:
        """Return a field of the first `count` records.

        Rebuilt only when `count` changes: copying 100,000 names took a quarter of a round, most of it in the garbage
        collector.
        """
        column = self._column_heads.get(number, ())
        if len(column) != count:
            column = self._column_heads[number] = tuple(islice(self.column(number), count))
        return column

    def append_tail(self, epoch: str, tail: bytes) -> None:
        """Add the records that were appended after `byte_count`; a new epoch starts over."""
        if epoch != self.epoch:
            self.epoch, self.byte_count, self.columns, self.index_by_id, self._column_heads = (
                epoch,
                0,
                [],
                {},
                {},
            )
        if not tail:
            return
        start = len(self.index_by_id)
        new_columns = list(zip(*(line.split("\t") for line in tail.decode().split("\n")[:-1]), strict=True))
        self.columns = self.columns or [[] for _ in new_columns]
        for column, texts in zip(self.columns, new_columns, strict=True):
            column.extend(texts)
        self.index_by_id.update(zip(new_columns[0], range(start, start + len(new_columns[0])), strict=True))
        self.byte_count += len(tail)


#: Tab, line feed and carriage return are separators.
_SPACES = {9: " ", 10: " ", 13: " "}


def clean_text(text: str) -> str:
    """Return a name without separators and cut to a length that fits a record."""
    text = text_limits.cut(text)
    # No separator is printable: most texts need no second pass, and a first sync has hundreds of thousands.
    return text if text.isprintable() else text.translate(_SPACES)


def encode_identities(identities: Iterable[Sequence[str]]) -> bytes:
    """Return identities as bytes: one line each, fields separated by tabs."""
    return "".join("\t".join(map(clean_text, identity)) + "\n" for identity in identities).encode()


class Rosters:
    """Rosters by key, kept up to date by reading their tails."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._rosters: dict[str, Roster] = {}
        # Web workers read from several threads, and a tail must be added once.
        self._lock = RLock()

    def read(self, epoch_key: str, key: str) -> Roster:
        """Return the current roster at `key`; empty without a record. Raises StateUnavailableError."""
        return self.read_together(epoch_key, key)[0]

    def read_together(self, epoch_key: str, *keys: str) -> tuple[Roster, ...]:
        """Return several rosters of one record with one request. Raises StateUnavailableError."""
        with self._lock:
            rosters = [self._rosters.setdefault(key, Roster()) for key in keys]
            with map_redis_errors(), self._redis.pipeline(transaction=True) as pipe:
                pipe.get(epoch_key)
                for key, roster in zip(keys, rosters, strict=True):
                    pipe.getrange(key, roster.byte_count, -1)
                epoch, *tails = cast("list[bytes | None]", pipe.execute())
            current_epoch = (epoch or b"").decode()
            outdated_keys = [
                key
                for key, roster in zip(keys, rosters, strict=True)
                if current_epoch != roster.epoch and roster.byte_count
            ]
            if outdated_keys:
                # A place in the old list has no meaning in the new one. Other threads may still use the old object.
                self._rosters.update((key, Roster()) for key in outdated_keys)
                return self.read_together(epoch_key, *keys)
            for roster, tail in zip(rosters, tails, strict=True):
                roster.append_tail(current_epoch, tail or b"")
            return tuple(rosters)

    def intern(
        self, epoch_key: str, key: str, epoch: str, identities: Sequence[tuple[str, ...]]
    ) -> npt.NDArray[np.uint32]:
        """Return the indices of identities by id; unknown ones are appended.

        Raises RecordLostError, StateUnavailableError.
        """
        roster = self._rosters.get(key) or self.read(epoch_key, key)
        for _ in range(_MAX_ATTEMPTS):
            missing_identities = list(
                {r[0]: r for r in identities if r[0] not in roster.index_by_id}.values()
            )
            if roster.epoch == epoch and not missing_identities:
                return np.fromiter((roster.index_by_id[r[0]] for r in identities), np.uint32, len(identities))
            roster = self.read(epoch_key, key)
            if roster.epoch != epoch:
                raise RecordLostError(f"the record with epoch {epoch} was replaced")
            missing_identities = [r for r in missing_identities if r[0] not in roster.index_by_id]
            if missing_identities:
                batch = Batch(self._redis)
                batch.guard_value(epoch_key, epoch)
                batch.guard_length(key, roster.byte_count)
                batch.append(key, encode_identities(missing_identities))
                batch.run()
        raise StateError(f"{key}: other processes kept appending")
