"""A database of PostgreSQL: copies of its tables from one snapshot, a schema to restore them into, and the swap.

Tables are copied by COPY, not by pg_dump: docs/decisions/0009-backups-by-copy.md.
"""

from __future__ import annotations

import contextlib
import csv
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from django.apps import apps
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from fleet.management.backups import BackupError
from fleet.models.history import AGENT_CHANGE_TABLE
from fleet.models.partitions import ensure_partitions, list_partition_days

#: Tables whose rows are not in an archive: the key of a session is all that its cookie has.
_EMPTIED_TABLES = frozenset({"django_session"})
_CHUNK_BYTES = 256 * 1024
#: Longest wait for a table that another program uses, milliseconds.
_LOCK_TIMEOUT_MS = 5000
#: Relations of a schema that belong to Refloat, without those of extensions; `r`: tables, `p`: partitioned tables.
_RELATIONS = (
    "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(quote_ident(%s)) AND relkind = ANY(%s)"
    " AND (relispartition = ANY(%s)) AND relname ~ %s AND NOT EXISTS"
    " (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype = 'e') ORDER BY relname"
)
_FUNCTIONS = (
    "SELECT proname, pg_get_function_identity_arguments(oid) FROM pg_proc"
    " WHERE pronamespace = to_regnamespace(quote_ident(%s)) AND proname LIKE 'fleet\\_%%' ORDER BY proname"
)


def list_tables() -> list[str]:
    """Return the tables of Refloat in the current schema, partitioned ones without their partitions."""
    with connection.cursor() as cursor:
        return _list_relations(cursor, _current_schema(cursor), with_partitions=False)


@contextlib.contextmanager
def snapshot() -> Iterator[None]:
    """Let all statements of the block see the database of one moment. Writers go on."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


def write_tables(folder: Path) -> dict[str, Path]:
    """Write each table to a private file of CSV with a header, and return the files by table. Run it in `snapshot`."""
    paths: dict[str, Path] = {}
    for table in list_tables():
        if table in _EMPTIED_TABLES:
            continue
        paths[table] = folder / f"{table}.csv"
        descriptor = os.open(paths[table], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file, connection.cursor() as cursor:
            statement = f'COPY (SELECT * FROM "{table}") TO STDOUT (FORMAT csv, HEADER)'  # noqa: S608 - from the catalog
            with cursor.copy(statement) as rows:
                for chunk in rows:
                    file.write(chunk)
    return paths


def count_rows() -> dict[str, int]:
    """Return the rows by table; 0 for those whose rows are not in an archive."""
    counts: dict[str, int] = {}
    for table in list_tables():
        with connection.cursor() as cursor:
            cursor.execute(f'SELECT count(*) FROM "{table}"')  # noqa: S608 - from the catalog
            counts[table] = 0 if table in _EMPTIED_TABLES else cursor.fetchone()[0]
    return counts


def read_sequences() -> dict[str, int]:
    """Return the last value of each identity column that was used, as `table.column`."""
    values: dict[str, int] = {}
    with connection.cursor() as cursor:
        for table, column, sequence in _list_sequences(cursor):
            cursor.execute(f"SELECT last_value, is_called FROM {sequence}")  # noqa: S608 - quoted by PostgreSQL
            last_value, is_called = cursor.fetchone()
            if is_called:
                values[f"{table}.{column}"] = last_value
    return values


def read_partition_days() -> dict[str, list[str]]:
    """Return the days with a partition by partitioned table; empty if the table does not exist yet."""
    if AGENT_CHANGE_TABLE not in list_tables():
        return {}
    return {AGENT_CHANGE_TABLE: [day.isoformat() for day in list_partition_days(AGENT_CHANGE_TABLE)]}


@contextlib.contextmanager
def new_schema() -> Iterator[str]:
    """Create a schema that the connection uses within the block; remove it with everything that is still in it."""
    name = f"refloat_restore_{secrets.token_hex(6)}"
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE SCHEMA "{name}"')
    options = connection.settings_dict.setdefault("OPTIONS", {})
    original_options = dict(options)
    options["options"] = f"{options.get('options', '')} -c search_path={name}".strip()
    connection.close()
    try:
        yield name
    finally:
        connection.close()
        options.clear()
        options.update(original_options)
        with connection.cursor() as cursor:
            cursor.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


@contextlib.contextmanager
def original_schema(restored_schema: str) -> Iterator[None]:
    """Let the connection use its original schema within a block of `new_schema`."""
    options = connection.settings_dict["OPTIONS"]
    restore_options = options["options"]
    options["options"] = restore_options.removesuffix(f"-c search_path={restored_schema}").strip()
    connection.close()
    try:
        yield
    finally:
        connection.close()
        options["options"] = restore_options


def load_tables(
    folder: Path,
    tables: Sequence[str],
    partition_days: Mapping[str, Sequence[str]],
    sequences: Mapping[str, int],
) -> None:
    """Replace all rows of the current schema by those of the files, in one transaction. Raises BackupError."""
    missing_tables = sorted(set(tables) - set(list_tables()))
    if missing_tables:
        raise BackupError(
            f"the archive has the table {missing_tables[0]}, which its migrations do not create: use another archive"
        )
    for table, days in partition_days.items():
        ensure_partitions(table, [date.fromisoformat(day) for day in days])
    with transaction.atomic(), connection.cursor() as cursor:
        names = ", ".join(f'"{table}"' for table in list_tables())
        cursor.execute(f"TRUNCATE {names}")
        for table in tables:
            _load_table(cursor, table, folder / f"{table}.csv")
        for table, column, sequence in _list_sequences(cursor):
            last_value = sequences.get(f"{table}.{column}")
            cursor.execute(
                "SELECT setval(%s::regclass, %s, %s)", [sequence, last_value or 1, last_value is not None]
            )


def swap_schemas(restored_schema: str, kept_schema: str) -> None:
    """Move the tables of the current schema to a new schema, and the restored ones here, in one transaction.

    If the current schema has no tables, no schema is created. Raises DatabaseError, which leaves both unchanged.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [str(_LOCK_TIMEOUT_MS)])
        schema = _current_schema(cursor)
        if _list_relations(cursor, schema, with_partitions=True):
            cursor.execute(f'CREATE SCHEMA "{kept_schema}"')
            _move(cursor, schema, kept_schema)
        _move(cursor, restored_schema, schema)


def _move(cursor: CursorWrapper, source: str, target: str) -> None:
    for name in _list_relations(cursor, source, with_partitions=True):
        cursor.execute(f'ALTER TABLE "{source}"."{name}" SET SCHEMA "{target}"')
    cursor.execute(_FUNCTIONS, [source])
    for name, arguments in cursor.fetchall():
        cursor.execute(f'ALTER FUNCTION "{source}"."{name}"({arguments}) SET SCHEMA "{target}"')


def _load_table(cursor: CursorWrapper, table: str, path: Path) -> None:
    with path.open("rb") as file:
        columns = ", ".join(f'"{name}"' for name in next(csv.reader([file.readline().decode()])))
        file.seek(0)
        with cursor.copy(f'COPY "{table}" ({columns}) FROM STDIN (FORMAT csv, HEADER)') as rows:
            while chunk := file.read(_CHUNK_BYTES):
                rows.write(chunk)


def _list_relations(cursor: CursorWrapper, schema: str, *, with_partitions: bool) -> list[str]:
    cursor.execute(
        _RELATIONS, [schema, ["r", "p"], [False, True] if with_partitions else [False], _table_pattern()]
    )
    return [name for (name,) in cursor.fetchall()]


def _list_sequences(cursor: CursorWrapper) -> list[tuple[str, str, str]]:
    """Return table, column and quoted name of the sequence of each identity column."""
    cursor.execute(
        "SELECT relname, attname, pg_get_serial_sequence(quote_ident(relname), attname) FROM pg_attribute"
        " JOIN pg_class ON pg_class.oid = attrelid WHERE relname = ANY(%s) AND attidentity <> ''"
        " AND relnamespace = to_regnamespace(quote_ident(current_schema())) ORDER BY relname, attname",
        [list_tables()],
    )
    rows: list[Any] = cursor.fetchall()
    return [(table, column, sequence) for table, column, sequence in rows if sequence]


def _current_schema(cursor: CursorWrapper) -> str:
    cursor.execute("SELECT current_schema()")
    row = cursor.fetchone()
    if row is None or row[0] is None:
        raise BackupError("the user of the database has no schema: correct the search_path of this user")
    return str(row[0])


def _table_pattern() -> str:
    """Return the pattern of the names of Refloat's tables: the database may have others."""
    prefixes = {"django", *(configuration.label for configuration in apps.get_app_configs())}
    return f"^({'|'.join(sorted(re.escape(prefix) for prefix in prefixes))})_"
