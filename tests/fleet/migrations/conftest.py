"""Migrations to and fro."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

import pytest
from django.db import connection

from fleet.management.backups.migration_state import open_unsquashed_executor
from tests.fleet.migrations.rows import Apps, newest_migration

_TRIGGERS = import_module("fleet.migrations.0003_changes")


@pytest.fixture
def migrate() -> Iterator[Callable[[str], Apps]]:
    """Migrate to a migration and return the models of that time; the newest one when the test ends."""

    def to(name: str) -> Apps:
        executor = open_unsquashed_executor()
        executor.migrate([("fleet", name)])
        return executor.loader.project_state([("fleet", name)]).apps

    yield to
    to(newest_migration())
    # What the tests wrote into the audit log goes only this way.
    with connection.schema_editor() as editor:
        _TRIGGERS.unguard(None, editor)
        editor.execute("DELETE FROM fleet_auditentry")
        _TRIGGERS.guard(None, editor)
