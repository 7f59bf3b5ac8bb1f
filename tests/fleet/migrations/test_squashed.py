"""`fleet/migrations/0001_squashed_0040_runbook_texts.py` creates what the migrations that it replaces create."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, models
from django.db.migrations import CreateModel
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ProjectState

from fleet.migrations._table_creation import CreateTables
from tests.fleet.migrations.rows import Apps, newest_migration
from tests.fleet.migrations.steps import MigrationRunner

pytestmark = pytest.mark.django_db(transaction=True)

_TRIGGERS = {
    "sqlite": "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'",
    "postgresql": "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
}
#: Tables whose columns have an order that saves time or space.
_ORDERED = frozenset({"fleet_agentchange", "fleet_keyframe", "fleet_fleetminute"})
#: Tables of PostgreSQL that have partitions.
_PARTITIONED = "SELECT relname FROM pg_class WHERE relkind = 'p'"


def test_squashed_migration_creates_the_same_tables(
    migrate: Callable[[str], Apps], runner: MigrationRunner
) -> None:
    """The same columns, constraints, indexes and triggers; in the same order where the order is for speed or size."""
    squashed = _describe_schema()
    runner.migrate(None)
    assert _describe_schema()["tables"] == {}
    migrate(newest_migration())

    assert _describe_schema() == squashed
    assert "fleet_agentchange" in squashed["tables"]
    assert squashed["triggers"]


def test_new_database_has_the_replaced_migrations_too() -> None:
    """So that a later version may drop either of both, and an archive can be restored by an earlier program."""
    applied = {name for app, name in MigrationRecorder(connection).applied_migrations() if app == "fleet"}

    assert {"0001_squashed_0040_runbook_texts", "0001_access_and_tokens", "0040_runbook_texts"} <= applied


def test_tables_are_created_together_and_deleted() -> None:
    """A table may refer to one that comes later. Models that were rendered before are rendered with the new ones."""
    operation = CreateTables(
        [
            CreateModel(
                "First",
                [("id", models.AutoField(primary_key=True)), ("second", models.ForeignKey("Second", models.CASCADE))],
            ),
            CreateModel("Second", [("id", models.AutoField(primary_key=True))]),
        ]
    )
    before = ProjectState()
    assert not before.apps.is_installed("trial")
    after = before.clone()
    operation.state_forwards("trial", after)
    assert operation.describe() == "Create 2 tables"

    with connection.schema_editor() as editor:
        operation.database_forwards("trial", editor, before, after)
    assert {"trial_first", "trial_second"} <= {*connection.introspection.table_names()}

    with connection.schema_editor() as editor:
        operation.database_backwards("trial", editor, after, before)
    assert not {"trial_first", "trial_second"} & {*connection.introspection.table_names()}


def _describe_schema() -> dict[str, Any]:
    with connection.cursor() as cursor:
        tables = {
            table: _describe_table(cursor, table)
            for table in connection.introspection.table_names(cursor)
            if table.startswith("fleet_")
        }
        cursor.execute(_TRIGGERS[connection.vendor])
        triggers = sorted(cursor.fetchall())
        partitioned = []
        if connection.vendor == "postgresql":
            cursor.execute(_PARTITIONED)
            partitioned = sorted(cursor.fetchall())
    return {"tables": tables, "triggers": triggers, "partitioned": partitioned}


def _describe_table(cursor: Any, table: str) -> dict[str, Any]:
    columns = [
        (
            column.name,
            connection.introspection.get_field_type(column.type_code, column),
            column.display_size,
            column.null_ok,
            column.default,
            column.collation,
        )
        for column in connection.introspection.get_table_description(cursor, table)
    ]
    constraints = [
        repr(
            sorted(
                (key, value)
                for key, value in {**constraint, "name": _declared_name(name)}.items()
                if key not in {"definition", "options"}
            )
        )
        for name, constraint in connection.introspection.get_constraints(cursor, table).items()
    ]
    return {
        "columns": columns if table in _ORDERED else sorted(columns, key=str),
        "constraints": sorted(constraints),
    }


def _declared_name(name: str) -> str:
    """Return the name of a constraint, without those that Django and the databases make up: they keep older names."""
    return "" if name.startswith(("fk_", "fleet_", "__", "sqlite_")) else name
