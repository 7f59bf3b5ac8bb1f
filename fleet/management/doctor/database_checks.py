"""Checks of the database: connection, version, integrity and migrations. They change nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from django.db import (
    DEFAULT_DB_ALIAS,
    DatabaseError,
    NotSupportedError,
    OperationalError,
    connection,
    connections,
)

from fleet.management.backups.migration_state import (
    list_applied_migrations,
    list_unapplied_migrations,
    list_unknown_migrations,
)
from fleet.management.database_errors import describe_database_error
from fleet.management.doctor import CHECK_TIMEOUT_SECONDS
from fleet.management.doctor.findings import CheckFinding, error, format_count, ok, skip
from fleet.vocabulary.name_lists import join_names

#: Virtual machine instructions of SQLite between two looks at the clock.
_SQLITE_PROGRESS_STEPS = 10_000
#: Migrations that a finding names.
_NAMED_MIGRATIONS = 3
_PREPARE_REMEDY = "Stop the console, and run `refloat prepare`."


@dataclass(frozen=True, slots=True)
class MigrationFacts:
    """Names of migrations, such as `fleet.0001_initial`, in order."""

    applied_count: int
    unapplied: Sequence[str]
    #: Applied migrations that this version of the program does not have.
    unknown: Sequence[str]


def sqlite_file() -> Path | None:
    """Return the file of the database; None for other databases and for those in memory."""
    configuration = _configuration()
    name = str(configuration["NAME"])
    is_sqlite = str(configuration["ENGINE"]).endswith("sqlite3")
    return Path(name) if is_sqlite and not name.startswith("file:") and name != ":memory:" else None


def check_database() -> Iterator[CheckFinding]:
    """Yield the findings of the database of DATABASE_URL, or of the SQLite file in REFLOAT_HOME."""
    file = sqlite_file()
    if file is not None and not file.exists():
        # Opening it would create it.
        yield error("database-connection", f"The database {file} does not exist.", "Run `refloat prepare`.")
        return
    name = str(_configuration()["NAME"])
    try:
        with _limited_waiting():
            yield from _check_reachable_database(name)
    except NotSupportedError as problem:
        yield error(
            "database-version",
            f"The version of the database is too old: {str(problem).rstrip('.')}.",
            "Upgrade the database.",
        )
    except DatabaseError as problem:
        yield describe_failure(problem, name)


def check_open_database() -> Iterator[CheckFinding]:
    """Yield the findings of the database that this process uses; without a search for damage, which takes seconds."""
    name = str(_configuration()["NAME"])
    try:
        connection.ensure_connection()
        yield ok("database-connection", f"The database {name} is reachable.")
        yield from check_migrations(_read_migrations())
    except DatabaseError as problem:
        yield describe_failure(problem, name)


def _check_reachable_database(name: str) -> Iterator[CheckFinding]:
    connection.ensure_connection()
    yield ok("database-connection", f"The database {name} is reachable.")
    yield check_version(
        connection.display_name,
        connection.get_database_version(),
        connection.features.minimum_database_version or (),
    )
    if connection.vendor == "sqlite":
        integrity_finding = _check_sqlite_integrity()
        yield integrity_finding
        if integrity_finding.remedy:
            return
    yield from check_migrations(_read_migrations())


def describe_failure(problem: DatabaseError, name: str) -> CheckFinding:
    """Return the finding of a database that cannot be used. `name`: its name or the path of its file."""
    sentence = describe_database_error(problem, name) or _first_line(problem)
    summary = f"{sentence[:1].upper()}{sentence[1:].rstrip('.')}."
    if "not a database" in sentence or "malformed" in sentence:
        return error(
            "database-integrity", summary, "Stop the console, and restore the database from the backup."
        )
    return error(
        "database-connection", summary, "Start the database, or correct DATABASE_URL and the access rights."
    )


def check_version(display_name: str, version: Sequence[int], minimum_version: Sequence[int]) -> CheckFinding:
    """Return whether the version of the database is supported."""
    text = ".".join(map(str, version))
    if tuple(version) < tuple(minimum_version):
        minimum = ".".join(map(str, minimum_version))
        return error(
            "database-version",
            f"{display_name} {text} is too old: Refloat requires {minimum} or newer.",
            f"Upgrade {display_name}.",
        )
    return ok("database-version", f"{display_name} {text} is supported.")


def check_migrations(facts: MigrationFacts) -> Iterator[CheckFinding]:
    """Yield whether the database was prepared for exactly this version of the program."""
    if not facts.applied_count:
        yield error("database-migrations", "The database is not prepared.", "Run `refloat prepare`.")
        return
    if facts.unapplied:
        count = format_count(len(facts.unapplied), "migration")
        yield error(
            "database-migrations",
            f"The database is older than this program: {count} to apply ({_name_some(facts.unapplied)}).",
            _PREPARE_REMEDY,
        )
    else:
        yield ok("database-migrations", f"All {facts.applied_count} migrations are applied.")
    if facts.unknown:
        yield error(
            "database-newer",
            f"The database is newer than this program, which does not have {_name_some(facts.unknown)}.",
            "Install the version of Refloat that prepared the database, or restore the backup from before the upgrade.",
        )


def read_database_time() -> datetime | None:
    """Return the current time of the database server; None for SQLite, which has none. Raises DatabaseError."""
    if connection.vendor != "postgresql":
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    assert row is not None, "the statement returns one row"
    moment: datetime = row[0]
    return moment


def _configuration() -> dict[str, Any]:
    """Return the settings of the database, without opening it."""
    configuration: dict[str, Any] = connections.settings[DEFAULT_DB_ALIAS]
    return configuration


@contextlib.contextmanager
def _limited_waiting() -> Iterator[None]:
    """Let connecting and each statement take at most the timeout. The connection is as before afterwards."""
    options = _configuration().setdefault("OPTIONS", {})
    original_options = dict(options)
    seconds = round(CHECK_TIMEOUT_SECONDS)
    if connection.vendor == "postgresql":
        options["connect_timeout"] = seconds
        options["options"] = f"{options.get('options', '')} -c statement_timeout={seconds * 1000}"
    elif connection.vendor == "sqlite":
        options["timeout"] = seconds
    try:
        yield
    finally:
        options.clear()
        options.update(original_options)


def _check_sqlite_integrity() -> CheckFinding:
    """Return whether SQLite finds damage, as far as it gets within the timeout."""
    deadline = time.monotonic() + CHECK_TIMEOUT_SECONDS
    raw_connection = connection.connection
    raw_connection.set_progress_handler(lambda: time.monotonic() > deadline, _SQLITE_PROGRESS_STEPS)
    try:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA quick_check(1)")
            row = cursor.fetchone()
    except OperationalError as problem:
        if "interrupted" not in str(problem):
            raise
        seconds = f"{CHECK_TIMEOUT_SECONDS:.0f} s"
        return skip("database-integrity", f"The integrity check did not finish within {seconds}.")
    finally:
        raw_connection.set_progress_handler(None, 0)
    damage = str(row[0]) if row else ""
    if damage == "ok":
        return ok("database-integrity", "SQLite reports no damage.")
    return error(
        "database-integrity",
        f"The database file is damaged: {' '.join(damage.split())}.",
        "Stop the console, and restore the database from the backup.",
    )


def _read_migrations() -> MigrationFacts:
    return MigrationFacts(
        applied_count=len(list_applied_migrations()),
        unapplied=list_unapplied_migrations(),
        unknown=list_unknown_migrations(),
    )


def _name_some(names: Sequence[str]) -> str:
    further_count = len(names) - _NAMED_MIGRATIONS
    if further_count <= 0:
        return join_names(names)
    return join_names([*names[:_NAMED_MIGRATIONS], f"{further_count} more"])


def _first_line(problem: Exception) -> str:
    return str(problem).partition("\n")[0].rstrip(".")
