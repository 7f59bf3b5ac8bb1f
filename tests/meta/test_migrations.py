"""Migrations after the baseline run while the previous version serves: they only add (docs/reference/versions.md)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

from tests.meta.migration_rules import BASELINE, describe_unsafe_operations, has_same_column

#: Migrations after the baseline with an operation that the rule refuses, each with the reason why it is safe.
_EXEMPT: Mapping[str, str] = {}


def _migrations_after_baseline() -> dict[str, migrations.Migration]:
    loader = MigrationLoader(None)
    return {
        name: migration
        for (app, name), migration in sorted(loader.disk_migrations.items())
        if app == "fleet" and name > BASELINE
    }


def test_baseline_exists() -> None:
    """And exemptions name migrations after it."""
    assert ("fleet", BASELINE) in MigrationLoader(None).disk_migrations
    assert set(_EXEMPT) <= set(_migrations_after_baseline())
    assert all(_EXEMPT.values())


def test_migrations_run_while_the_previous_version_serves() -> None:
    """A new migration that removes, renames or requires something fails here, by name."""
    loader = MigrationLoader(None)
    problems: list[str] = []
    for name, migration in _migrations_after_baseline().items():
        if name in _EXEMPT:
            continue
        before = loader.project_state(("fleet", name), at_end=False)
        operations = [
            operation for operation in migration.operations if not _is_of_code_only(operation, before)
        ]
        problems += [f"{name}: {text}" for text in describe_unsafe_operations(operations)]

    assert problems == []


def _is_of_code_only(operation: Operation, before: object) -> bool:
    """Return whether an operation changes a field without its column, such as its choices."""
    if not isinstance(operation, migrations.AlterField):
        return False
    state = before.models["fleet", operation.model_name_lower]  # type: ignore[attr-defined]
    return has_same_column(state.fields[operation.name], operation.field)


_TEXT = {"max_length": 8}


@pytest.mark.parametrize(
    "operation",
    [
        migrations.CreateModel("Thing", [("id", models.BigAutoField(primary_key=True))]),
        migrations.AddField("agent", "note", models.CharField(null=True, **_TEXT)),
        migrations.AddField("agent", "note", models.CharField(db_default="", **_TEXT)),
        migrations.AddField("agent", "things", models.ManyToManyField("fleet.Cluster")),
        migrations.AddIndex("agent", models.Index(fields=["name"], name="by_name")),
        migrations.SeparateDatabaseAndState(state_operations=[migrations.RemoveField("agent", "name")]),
    ],
)
def test_operations_that_add(operation: Operation) -> None:
    """The previous version does not notice them."""
    assert list(describe_unsafe_operations([operation])) == []


@pytest.mark.parametrize(
    "operation",
    [
        # Django keeps no default in the database: an INSERT of the previous version would fail.
        migrations.AddField("agent", "note", models.CharField(default="", **_TEXT)),
        migrations.RemoveField("agent", "name"),
        migrations.RenameField("agent", "name", "title"),
        migrations.AlterField("agent", "name", models.CharField(**_TEXT)),
        migrations.RenameModel("Agent", "Thing"),
        migrations.DeleteModel("Agent"),
        migrations.AddConstraint("agent", models.UniqueConstraint(fields=["name"], name="one_name")),
        migrations.RunSQL("DELETE FROM fleet_agent"),
        migrations.RunPython(lambda apps, editor: None),
        migrations.SeparateDatabaseAndState([migrations.RemoveField("agent", "name")]),
    ],
)
def test_operations_that_may_break_the_previous_version(operation: Operation) -> None:
    """Each is one problem, named after the operation."""
    (problem,) = describe_unsafe_operations([operation])
    assert ": " in problem


def test_columns_of_fields() -> None:
    """Choices are in the code; the length is in the column."""
    old = models.CharField(choices=[("a", "a")], **_TEXT)
    assert has_same_column(old, models.CharField(choices=[("b", "b")], default="b", **_TEXT))
    assert not has_same_column(old, models.CharField(max_length=9, choices=[("a", "a")]))
    assert not has_same_column(old, models.TextField())
    assert not has_same_column(old, models.CharField(null=True, **_TEXT))
