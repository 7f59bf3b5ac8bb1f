"""Counts of every state over time, for the API. Pure; times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dashboards.fleet.timeline.buckets import NO_DATA, Buckets, find_first_maxima
from fleet.monitoring.history.minute_columns import CountColumns
from fleet.monitoring.history.minutes import unpack_state_counts
from fleet.vocabulary.verdicts import State


@dataclass(frozen=True, slots=True)
class CountPeriod:
    """Counts of one period."""

    at: float
    #: Most agents in any round.
    stranded_peak: int
    at_risk_peak: int
    #: Agents by state in the newest minute; None: not recorded.
    counts: Mapping[State, int] | None


def count_periods(counts: CountColumns, buckets: Buckets) -> list[CountPeriod]:
    """Return the periods with data, oldest first."""
    rows, cells = buckets.spread(counts.starts, counts.ends)
    moments = counts.starts[rows]
    stranded_peaks, _ = find_first_maxima(cells, counts.stranded_peaks[rows], moments, buckets.count)
    at_risk_peaks, _ = find_first_maxima(cells, counts.at_risk_peaks[rows], moments, buckets.count)
    newest_rows = np.full(buckets.count, NO_DATA, np.int64)
    # Of several rows of a bucket, the last row is written last, and stays.
    newest_rows[cells] = rows
    return [
        CountPeriod(
            float(buckets.starts[cell]),
            int(stranded_peaks[cell]),
            int(at_risk_peaks[cell]),
            unpack_state_counts(packed_counts)
            if (packed_counts := counts.state_counts[newest_rows[cell]])
            else None,
        )
        for cell in np.flatnonzero(newest_rows != NO_DATA).tolist()
    ]
