"""Deletion of old history: PostgreSQL drops whole days, and compacts past ones; SQLite deletes small batches.

What an agent's row keeps of deleted changes is written in the same transaction. docs/reference/history.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import islice
from typing import Any

from django.db import connection, models, transaction
from django.db.models import Max

from fleet.models.clusters import Cluster
from fleet.models.history import AGENT_CHANGE_TABLE, AgentChange, FleetMinute, InstanceChange, Keyframe
from fleet.models.lock_timeout import limit_lock_wait
from fleet.models.partitions import (
    compact_index,
    day_of,
    drop_partition,
    ensure_partitions,
    has_partitions,
    list_loose_indexes,
    list_partition_days,
    start_of,
)

#: Rows per transaction: SQLite has one writer, and others wait for it.
_CHUNK_SIZE = 1000
#: Days from today for which partitions exist.
_DAYS_AHEAD = 3
#: Days before today that are not compacted yet, because changes may still be written.
_OPEN_DAYS = 1
#: Maximum seconds that changes are kept longer because the oldest keyframe needs them.
_MAX_EXTRA_AGE = 2 * 86_400.0
#: Seconds that dropping or compacting a day waits for readers; the next run tries again.
_LOCK_SECONDS = 5.0
_KEPT_COLUMNS = (
    *("at", "old", "new", "reason", "recovery", "cause", "auth", "recovers_after_ms", "proxies"),
)


def create_partitions_ahead(now: float) -> None:
    """Create the partitions of today and of the next days; writers create what is missing."""
    today = day_of(now)
    days = [today + timedelta(days=count) for count in range(_DAYS_AHEAD)]
    ensure_partitions(AGENT_CHANGE_TABLE, days)


def compact_past_days(now: float) -> None:
    """Rebuild the indexes of past days, to which nothing is added any more, without free space, once each."""
    for index in list_loose_indexes(AGENT_CHANGE_TABLE, day_of(now) - timedelta(days=_OPEN_DAYS)):
        with limit_lock_wait(_LOCK_SECONDS):
            compact_index(index)


def delete_old_history(before: float) -> int:
    """Delete the history before a time in seconds since the epoch; return the number of deleted changes.

    Later moments stay readable: what they need of the time before is kept.
    """
    changes_before = _start_of_needed_changes(before)
    agent_change_count = (
        _drop_days(changes_before) if has_partitions("default") else _delete_agent_changes(changes_before)
    )
    newest_changes = _newest_keys(InstanceChange.objects.all(), before, "cluster", "instance")
    instance_change_count = _delete(InstanceChange.objects.all(), before, newest_changes)
    _delete(Keyframe.objects.all(), before, _newest_keys(Keyframe.objects.all(), before, "cluster"))
    _delete(FleetMinute.objects.all(), before, ())
    return agent_change_count + instance_change_count


def _start_of_needed_changes(before: float) -> float:
    """Return the time of the keyframe from which the state at `before` is made, of the cluster whose is the oldest."""
    moments = [
        newest_at
        for cluster in Cluster.objects.all()
        if (
            newest_at := Keyframe.objects.filter(cluster=cluster, at__lte=before).aggregate(at=Max("at"))[
                "at"
            ]
        )
    ]
    return min((max(at, before - _MAX_EXTRA_AGE) for at in moments), default=before)


def _drop_days(before: float) -> int:
    """Drop the partitions that end before a time."""
    deleted_count = 0
    for day in list_partition_days(AGENT_CHANGE_TABLE):
        end = start_of(day + timedelta(days=1))
        if end > before:
            break
        rows = AgentChange.objects.filter(at__gte=start_of(day), at__lt=end)
        with limit_lock_wait(_LOCK_SECONDS):
            deleted_count += rows.count()
            for chunk in _chunks(rows.order_by("at").values_list("agent_id", *_KEPT_COLUMNS).iterator()):
                _keep_first_and_last(chunk)
            drop_partition(AGENT_CHANGE_TABLE, day)
    return deleted_count


def _delete_agent_changes(before: float) -> int:
    """Delete changes before a time from SQLite, the oldest first."""
    deleted_count = 0
    rows = AgentChange.objects.filter(at__lt=before).order_by("at", "agent_id")
    while True:
        with transaction.atomic():
            chunk = list(rows.values_list("agent_id", *_KEPT_COLUMNS)[:_CHUNK_SIZE])
            if not chunk:
                return deleted_count
            _keep_first_and_last(chunk)
            with connection.cursor() as cursor:
                cursor.executemany(
                    f"DELETE FROM {AGENT_CHANGE_TABLE} WHERE agent_id = %s AND at = %s",  # noqa: S608 - the name of our table
                    [(agent, round(at * 1000)) for agent, at, *_ in chunk],
                )
        deleted_count += len(chunk)


def _keep_first_and_last(changes: Iterable[tuple[Any, ...]]) -> None:
    """Write the first and last change of state of each agent into its row; `changes` are sorted by time."""
    first_and_last: dict[int, tuple[str, str]] = {}
    for agent, *values in changes:
        change = dict(zip(_KEPT_COLUMNS, values, strict=True))
        if change["old"] == change["new"]:
            continue
        change["proxies"] = None if change["proxies"] is None else bytes(change["proxies"]).hex()
        text = json.dumps(change, separators=(",", ":"))
        first_and_last[agent] = (first_and_last.get(agent, (text,))[0], text)
    value = "CAST(%s AS jsonb)" if has_partitions("default") else "%s"
    with connection.cursor() as cursor:
        cursor.executemany(
            f"UPDATE fleet_agent SET first_change = coalesce(first_change, {value}),"  # noqa: S608 - see above
            f" last_deleted_change = {value} WHERE id = %s",
            [(first, last, agent) for agent, (first, last) in first_and_last.items()],
        )


def _newest_keys(table: models.QuerySet[Any], before: float, *columns: str) -> list[int]:
    """Return the newest row before a time for each value of the columns: it holds until the next one."""
    rows = table.filter(at__lt=before).order_by()
    newest_moments = rows.values(*columns).annotate(newest_at=Max("at"))
    keys = [
        rows.filter(**{name: row[name] for name in columns}, at=row["newest_at"]) for row in newest_moments
    ]
    return [key for candidates in keys if (key := candidates.aggregate(newest=Max("pk"))["newest"])]


def _delete(table: models.QuerySet[Any], before: float, kept_keys: Iterable[int]) -> int:
    rows = table.filter(at__lt=before).exclude(pk__in=[*kept_keys])
    oldest_keys = rows.order_by("pk").values_list("pk", flat=True)
    deleted_count = 0
    while keys := list(oldest_keys[:_CHUNK_SIZE]):
        table.filter(pk__in=keys).delete()
        deleted_count += len(keys)
    return deleted_count


def _chunks(rows: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    while chunk := list(islice(rows, _CHUNK_SIZE)):
        yield chunk
