"""Versions of settings: a change names the version that it began with, so that no newer change is overwritten."""

from __future__ import annotations

import hashlib
from typing import TypeVar

from fleet.alerts.setup.problems import SetupChangedError
from fleet.models.alerting import AlertRule, Channel, Route

_Row = TypeVar("_Row", AlertRule, Channel, Route)
#: Columns that the sending threads write.
_VOLATILE_COLUMNS = frozenset({"rate_limited_until", "failing_since"})


def version_of(row: AlertRule | Channel | Route) -> str:
    """Return a text that differs when a value of a stored row differs."""
    columns = [
        f"{field.attname}={getattr(row, field.attname)}"
        for field in row._meta.concrete_fields  # noqa: SLF001 - Django documents it
        if field.name not in _VOLATILE_COLUMNS
    ]
    if isinstance(row, Route):
        columns += [
            str(sorted(channel.pk for channel in rows.all())) for rows in (row.channels, row.escalate_to)
        ]
    return hashlib.sha256("\0".join(columns).encode()).hexdigest()[:16]


def write_row(row: AlertRule | Channel | Route) -> None:
    """Create a row, or write its columns without those that the sending threads write."""
    columns = [
        field.name
        for field in row._meta.concrete_fields  # noqa: SLF001 - Django documents it
        if not field.primary_key and field.name not in _VOLATILE_COLUMNS
    ]
    if not row.pk:
        row.save(force_insert=True)
    else:
        row.save(update_fields=columns)


def require_version(row: _Row, seen_version: str, noun: str) -> None:
    """Raise SetupChangedError unless the stored row has this version. Call it in a transaction.

    `seen_version` empty: any version. `noun`: `channel`.
    """
    stored_row = type(row)._default_manager.select_for_update().filter(pk=row.pk).first()  # noqa: SLF001 - Django documents it
    if stored_row is None:
        raise SetupChangedError(f"somebody deleted this {noun}")
    if seen_version and version_of(stored_row) != seen_version:
        raise SetupChangedError(f"out of date: somebody changed this {noun}")
