"""Migrations of the connected database and of this program."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader


def open_unsquashed_executor() -> MigrationExecutor:
    """Return an executor that knows every migration and none that replaces several, whatever is applied."""
    executor = MigrationExecutor(connection)
    loader = executor.loader
    loader.replace_migrations = False  # type: ignore[attr-defined] # missing in django-stubs
    loader.build_graph()
    for key, migration in loader.replacements.items():
        loader.graph.remove_replacement_node(key, migration.replaces)
        loader.applied_migrations.pop(key, None)
    return executor


def list_known_migrations() -> frozenset[str]:
    """Return the migrations that this program has, such as `fleet.0001_initial`."""
    return frozenset(f"{app}.{name}" for app, name in MigrationLoader(None).disk_migrations)


def list_applied_migrations() -> list[str]:
    """Return the migrations in the connected database, sorted; those of apps that the program lost, too."""
    executor = MigrationExecutor(connection)
    return sorted(f"{app}.{name}" for app, name in executor.loader.applied_migrations)


def list_unknown_migrations() -> list[str]:
    """Return the migrations in the connected database that only a newer version of the program has, sorted."""
    loader = MigrationExecutor(connection).loader
    return sorted(
        f"{app}.{name}"
        for app, name in loader.applied_migrations
        if app in loader.migrated_apps and (app, name) not in loader.disk_migrations
    )


def list_unapplied_migrations() -> list[str]:
    """Return the migrations of this program that the connected database lacks, in order; those of a gap, too."""
    executor = MigrationExecutor(connection)
    # Of the whole graph: a plan for the database itself would end at the newest migration that it has.
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes(), clean_start=True)
    applied_keys = executor.loader.applied_migrations.keys()
    return [
        f"{migration.app_label}.{migration.name}"
        for migration, _is_backwards in plan
        if (migration.app_label, migration.name) not in applied_keys
    ]


def migrate_to(migrations: Iterable[str]) -> None:
    """Apply exactly these migrations to an empty connected database. Raises DatabaseError."""
    names = frozenset(migrations)
    executor = MigrationExecutor(connection)
    for key, migration in executor.loader.replacements.items():
        replaced_names = {".".join(replaced_key) for replaced_key in migration.replaces}
        if replaced_names <= names:
            names |= {".".join(key)}
        else:
            # An archive may end in the middle of what one migration replaces.
            executor = open_unsquashed_executor()
            break
    keys = {key for key in executor.loader.graph.nodes if ".".join(key) in names}
    # The newest ones of each app; Django applies those that they depend on.
    targets = [
        key
        for key in sorted(keys)
        if not any(
            child.key in keys and child.key[0] == key[0]
            for child in executor.loader.graph.node_map[key].children
        )
    ]
    executor.migrate(targets)
