"""Another writer in the test database of SQLite: it holds the one lock for as long as a test wants."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from django.db import connection


@contextmanager
def database_locked() -> Iterator[None]:
    """Hold the write lock. Only for tests whose own connection is in no transaction: `django_db(transaction=True)`."""
    with closing(
        sqlite3.connect(connection.settings_dict["NAME"], timeout=60.0, isolation_level=None)
    ) as other:
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")


@contextmanager
def database_read_only() -> Iterator[None]:
    """Refuse every write of this thread, as a full disk does."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA query_only = ON")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA query_only = OFF")
