from __future__ import annotations

import numpy as np
import pytest

from dashboards.fleet.timeline.buckets import MAX_COLUMNS, NO_DATA, find_first_maxima, find_gaps, split_range

#: Start of a day.
DAY = 1_699_920_000.0
HOURS = 3600.0


@pytest.mark.parametrize(
    ("hours", "step"),
    [(1, 60), (6, 60), (24, 300), (7 * 24, 1800), (30 * 24, 7200), (90 * 24, 21_600), (400 * 24, 172_800)],
)
def test_at_most_400_columns(hours: int, step: float) -> None:
    """Of a length that people know, which begin at full minutes, hours and days."""
    buckets = split_range(DAY + 17, DAY + 17 + hours * HOURS)
    assert buckets.step == step
    assert buckets.count <= MAX_COLUMNS
    assert buckets.since % step == 0
    assert buckets.since <= DAY + 17 < buckets.since + step
    assert buckets.until == DAY + 60 + hours * HOURS
    assert buckets.ends[-1] == buckets.until
    assert buckets.starts[-1] < buckets.until


def test_rows_are_in_every_bucket_that_they_overlap() -> None:
    """A row of an hour covers its minutes; what is outside is in none."""
    buckets = split_range(DAY, DAY + 300)
    starts = np.array([DAY - 60, DAY, DAY + 90, DAY + 240])
    rows, cells = buckets.spread(starts, starts + np.array([60, 60, 60, 3600]))
    assert list(zip(rows.tolist(), cells.tolist(), strict=True)) == [(1, 0), (2, 1), (2, 2), (3, 4)]


def test_first_maximum_of_each_cell() -> None:
    """Of equal values the earliest moment; a cell without values has none."""
    values, moments = find_first_maxima(
        np.array([0, 0, 2, 2]), np.array([3, 5, 7, 7]), np.array([10.0, 20.0, 40.0, 30.0]), 4
    )
    assert values.tolist() == [5, NO_DATA, 7, NO_DATA]
    assert moments.tolist() == [20, 0, 30, 0]


def test_gaps() -> None:
    """Before, between and after rows; shorter ones are none."""
    starts = np.array([60.0, 120.0, 300.0])
    assert find_gaps(starts, starts + 60, 0, 600, 1) == [(0, 60), (180, 300), (360, 600)]
    assert find_gaps(starts, starts + 60, 0, 600, 100) == [(180, 300), (360, 600)]
    assert find_gaps(starts, starts + 60, 90, 330, 1) == [(180, 300)]
    assert find_gaps(np.zeros(0), np.zeros(0), 0, 600, 1) == [(0, 600)]
