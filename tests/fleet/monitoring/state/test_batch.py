"""Batches of writes, which apply together or not at all."""

from __future__ import annotations

import numpy as np
from redis import Redis

from fleet.monitoring.state.batch import Batch


def test_batch_without_writes_is_empty(redis: Redis, prefix: str) -> None:
    """Guards write nothing."""
    batch = Batch(redis)
    batch.guard_value(f"{prefix}:a", "")
    assert batch.is_empty
    batch.add_command("SET", f"{prefix}:a", "1")
    assert not batch.is_empty


def test_failed_guard_writes_nothing(redis: Redis, prefix: str) -> None:
    """The number of the first guard that failed is returned, from 1 on."""
    key, other_key = f"{prefix}:a", f"{prefix}:b"
    redis.set(key, "old")
    batch = Batch(redis)
    batch.guard_value(key, "old")
    batch.guard_field(f"{prefix}:h", "f", "")
    batch.guard_length(key, 4)
    batch.add_command("SET", other_key, "1")
    assert batch.run() == 3
    assert redis.get(other_key) is None


def test_rows_are_padded_and_written_in_place(redis: Redis, prefix: str) -> None:
    """Only up to the number of rows; rows that exist stay."""
    key = f"{prefix}:rows"
    redis.set(key, b"aa")
    batch = Batch(redis)
    batch.pad(key, b"--", 4)
    batch.pad(key, b"??", 2)
    batch.write_rows(key, 0, 2, np.array([3, 1], np.uint32), b"ddbb")
    batch.append(key, b"ee")
    assert batch.run() == 0
    assert redis.get(key) == b"aabb--ddee"
