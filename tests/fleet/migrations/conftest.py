"""Migrations to and fro, with models that are rendered once and copies of the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from importlib import import_module

import pytest
from django.db import connection

from tests.fleet.migrations.rows import Apps, newest_migration
from tests.fleet.migrations.steps import MigrationRunner

_TRIGGERS = import_module("fleet.migrations.0003_changes")
#: Copies of SQLite databases without rows of tests, by migration.
Copies = dict[str, sqlite3.Connection]


@pytest.fixture(scope="package")
def runner() -> MigrationRunner:
    """What runs the migrations of all these tests: it renders each model once."""
    return MigrationRunner()


@pytest.fixture(scope="package")
def copies() -> Iterator[Copies]:
    """Copies of the database at migrations with which a test began."""
    databases: Copies = {}
    yield databases
    for database in databases.values():
        database.close()


@pytest.fixture
def migrate(runner: MigrationRunner, copies: Copies) -> Iterator[Callable[[str], Apps]]:
    """Migrate to a migration and return the models of that time; everything is as before when the test ends.

    The first call of a test comes before its rows, so on SQLite it may use a copy of an earlier test.
    """
    start = _copy_database()
    is_empty = True

    def to(name: str) -> Apps:
        nonlocal is_empty
        if is_empty and name in copies:
            _restore_database(copies[name])
        else:
            runner.migrate(name)
            if is_empty and (copy := _copy_database()):
                copies[name] = copy
        is_empty = False
        return runner.models_at(name)

    yield to
    if start:
        _restore_database(start)
        start.close()
    else:
        runner.migrate(newest_migration())
        # What the tests wrote into the audit log goes only this way.
        with connection.schema_editor() as editor:
            _TRIGGERS.unguard(None, editor)
            editor.execute("DELETE FROM fleet_auditentry")
            _TRIGGERS.guard(None, editor)


def _copy_database() -> sqlite3.Connection | None:
    """Copy the connected database, if it is SQLite."""
    if connection.vendor != "sqlite":
        return None
    connection.ensure_connection()
    copy = sqlite3.connect(":memory:")
    connection.connection.backup(copy)
    return copy


def _restore_database(copy: sqlite3.Connection) -> None:
    connection.ensure_connection()
    copy.backup(connection.connection)
