"""Migrations of the program and of the database."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import connection

from fleet.management.backups import migration_state
from tests.flow.web import database

_SQUASHED = "fleet.0001_squashed_0040_runbook_texts"


@pytest.mark.django_db
def test_prepared_database_has_all_migrations() -> None:
    """And one that the program does not know, if a newer version wrote it."""
    program_migrations = migration_state.list_known_migrations()
    assert set(migration_state.list_applied_migrations()) == program_migrations
    assert migration_state.list_unapplied_migrations() == []
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('fleet', '9999_future', '2026-01-01')"
        )
        cursor.execute("DELETE FROM django_migrations WHERE app = 'fleet' AND name LIKE '0001%'")
    assert migration_state.list_unknown_migrations() == ["fleet.9999_future"]
    applied = set(migration_state.list_applied_migrations())
    assert applied - program_migrations == {"fleet.9999_future"}
    assert {name[:10] for name in program_migrations - applied} == {"fleet.0001"}


def test_all_migrations_are_applied_with_the_squashed_one(tmp_path: Path) -> None:
    """Which takes a quarter of the time: an archive of the same version has all that it replaces."""
    names = migration_state.list_known_migrations() - {_SQUASHED}
    with database(tmp_path):
        migration_state.migrate_to(names)
        assert {*migration_state.list_applied_migrations()} == names | {_SQUASHED}


def test_exactly_the_migrations_of_an_older_archive_are_applied(tmp_path: Path) -> None:
    """It may end in the middle of what the squashed migration replaces."""
    names = {
        name
        for name in migration_state.list_known_migrations() - {_SQUASHED}
        if not name.startswith("fleet.") or name < "fleet.0004"
    }
    assert "fleet.0003_changes" in names
    with database(tmp_path):
        migration_state.migrate_to(names)
        assert {*migration_state.list_applied_migrations()} == names
