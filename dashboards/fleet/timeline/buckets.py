"""Equal parts of a time range, and maxima of rows in them. Pure; times are seconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Moments = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
#: Lengths of a bucket in seconds: they begin at full hours and days, so the buckets of neighbouring ranges are equal.
_STEPS = (
    *(1 * _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(1 * _HOUR, 2 * _HOUR, 3 * _HOUR, 4 * _HOUR, 6 * _HOUR, 12 * _HOUR, 1 * _DAY, 2 * _DAY, 7 * _DAY),
)
#: Most columns of a chart: each is 3 px wide on a large screen.
MAX_COLUMNS = 400
#: No row is in a bucket.
NO_DATA = -1


@dataclass(frozen=True, slots=True)
class Buckets:
    """Equal parts of a time range; the last one may be cut off at its end."""

    #: Start of the first and end of the last one.
    since: float
    until: float
    #: Length in seconds.
    step: float
    count: int

    @property
    def starts(self) -> Moments:
        """Return the start of each."""
        starts: Moments = self.since + self.step * np.arange(self.count, dtype=np.float64)
        return starts

    @property
    def ends(self) -> Moments:
        """Return the end of each."""
        return np.minimum(self.starts + self.step, self.until)

    def spread(self, starts: Moments, ends: Moments) -> tuple[Numbers, Numbers]:
        """Return (position of the row, bucket) of each overlap of a row with a bucket, in the order of the rows."""
        first = np.clip(np.floor((starts - self.since) / self.step), 0, self.count).astype(np.int64)
        last = np.clip(np.ceil((ends - self.since) / self.step), 0, self.count).astype(np.int64)
        lengths = np.maximum(last - first, 0)
        rows = np.repeat(np.arange(len(starts)), lengths)
        offsets = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return rows, np.repeat(first, lengths) + offsets


def split_range(since: float, until: float, limit: int = MAX_COLUMNS) -> Buckets:
    """Return at most `limit` buckets that cover a time range: from before `since`, to the end of its last minute."""
    end = -(-until // _MINUTE) * _MINUTE
    for step in _STEPS:
        start = since // step * step
        count = int(-(-(end - start) // step))
        if count <= limit:
            break
    return Buckets(start, end, float(step), count)


def find_first_maxima(
    cells: Numbers, values: Numbers, moments: Moments, size: int
) -> tuple[Numbers, Moments]:
    """Return the largest value of each cell, NO_DATA for none, and the first moment that has it.

    `cells`: number of the cell of each value, below `size`.
    """
    maxima, maximum_moments = np.full(size, NO_DATA, np.int64), np.zeros(size)
    order = np.lexsort((moments, -values, cells))
    found_cells, first = np.unique(cells[order], return_index=True)
    maxima[found_cells] = values[order][first]
    maximum_moments[found_cells] = moments[order][first]
    return maxima, maximum_moments


def find_gaps(
    starts: Moments, ends: Moments, since: float, until: float, min_seconds: float
) -> list[tuple[float, float]]:
    """Return start and end of the times of at least `min_seconds` that no row covers; rows in the order of time."""
    edges_before = np.concatenate([[since], np.clip(ends, since, until)])
    edges_after = np.concatenate([np.clip(starts, since, until), [until]])
    is_gap = edges_after - edges_before >= min_seconds
    return list(zip(edges_before[is_gap].tolist(), edges_after[is_gap].tolist(), strict=True))
