"""Day partitions of history tables on PostgreSQL: created before they are needed, dropped when they are old.

SQLite has no partitions: there every function of this module does nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta

from django.db import connections, transaction

from fleet.models.moments import to_moment, to_seconds

#: Key of the advisory lock of processes that create partitions: two at the same time would fail.
_LOCK_KEY = 0x5246_4C50


def day_of(seconds: float) -> date:
    """Return the day (UTC) of a time in seconds since the epoch."""
    return to_moment(seconds).date()


def start_of(day: date) -> float:
    """Return the first moment of a day (UTC), seconds since the epoch."""
    return to_seconds(datetime.combine(day, time(), UTC))


def has_partitions(alias: str) -> bool:
    """Return whether history tables of this database have partitions."""
    return connections[alias].vendor == "postgresql"


def ensure_partitions(table: str, days: Iterable[date], alias: str = "default") -> None:
    """Create the partitions of these days that do not exist yet."""
    names = {_name_of(table, day): day for day in days}
    if not names or not has_partitions(alias):
        return
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(quote_ident(name)) IS NULL",
            [[*names]],
        )
        missing_names = sorted(name for (name,) in cursor.fetchall())
    for name in missing_names:
        _create(table, name, names[name], alias)


def list_partition_days(table: str, alias: str = "default") -> list[date]:
    """Return the days that have a partition, oldest first."""
    if not has_partitions(alias):
        return []
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid"
            " WHERE inhparent = to_regclass(quote_ident(%s)) ORDER BY relname",
            [table],
        )
        return [
            datetime.strptime(name[-8:], "%Y%m%d").replace(tzinfo=UTC).date() for (name,) in cursor.fetchall()
        ]


def drop_partition(table: str, day: date, alias: str = "default") -> None:
    """Drop the partition of a day with its rows. Run it inside `limit_lock_wait`: readers would wait behind it."""
    if has_partitions(alias):
        with connections[alias].cursor() as cursor:
            cursor.execute(f'DROP TABLE "{_name_of(table, day)}"')


def _create(table: str, name: str, day: date, alias: str) -> None:
    start, end = (to_moment(start_of(day + timedelta(days=count))).isoformat() for count in (0, 1))
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_KEY])
        # Attached, not created as a partition: that would lock out every reader of the table.
        cursor.execute("SELECT to_regclass(quote_ident(%s)) IS NULL", [name])
        if cursor.fetchone() == (True,):
            cursor.execute(f'CREATE TABLE "{name}" (LIKE "{table}" INCLUDING DEFAULTS INCLUDING CONSTRAINTS)')
            cursor.execute(
                f"ALTER TABLE \"{table}\" ATTACH PARTITION \"{name}\" FOR VALUES FROM ('{start}') TO ('{end}')"
            )


def _name_of(table: str, day: date) -> str:
    return f"{table}_{day:%Y%m%d}"
