"""Writes with a short lock timeout: a lock or a full disk fails the write, not the request."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import Error, connection, transaction


@contextmanager
def limit_lock_wait(seconds: float) -> Iterator[None]:
    """Run a transaction that waits at most `seconds` for locks. Raises `Error` like any write.

    SQLite has one writer; the others wait for it up to the time in the settings (20 s). PostgreSQL waits for rows.
    """
    milliseconds = max(1, round(seconds * 1000))
    if connection.vendor != "sqlite":
        with transaction.atomic():
            _execute(f"SET LOCAL lock_timeout = {milliseconds}")
            yield
        return
    previous_timeout = _execute("PRAGMA busy_timeout")
    _execute(f"PRAGMA busy_timeout = {milliseconds}")
    try:
        with transaction.atomic():
            yield
    finally:
        with contextlib.suppress(Error):
            _execute(f"PRAGMA busy_timeout = {previous_timeout}")


def _execute(statement: str) -> int:
    """Execute a statement and return its first number, or 0."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone() if cursor.description else None
    return int(row[0]) if row else 0
