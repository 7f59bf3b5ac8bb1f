"""Rows of an earlier schema, for tests of migrations."""

from __future__ import annotations

from typing import Any

from fleet.management.backups.migration_state import open_unsquashed_executor

#: The models of one migration.
Apps = Any


def newest_migration() -> str:
    """Return the name of the newest migration of the app."""
    ((_, name),) = open_unsquashed_executor().loader.graph.leaf_nodes("fleet")
    return name


def create_row(apps: Apps, model: str, **columns: Any) -> Any:
    """Write a row with the columns that the model had at that time."""
    return apps.get_model("fleet", model).objects.create(**columns)
