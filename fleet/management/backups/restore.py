"""Restores an archive: beside the present state, with proofs, and swapped in only afterwards."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from django.core.management import call_command
from django.db import DatabaseError, connection

from fleet import lease
from fleet.management.backups import BackupError, file_swap, postgresql_database, sqlite_database
from fleet.management.backups.archive import extract_archive
from fleet.management.backups.backup import SQLITE_MEMBER, TABLE_FOLDER
from fleet.management.backups.contents import KEY_MEMBER, SETTINGS_MEMBER, list_different_settings
from fleet.management.backups.home_lock import HomeInUseError, lock_home
from fleet.management.backups.manifest import Manifest, check_compatibility, describe_row_differences
from fleet.management.backups.migration_state import (
    list_known_migrations,
    list_unapplied_migrations,
    migrate_to,
)
from fleet.models.clusters import ClusterLease
from fleet.processes import valkey
from fleet.vocabulary.name_lists import join_names

_UNCHANGED = "the installation is unchanged"


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """The installation that an archive is restored into."""

    home: Path
    environment: Mapping[str, str]
    #: The secret key is in REFLOAT_HOME; otherwise a setting has it.
    has_key_file: bool


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What was restored."""

    manifest: Manifest
    #: Migrations that were applied because the archive is of an older version.
    applied_migrations: list[str]
    #: Folder, or schema of PostgreSQL, with the previous database and key; empty if there were none.
    kept_at: str
    #: Settings of the archive that are not the same in the environment.
    different_settings: list[str]
    is_key_restored: bool
    #: Folder with the TLS files of the archive; None if it has none.
    tls_folder: Path | None


def restore_backup(path: Path, target: RestoreTarget, now: datetime, *, force: bool) -> RestoreReport:
    """Restore an archive into the installation of the settings.

    1. Refuse if the console runs, or if there is a database and not `force`.
    2. Extract the archive beside the present state, and compare all checksums.
    3. Restore the database beside the present one, compare the rows of each table, check its integrity, and migrate it.
    4. Move the present database and key away, and the restored ones to their place.

    Raises BackupError if any step fails; then the installation is as before.
    """
    try:
        with lock_home(target.home, is_exclusive=True):
            _require_stopped_console(target.home, now)
            if _has_database() and not force:
                raise BackupError(
                    f"there is a database already ({connection.settings_dict['NAME']}): add --force to replace it; the "
                    "present database is kept beside it"
                )
            with tempfile.TemporaryDirectory(prefix=".refloat-restore-", dir=_work_parent(target)) as folder:
                return _restore_from(path, Path(folder), target, now)
    except HomeInUseError as error:
        raise BackupError(f"a console runs with REFLOAT_HOME={target.home}: stop it first") from error
    except OSError as error:
        raise BackupError(
            f"cannot restore {path} ({error.filename or target.home}: {error.strerror}); {_UNCHANGED}: free space, or "
            "correct the access rights"
        ) from error
    except (sqlite3.Error, DatabaseError) as error:
        text = " ".join(str(error).split())
        raise BackupError(
            f"cannot restore {path} into the database ({text}); {_UNCHANGED}: free space, correct the access "
            "rights, or use another archive"
        ) from error


def _restore_from(path: Path, folder: Path, target: RestoreTarget, now: datetime) -> RestoreReport:
    manifest = extract_archive(path, folder)
    check_compatibility(manifest, connection.vendor, list_known_migrations())
    key_path = folder / KEY_MEMBER
    new_key = key_path.read_text() if target.has_key_file and key_path.exists() else None
    different_settings = list_different_settings(folder / SETTINGS_MEMBER, target.environment)
    tls_folder = file_swap.copy_folder(folder / "tls", target.home, f"tls-restored-{_name_of(now)}")
    kept_name = f"before-restore-{_name_of(now)}"
    with contextlib.ExitStack() as rollback:
        if tls_folder is not None:
            rollback.callback(file_swap.remove_folder, tls_folder)
        if connection.vendor == "sqlite":
            applied, kept_at = _restore_sqlite(folder, manifest, new_key, kept_name, target)
        else:
            applied, kept_at = _restore_postgresql(folder, manifest, new_key, kept_name, target)
        rollback.pop_all()
    return RestoreReport(manifest, applied, kept_at, different_settings, new_key is not None, tls_folder)


def _restore_sqlite(
    folder: Path, manifest: Manifest, new_key: str | None, kept_name: str, target: RestoreTarget
) -> tuple[list[str], str]:
    restored = folder / SQLITE_MEMBER
    if not restored.exists():
        raise BackupError(f"the archive lacks {SQLITE_MEMBER}: use another archive")
    sqlite_database.check_integrity(restored)
    _compare_rows(manifest, sqlite_database.count_rows(restored))
    with sqlite_database.connected_to(restored):
        applied = _migrate_to_head()
    sqlite_database.make_single_file(restored)
    sqlite_database.check_integrity(restored)
    database = Path(str(connection.settings_dict["NAME"]))
    connection.close()
    key_file = target.home / KEY_MEMBER if new_key is not None else None
    with file_swap.kept_files(database.parent / kept_name, key_file) as kept_folder:
        if key_file is not None and new_key is not None:
            file_swap.write_key(key_file, new_key)
        file_swap.replace_database(restored, database, kept_folder)
    return applied, str(kept_folder) if kept_folder.exists() else ""


def _restore_postgresql(
    folder: Path, manifest: Manifest, new_key: str | None, kept_name: str, target: RestoreTarget
) -> tuple[list[str], str]:
    tables = [
        name.removeprefix(f"{TABLE_FOLDER}/").removesuffix(".csv")
        for name in manifest.checksums
        if name.startswith(f"{TABLE_FOLDER}/")
    ]
    kept_schema = kept_name.replace("-", "_").lower()
    had_tables = _has_database()
    with postgresql_database.new_schema() as schema:
        migrate_to(manifest.migrations)
        postgresql_database.load_tables(
            folder / TABLE_FOLDER, tables, manifest.partition_days, manifest.sequences
        )
        _compare_rows(manifest, postgresql_database.count_rows())
        applied = _migrate_to_head()
        key_file = target.home / KEY_MEMBER if new_key is not None else None
        with file_swap.kept_files(target.home / kept_name, key_file):
            if key_file is not None and new_key is not None:
                file_swap.write_key(key_file, new_key)
            with postgresql_database.original_schema(schema):
                postgresql_database.swap_schemas(schema, kept_schema)
    return applied, f"schema {kept_schema}" if had_tables else ""


def _migrate_to_head() -> list[str]:
    """Apply the migrations that the restored database lacks, and return their names."""
    unapplied = list_unapplied_migrations()
    call_command("migrate", verbosity=0, interactive=False)
    remaining = list_unapplied_migrations()
    if remaining:
        raise BackupError(
            f"the archive cannot be migrated to this version: {join_names(remaining)} is missing"
        )
    return unapplied


def _compare_rows(manifest: Manifest, restored: Mapping[str, int]) -> None:
    differences = describe_row_differences(manifest.rows, restored)
    if differences:
        raise BackupError(f"the archive is damaged: {differences}; use another archive")


def _require_stopped_console(home: Path, now: datetime) -> None:
    if valkey.running_url(home / "valkey") is not None:
        raise BackupError(f"a console runs with REFLOAT_HOME={home}: stop it first")
    holder = _read_alerting_holder(now) if _has_database() else None
    if holder is not None:
        raise BackupError(
            f"the alerting process {holder} uses this database: stop all programs of the console, and wait "
            f"{lease.LEASE_TTL_BY_PURPOSE[lease.ALERTS].total_seconds():.0f} s"
        )


def _read_alerting_holder(now: datetime) -> str | None:
    """Return the process that evaluates the alert rules of this database; None if none does, or it cannot be read."""
    with contextlib.suppress(DatabaseError):  # a damaged or older database is what a restore replaces
        return (
            ClusterLease.objects.filter(purpose=lease.ALERTS, expires_at__gt=now)
            .exclude(holder="")
            .values_list("holder", flat=True)
            .first()
        )
    return None


def _has_database() -> bool:
    if connection.vendor == "sqlite":
        database = Path(str(connection.settings_dict["NAME"]))
        return database.exists() and database.stat().st_size > 0
    return bool(postgresql_database.list_tables())


def _work_parent(target: RestoreTarget) -> Path:
    """Return the folder for temporary files: on the file system of what they replace."""
    if connection.vendor == "sqlite":
        return Path(str(connection.settings_dict["NAME"])).parent
    return target.home


def _name_of(now: datetime) -> str:
    return f"{now:%Y%m%dT%H%M%SZ}"
