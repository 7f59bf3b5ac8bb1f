"""Programs of the previous version use the database while the migrations after the baseline run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from django.db import connection, models

from fleet.management.backups.migration_state import open_unsquashed_executor
from fleet.models.moments import CompactSecondsField, SecondsField, to_seconds
from fleet.models.partitions import day_of, ensure_partitions
from tests.fleet.migrations.rows import Apps, newest_migration
from tests.meta.migration_rules import BASELINE

pytestmark = pytest.mark.django_db(transaction=True)

_AT = datetime(2026, 11, 28, 12, tzinfo=UTC)
#: Seconds that a pass over all tables may take; one takes a fraction of a second.
_TIMEOUT_SECONDS = 60.0
#: Values by the kind of a column, made different by a number.
_VALUES: dict[str, Callable[[int], Any]] = {
    "BigIntegerField": lambda number: number,
    "BinaryField": lambda number: str(number).encode(),
    "BooleanField": lambda _: False,
    "CharField": str,
    "DateTimeField": lambda _: _AT,
    "FloatField": float,
    "IntegerField": lambda number: number,
    "JSONField": lambda number: {"number": number},
    "PositiveBigIntegerField": lambda number: number,
    "PositiveIntegerField": lambda number: number,
    "PositiveSmallIntegerField": lambda number: number,
    "SlugField": str,
    "SmallIntegerField": lambda number: number,
    "TextField": str,
    "TimeField": lambda _: _AT.time(),
}


class _PreviousVersion(threading.Thread):
    """Writes and reads rows of every table with the models of the baseline, until it is stopped."""

    def __init__(self, apps: Apps) -> None:
        super().__init__(daemon=True)
        self._models = [model for model in apps.get_app_config("fleet").get_models() if model._meta.managed]
        self._numbers = count(1)
        self._is_stopping = threading.Event()
        self._passes = threading.Condition()
        self.pass_count = 0
        self.row_count = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._is_stopping.is_set():
                self.row_count += sum(1 for _ in self._use_every_table())
                with self._passes:
                    self.pass_count += 1
                    self._passes.notify_all()
        except Exception as error:  # noqa: BLE001 - told by the test
            self.error = error
            with self._passes:
                self._passes.notify_all()
        finally:
            connection.close()

    def await_passes(self, more: int) -> None:
        """Wait until that many more passes over all tables have ended, or one has failed."""
        with self._passes:
            target = self.pass_count + more
            self._passes.wait_for(
                lambda: self.error is not None or self.pass_count >= target, _TIMEOUT_SECONDS
            )

    def stop(self) -> None:
        self._is_stopping.set()
        self.join(_TIMEOUT_SECONDS)

    def _use_every_table(self) -> Iterator[models.Model]:
        rows: dict[str, models.Model] = {}
        for model in self._models:
            row = self._create(model, rows)
            read = model._base_manager.get(pk=row.pk)
            # Nobody may change the audit log.
            if model._meta.model_name not in {"auditentry", "agentchange"}:
                read.save(force_update=True)
            yield row

    def _create(self, model: type[models.Model], rows: dict[str, models.Model]) -> models.Model:
        """Create a row and those that it refers to; return it. `rows`: those of this pass by the name of the table."""
        name = model._meta.db_table
        if name not in rows:
            number = next(self._numbers)
            values = {
                field.name: self._create(field.related_model, rows)
                if field.remote_field
                else _value_of(field, number)
                for field in model._meta.local_fields
                if _is_required(field)
            }
            rows[name] = model._base_manager.create(**values)
        return rows[name]


def _is_required(field: Any) -> bool:
    return not (field.null or field.has_default() or isinstance(field, models.AutoField | models.CompositePrimaryKey))


def _value_of(field: Any, number: int) -> Any:
    # Columns of moments that models hold as seconds since the epoch.
    if isinstance(field, SecondsField | CompactSecondsField):
        return to_seconds(_AT) + number
    return _VALUES[field.get_internal_type()](number)


def test_previous_version_works_while_migrations_run(migrate: Callable[[str], Apps]) -> None:
    """It writes every table before, while and after the migrations run, without an error."""
    previous_version = _PreviousVersion(migrate(BASELINE))
    ensure_partitions("fleet_agentchange", [day_of(to_seconds(_AT))])
    previous_version.start()
    previous_version.await_passes(1)

    # As `refloat prepare` runs them.
    open_unsquashed_executor().migrate([("fleet", newest_migration())])
    previous_version.await_passes(2)
    previous_version.stop()

    assert previous_version.error is None
    assert previous_version.pass_count >= 3
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM fleet_auditentry")
        assert cursor.fetchone() == (previous_version.pass_count,)
