from __future__ import annotations

import numpy as np

from dashboards.fleet.timeline.buckets import split_range
from dashboards.fleet.timeline.count_history import CountPeriod, count_periods
from fleet.monitoring.history.minute_columns import CountColumns
from fleet.vocabulary.verdicts import State

#: Start of a day.
START = 1_700_006_400.0


def _pack(stranded_count: int) -> bytes:
    counts = np.zeros(len(State), "<u4")
    counts[State.STRANDED] = stranded_count
    return counts.tobytes()


def test_periods_with_data() -> None:
    """Maxima of all rows, states of the newest one; no item without data."""
    columns = CountColumns(
        START + np.array([0.0, 60.0, 120.0, 360.0]),
        np.full(4, 60.0),
        np.array([9, 4, 1, 2]),
        np.array([1, 5, 0, 0]),
        (_pack(9), _pack(4), _pack(1), b""),
    )
    periods = count_periods(columns, split_range(START, START + 780 * 60))
    first, second, third = periods
    assert (first.at, first.stranded_peak, first.at_risk_peak) == (START, 9, 5)
    assert first.counts is not None
    assert (first.counts[State.STRANDED], first.counts[State.HEALTHY]) == (4, 0)
    assert (second.at, second.stranded_peak) == (START + 120, 1)
    assert third == CountPeriod(START + 360, 2, 0, None)
