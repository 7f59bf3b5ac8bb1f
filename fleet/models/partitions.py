"""Day partitions of history tables on PostgreSQL: created before they are needed, compacted, dropped when they are old.

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


def list_loose_indexes(table: str, before: date, alias: str = "default") -> list[str]:
    """Return the indexes of days before a date that `compact_index` has not rebuilt yet, the oldest day's first."""
    if not has_partitions(alias):
        return []
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT partition.relname, index.relname FROM pg_inherits"
            " JOIN pg_class AS partition ON partition.oid = inhrelid"
            " JOIN pg_index ON indrelid = inhrelid JOIN pg_class AS index ON index.oid = indexrelid"
            " JOIN pg_am ON pg_am.oid = index.relam WHERE inhparent = to_regclass(quote_ident(%s))"
            " AND amname = 'btree' AND NOT coalesce(index.reloptions, '{}') @> ARRAY['fillfactor=100']"
            " ORDER BY partition.relname, index.relname",
            [table],
        )
        return [index for partition, index in cursor.fetchall() if partition < _name_of(table, before)]


def compact_index(index: str, alias: str = "default") -> None:
    """Rebuild an index of a past day without free space. Run it inside `limit_lock_wait`: readers of the day wait.

    Rows in random order leave the pages of an index a third empty. The fill factor tells which indexes are rebuilt.
    """
    with connections[alias].cursor() as cursor:
        cursor.execute(f'ALTER INDEX "{index}" SET (fillfactor = 100)')
        cursor.execute(f'REINDEX INDEX "{index}"')


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
