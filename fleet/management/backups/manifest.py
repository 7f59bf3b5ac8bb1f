"""The manifest of an archive: what the archive has, and whether this program can restore it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fleet.management.backups import BackupError
from fleet.vocabulary.name_lists import join_names

#: Format of the archives that this program writes. It reads this format and older ones.
FORMAT = 1
#: Migrations that a message names.
_NAMED_MIGRATIONS = 3
_MEMBER_NAME = re.compile(r"[\w-]+(?:[./][\w-]+)*")
_VERSION_REMEDY = "install that version of Refloat, and restore the archive with it"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an archive has. Tables and migrations are named as in the database."""

    #: Version of Refloat that wrote the archive.
    version: str
    #: When the snapshot of the database was taken: ISO 8601, UTC.
    created_at: str
    #: `sqlite` or `postgresql`.
    database: str
    #: Applied migrations, such as `fleet.0001_initial`, sorted.
    migrations: Sequence[str]
    #: Rows by table.
    rows: Mapping[str, int]
    #: SHA-256 by member of the archive.
    checksums: Mapping[str, str]
    #: The archive has the secret key, the keys of certificates and the values of secret settings.
    has_secrets: bool
    #: PostgreSQL: last value by identity column, as `table.column`.
    sequences: Mapping[str, int] = field(default_factory=dict)
    #: PostgreSQL: days (ISO 8601) with a partition, by partitioned table.
    partition_days: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def to_text(self) -> str:
        """Return the manifest as JSON."""
        return f"{json.dumps({'format': FORMAT, **asdict(self)}, indent=1)}\n"


def parse_manifest(text: str) -> Manifest:
    """Return the manifest of an archive. Raises BackupError if it is invalid or of a newer format."""
    try:
        document: Any = json.loads(text)
        archive_format = int(document.pop("format"))
        version = str(document["version"])
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        raise BackupError("the manifest of the archive cannot be read: use another archive") from None
    if archive_format > FORMAT:
        raise BackupError(
            f"the archive was written by Refloat {version} in format {archive_format}, and this program reads formats "
            f"up to {FORMAT}: {_VERSION_REMEDY}"
        )
    try:
        manifest = Manifest(**document)
        is_valid = (
            all(isinstance(name, str) for name in manifest.migrations)
            and all(isinstance(count, int) for count in manifest.rows.values())
            and all(isinstance(checksum, str) for checksum in manifest.checksums.values())
        )
    except (TypeError, AttributeError):
        is_valid = False
    if not is_valid:
        raise BackupError("the manifest of the archive is invalid: use another archive")
    for name in manifest.checksums:
        # Members are written to files of these names: no absolute path, and nothing outside of the folder.
        if not _MEMBER_NAME.fullmatch(name):
            raise BackupError(f"the archive has a member with the invalid name {name!r}: use another archive")
    return manifest


def check_compatibility(manifest: Manifest, database: str, known_migrations: Collection[str]) -> None:
    """Raise BackupError unless this program can restore the archive into a database of this kind."""
    if manifest.database != database:
        raise BackupError(
            f"the archive has a database of {manifest.database}, and DATABASE_URL names one of {database}: set "
            f"DATABASE_URL to a database of {manifest.database}"
            f"{', or unset it' if manifest.database == 'sqlite' else ''}"
        )
    unknown_migrations = sorted(set(manifest.migrations) - set(known_migrations))
    if unknown_migrations:
        first_migrations = unknown_migrations[:_NAMED_MIGRATIONS]
        further_count = len(unknown_migrations) - len(first_migrations)
        names = join_names(
            [*first_migrations, f"{further_count} more"] if further_count else first_migrations
        )
        raise BackupError(
            f"the archive was written by Refloat {manifest.version}, which is newer than this program: this program "
            f"does not have {names}; {_VERSION_REMEDY}"
        )


def describe_row_differences(expected: Mapping[str, int], restored: Mapping[str, int]) -> str:
    """Return which tables have other numbers of rows than the manifest; empty if there are none."""
    return "; ".join(
        f"{table} has {restored.get(table, 0)} rows instead of {expected.get(table, 0)}"
        for table in sorted({*expected, *restored})
        if expected.get(table, 0) != restored.get(table, 0)
    )
