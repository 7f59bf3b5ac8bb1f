"""Moments between the engine's seconds and the database's `timestamptz`."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.db import connection
from django.db.models import DateTimeField, Min
from hypothesis import given
from hypothesis import strategies as st

from fleet.models.alerting import Silence
from fleet.models.history import AgentChange
from fleet.models.moments import Milliseconds, to_moment, to_seconds
from fleet.vocabulary.verdicts import State
from tests.fakes.history_rows import create_agent_change

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: A moment whose seconds have more digits than a microsecond.
_NOW = 1_795_000_000.123456789


@given(st.integers(0, 7_000_000_000_000_000).map(lambda micros: _EPOCH + timedelta(microseconds=micros)))
def test_a_datetime_survives_the_way_through_seconds(moment: datetime) -> None:
    """What the database rounded is not rounded again: a value that was read equals its row."""
    assert to_moment(to_seconds(moment)) == moment


@given(st.floats(0, 7e9))
def test_seconds_are_kept_to_the_microsecond(seconds: float) -> None:
    """And `round` to six digits is the same rounding: `fleet.alerts.facts` compares rounded beginnings."""
    assert to_seconds(to_moment(seconds)) == pytest.approx(round(seconds, 6), abs=1.1e-6)


def test_moments_are_aware_and_end_with_the_calendar() -> None:
    """An expiry beyond the year 9999 is the last second of that year, and no error."""
    assert to_moment(0.5) == datetime(1970, 1, 1, 0, 0, 0, 500_000, UTC)
    assert to_seconds(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 0.0
    assert to_moment(1e300) == to_moment(math.inf) == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


@pytest.mark.django_db
def test_the_database_holds_dates_and_the_model_seconds() -> None:
    """The column has the type of every other moment, and takes part in filters and in compare-and-set."""
    silence = Silence.objects.create(reason="r", creator="c", starts_at=_NOW, ends_at=_NOW + 60)
    row = Silence.objects.get(pk=silence.pk)

    assert row.starts_at == round(_NOW, 6)
    assert Silence._meta.get_field("starts_at").db_type(connection) == DateTimeField().db_type(connection)
    with connection.cursor() as cursor:
        cursor.execute("SELECT CAST(starts_at AS text) FROM fleet_silence WHERE id = %s", [row.pk])
        assert str(cursor.fetchone()[0]).startswith(f"{to_moment(_NOW):%Y-%m-%d %H:%M:%S}.123457")
    assert Silence.objects.filter(starts_at__lte=_NOW, ends_at__gt=_NOW + 59.999999).exists()
    for ends_at in (silence.ends_at, row.ends_at):
        assert Silence.objects.filter(pk=row.pk, ends_at=ends_at).update(expiry_notified=True)
    assert not Silence.objects.filter(ends_at=row.ends_at + 1e-6).exists()


@pytest.mark.django_db
def test_compact_seconds_are_kept_to_the_millisecond() -> None:
    """On both databases alike, also in filters and in the oldest of them; none is none."""
    for at in (_NOW, _NOW + 1):
        create_agent_change("a", at, State.HEALTHY, State.STRANDED)
    assert AgentChange.objects.filter(at=_NOW).get().at == round(_NOW, 3)
    assert AgentChange.objects.filter(at__gt=_NOW + 0.001, at__lte=_NOW + 1).count() == 1
    assert AgentChange.objects.aggregate(oldest=Min("at"))["oldest"] == round(_NOW, 3)
    assert AgentChange.objects.filter(agent=0).aggregate(oldest=Min("at"))["oldest"] is None
    with connection.cursor() as cursor:
        cursor.execute("SELECT at FROM fleet_agentchange ORDER BY at")
        stored = cursor.fetchone()[0]
    is_sqlite = connection.vendor == "sqlite"
    assert stored == (round(_NOW * 1000) if is_sqlite else to_moment(round(_NOW, 3)))


@pytest.mark.django_db
def test_compact_moments_are_read_as_milliseconds() -> None:
    """Without a datetime for each row, on either database."""
    for at in (_NOW, 1_795_000_000.0005):
        create_agent_change("a", at, State.HEALTHY, State.STRANDED)
    rows = AgentChange.objects.order_by("at").values_list(Milliseconds("at"), "at")
    assert [*rows] == [(round(at * 1000), at) for _, at in rows]
    assert all(isinstance(milliseconds, int) for milliseconds, _ in rows)
