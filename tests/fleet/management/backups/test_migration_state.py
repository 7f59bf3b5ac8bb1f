"""Migrations of the program and of the database."""

from __future__ import annotations

import pytest
from django.db import connection

from fleet.management.backups import migration_state


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
