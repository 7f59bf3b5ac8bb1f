"""A database of SQLite: a consistent copy while the console writes, checks of a copy, and the swap of its file."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from django.db import connection

from fleet.management.backups import BackupError

#: Tables whose rows are not in an archive: the key of a session is all that its cookie has.
_EMPTIED_TABLES = ("django_session",)
_SIDE_FILE_SUFFIXES = ("-wal", "-shm", "-journal")


def write_snapshot(target: Path) -> None:
    """Copy the connected database to a new private file, without sessions.

    SQLite copies it in one read transaction: writers go on, and the copy has all of a transaction or nothing.
    Raises sqlite3.Error, OSError and DatabaseError.
    """
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    connection.ensure_connection()
    with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as copy:
        connection.connection.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")
        existing_tables = {
            name for (name,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        for table in _EMPTIED_TABLES:
            if table in existing_tables:
                copy.execute(f'DELETE FROM "{table}"')  # noqa: S608 - a constant
        # Deleted rows stay in free pages otherwise.
        copy.execute("VACUUM")


def count_rows(path: Path) -> dict[str, int]:
    """Return the rows by table of a file. Raises sqlite3.Error."""
    with _open_read_only(path) as copy:
        names = sorted(
            name
            for (name,) in copy.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
            )
        )
        return {name: copy.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}  # noqa: S608


def check_integrity(path: Path) -> None:
    """Raise BackupError if SQLite finds damage, or a row that refers to a missing row. Raises sqlite3.Error."""
    with _open_read_only(path) as copy:
        (verdict,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise BackupError(
                f"the database is damaged: {' '.join(str(verdict).split())}; restore an older archive"
            )
        broken = copy.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            raise BackupError(
                f"the database is damaged: row {broken[1]} of {broken[0]} refers to a missing row of {broken[2]}; "
                "restore an older archive"
            )


@contextlib.contextmanager
def connected_to(path: Path) -> Iterator[None]:
    """Let Django use another file as its database within the block."""
    original_name = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = str(path)
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = original_name


def make_single_file(path: Path) -> None:
    """Move everything from the log of a file that no program uses into the file itself. Raises sqlite3.Error."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=DELETE")


def list_side_files(path: Path) -> list[Path]:
    """Return the files that SQLite keeps beside a database, if they exist."""
    side_paths = (path.with_name(path.name + suffix) for suffix in _SIDE_FILE_SUFFIXES)
    return [side_path for side_path in side_paths if side_path.exists()]


@contextlib.contextmanager
def _open_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        yield database
