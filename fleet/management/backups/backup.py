"""Writes an archive of the installation while its programs run."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from django.db import DatabaseError, connection

from fleet import __version__
from fleet.management.backups import BackupError, postgresql_database, sqlite_database
from fleet.management.backups.archive import checksum_of, write_archive
from fleet.management.backups.contents import write_secrets, write_settings
from fleet.management.backups.manifest import Manifest
from fleet.management.backups.migration_state import list_applied_migrations
from fleet.transport.tls import TLSFiles

#: Member with a database of SQLite, and folder of the members with the tables of PostgreSQL.
SQLITE_MEMBER = "database/refloat.sqlite3"
TABLE_FOLDER = "database"


@dataclass(frozen=True, slots=True)
class BackupSecrets:
    """The secrets of an archive with secrets."""

    secret_key: str
    #: TLS files of the settings.
    tls: TLSFiles
    #: TLS files of clusters, by name of the member.
    cluster_files: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The database of one moment, in files."""

    files: Mapping[str, Path]
    rows: Mapping[str, int]
    migrations: list[str]
    sequences: Mapping[str, int]
    partition_days: Mapping[str, list[str]]


def write_backup(
    path: Path, settings: Mapping[str, str], backup_secrets: BackupSecrets | None, now: datetime
) -> Manifest:
    """Write an archive to a new file and return its manifest. Raises BackupError; then there is no file at `path`.

    `settings`: without secrets, if `backup_secrets` is None.
    """
    if path.exists():
        raise BackupError(f"{path} exists: use another name with --to")
    try:
        with tempfile.TemporaryDirectory(prefix=".refloat-backup-", dir=path.parent) as folder_name:
            folder = Path(folder_name)
            snapshot = _write_snapshot(folder)
            files = {**write_settings(folder, settings), **snapshot.files}
            if backup_secrets is not None:
                files |= write_secrets(
                    folder, backup_secrets.secret_key, backup_secrets.tls, backup_secrets.cluster_files
                )
            manifest = Manifest(
                version=__version__,
                created_at=now.isoformat(timespec="seconds"),
                database=connection.vendor,
                migrations=snapshot.migrations,
                rows=snapshot.rows,
                checksums={name: checksum_of(file) for name, file in sorted(files.items())},
                has_secrets=backup_secrets is not None,
                sequences=snapshot.sequences,
                partition_days=snapshot.partition_days,
            )
            write_archive(path, folder, manifest, files)
            return manifest
    except OSError as error:
        raise BackupError(
            f"cannot write the archive ({error.filename or path}: {error.strerror}): free space, or use another folder "
            "with --to"
        ) from error
    except (sqlite3.Error, DatabaseError) as error:
        text = " ".join(str(error).split())
        raise BackupError(
            f"cannot copy the database {connection.settings_dict['NAME']} ({text}): run `refloat doctor`"
        ) from error


def _write_snapshot(folder: Path) -> _Snapshot:
    """Copy the database to files in `folder`. Raises BackupError, OSError, sqlite3.Error and DatabaseError."""
    if connection.vendor == "sqlite":
        return _write_sqlite_snapshot(folder)
    if connection.vendor != "postgresql":
        raise BackupError(f"backups of {connection.display_name} are not possible: use SQLite or PostgreSQL")
    with postgresql_database.snapshot():
        migrations = _require_migrations()
        tables = postgresql_database.write_tables(folder)
        return _Snapshot(
            files={f"{TABLE_FOLDER}/{file.name}": file for file in tables.values()},
            rows=postgresql_database.count_rows(),
            migrations=migrations,
            sequences=postgresql_database.read_sequences(),
            partition_days=postgresql_database.read_partition_days(),
        )


def _write_sqlite_snapshot(folder: Path) -> _Snapshot:
    source = Path(str(connection.settings_dict["NAME"]))
    if not source.is_file():
        raise BackupError(f"the database {source} does not exist: set REFLOAT_HOME as for the console")
    copy = folder / "refloat.sqlite3"
    sqlite_database.write_snapshot(copy)
    sqlite_database.check_integrity(copy)
    with sqlite_database.connected_to(copy):
        migrations = _require_migrations()
    sqlite_database.make_single_file(copy)
    return _Snapshot({SQLITE_MEMBER: copy}, sqlite_database.count_rows(copy), migrations, {}, {})


def _require_migrations() -> list[str]:
    migrations = list_applied_migrations()
    if not migrations:
        raise BackupError(
            "the database is not prepared, so there is nothing to back up: run `refloat prepare`"
        )
    return migrations
