"""Times: `timestamptz` in the database, seconds since the epoch in the engine. Only this module converts them.

Columns that the engine compares with its clock are `SecondsField`; columns that people read are `DateTimeField`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django.db import models
from typing_extensions import override

#: Types that a column takes and returns, so that mypy knows which may be None. Django's fields are generic only in
#: their stubs.
_Set = TypeVar("_Set")
_Get = TypeVar("_Get")
if TYPE_CHECKING:

    class _Column(models.FloatField[_Set, _Get]): ...

else:

    class _Column(models.FloatField, Generic[_Set, _Get]): ...


#: Last second that `datetime` can represent. An expiry from another program may be later.
_MAX_SECONDS = 253402300799.0


def to_moment(seconds: float) -> datetime:
    """Return seconds since the epoch as an aware datetime, to the microsecond."""
    return datetime.fromtimestamp(min(seconds, _MAX_SECONDS), UTC)


def to_seconds(moment: datetime) -> float:
    """Return an aware datetime as seconds since the epoch; `to_moment` is the exact inverse."""
    return moment.timestamp()


class SecondsField(_Column[_Set, _Get]):
    """Column of times that models hold as seconds since the epoch."""

    @override
    def get_internal_type(self) -> str:
        return "DateTimeField"

    @override
    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        seconds = self.get_prep_value(value)
        return connection.ops.adapt_datetimefield_value(None if seconds is None else to_moment(seconds))

    def from_db_value(self, value: datetime | None, *_: Any) -> float | None:
        """Return the value of the database as seconds since the epoch."""
        return None if value is None else to_seconds(value)


class CompactSecondsField(_Column[_Set, _Get]):
    """Column of times that models hold as seconds since the epoch, to the millisecond, for tables of many rows.

    `timestamptz` on PostgreSQL; on SQLite an integer of milliseconds, a quarter of the size of a text.
    """

    @override
    def get_internal_type(self) -> str:
        return type(self).__name__

    @override
    def db_type(self, connection: Any) -> str:
        return "integer" if connection.vendor == "sqlite" else "timestamp with time zone"

    @override
    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        seconds = self.get_prep_value(value)
        if seconds is None:
            return None
        milliseconds = round(min(seconds, _MAX_SECONDS) * 1000)
        return milliseconds if connection.vendor == "sqlite" else to_moment(milliseconds / 1000)

    def from_db_value(self, value: datetime | int | None, *_: Any) -> float | None:
        """Return the value of the database as seconds since the epoch."""
        if value is None:
            return None
        return to_seconds(value) if isinstance(value, datetime) else value / 1000


class Milliseconds(models.Func):
    """A CompactSecondsField as an integer of milliseconds, for reads of so many rows that a datetime each is slow."""

    arity = 1
    template = "%(expressions)s"
    output_field = models.BigIntegerField()

    def as_postgresql(self, compiler: Any, connection: Any, **options: Any) -> Any:
        """Return the SQL for PostgreSQL, which stores a timestamp."""
        template = "(date_part('epoch', %(expressions)s) * 1000)::bigint"
        return self.as_sql(compiler, connection, template=template, **options)

    @override
    def get_db_converters(self, connection: Any) -> list[Any]:
        # Both databases return integers.
        return []
