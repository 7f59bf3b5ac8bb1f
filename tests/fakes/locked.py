"""Another writer in the test database, which holds a lock for as long as a test wants, and a database that is full."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from django.db import OperationalError, connection

#: Tables that the tests write while they are locked: PostgreSQL has no lock of the whole database.
_TABLES = "auth_user, fleet_apitoken, django_session"
_WRITES = ("INSERT", "UPDATE", "DELETE")


@contextmanager
def database_locked() -> Iterator[None]:
    """Hold the write lock. Only for tests whose own connection is in no transaction: `django_db(transaction=True)`."""
    with _other_writer() as execute:
        try:
            yield
        finally:
            execute("ROLLBACK")


@contextmanager
def _other_writer() -> Iterator[Callable[[str], object]]:
    if connection.vendor == "sqlite":
        path = connection.settings_dict["NAME"]
        with closing(sqlite3.connect(path, timeout=60.0, isolation_level=None)) as other_connection:
            other_connection.execute("BEGIN IMMEDIATE")
            yield other_connection.execute
        return
    second = connection.copy()
    try:
        with second.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"LOCK TABLE {_TABLES} IN EXCLUSIVE MODE")
            yield cursor.execute
    finally:
        second.close()


@contextmanager
def database_read_only() -> Iterator[None]:
    """Refuse every write of this thread, as a full disk does."""
    if connection.vendor != "sqlite":
        # A server that cannot write refuses the statement; PostgreSQL cannot be told to within a test's transaction.
        with connection.execute_wrapper(_refuse_writes):
            yield
        return
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA query_only = ON")
    try:
        yield
    finally:
        # Not by a cursor of Django's: it refuses everything in a transaction that met the refusal.
        connection.connection.execute("PRAGMA query_only = OFF")


def _refuse_writes(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    if sql.lstrip().upper().startswith(_WRITES):
        raise OperationalError("could not extend file: No space left on device")
    return execute(sql, params, many, context)
