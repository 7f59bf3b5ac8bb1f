from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from django.db import connection

from fleet.models.history import AGENT_CHANGE_TABLE, AgentChange
from fleet.models.partitions import (
    compact_index,
    day_of,
    drop_partition,
    ensure_partitions,
    list_loose_indexes,
    list_partition_days,
    start_of,
)
from fleet.vocabulary.verdicts import State
from tests.fakes.history_rows import create_agent_change

_DAY = date(2026, 2, 28)
_START = datetime(2026, 2, 28, tzinfo=UTC).timestamp()


def test_days_are_those_of_utc() -> None:
    """From the first to the last millisecond."""
    assert start_of(_DAY) == _START
    assert [day_of(at) for at in (_START - 0.001, _START, _START + 86_399.999)] == [
        date(2026, 2, 27),
        _DAY,
        _DAY,
    ]


@pytest.mark.django_db
def test_row_of_any_day_can_be_written() -> None:
    """A missing partition is created with the row; both ends of a day are in it."""
    for at in (_START, _START + 86_399.999):
        create_agent_change("a", at, State.HEALTHY, State.STRANDED)
    ensure_partitions(AGENT_CHANGE_TABLE, [_DAY])
    assert AgentChange.objects.count() == 2
    assert list_partition_days(AGENT_CHANGE_TABLE) == ([] if connection.vendor == "sqlite" else [_DAY])


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no partitions")
def test_dropped_day_takes_its_rows_along() -> None:
    """And no others."""
    for day in range(2):
        create_agent_change("a", _START + day * 86_400, State.HEALTHY, State.STRANDED)
    drop_partition(AGENT_CHANGE_TABLE, _DAY)
    assert list_partition_days(AGENT_CHANGE_TABLE) == [date(2026, 3, 1)]
    assert AgentChange.objects.get().at == _START + 86_400


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no partitions")
def test_index_of_a_past_day_is_compacted_once() -> None:
    """The oldest first; not those of later days, and not the block range index of the time."""
    for day in range(3):
        create_agent_change("a", _START + day * 86_400, State.HEALTHY, State.STRANDED)
    indexes = [f"{AGENT_CHANGE_TABLE}_{day}_pkey" for day in ("20260228", "20260301")]
    assert list_loose_indexes(AGENT_CHANGE_TABLE, date(2026, 3, 2)) == indexes
    compact_index(indexes[0])
    assert list_loose_indexes(AGENT_CHANGE_TABLE, date(2026, 3, 2)) == indexes[1:]
    assert AgentChange.objects.get(at=_START).new == State.STRANDED
