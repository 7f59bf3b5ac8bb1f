"""Counts of a time range as columns: 90 days are 15,000 rows, too many for an object each."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db.models import Max, Min

from fleet.models.history import FleetMinute
from fleet.monitoring.history.minutes import GROUP_KEY_COUNT
from fleet.monitoring.state.codec import Rows

#: Seconds of the longest row: one that begins before a range may reach into it.
_LONGEST_ROW = 3600.0
#: Seconds that the row of the newest minute may be late.
MAX_ROW_DELAY = 120.0
#: Rows whose groups are unpacked at a time: with 100 proxies, about 10 MB.
_CHUNK_SIZE = 2000


@dataclass(frozen=True, slots=True)
class CountColumns:
    """Counts of the whole fleet, oldest first; a gap between two rows means no data."""

    #: Start of each row, seconds since the epoch, and the seconds that it covers.
    starts: npt.NDArray[np.float64]
    durations: npt.NDArray[np.float64]
    stranded_peaks: npt.NDArray[np.int64]
    at_risk_peaks: npt.NDArray[np.int64]
    #: `FleetMinute.state_counts` of each row.
    state_counts: tuple[bytes, ...]

    @property
    def ends(self) -> npt.NDArray[np.float64]:
        """Return the end of each row."""
        return self.starts + self.durations


@dataclass(frozen=True, slots=True)
class PresentCounts:
    """Counts of the newest round, which no row has yet: a row is written when its minute is over."""

    #: End of the round, seconds since the epoch.
    as_of: float
    stranded_count: int
    at_risk_count: int


@dataclass(frozen=True, slots=True)
class GroupColumns:
    """Agents by state with each proxy, auth and cause, in several rows of counts."""

    #: Start of each row of counts, and the seconds that it covers.
    starts: npt.NDArray[np.float64]
    durations: npt.NDArray[np.float64]
    #: GROUP_KEY_COUNT rows of all of them, and the position of the row of counts that each is from.
    groups: Rows
    positions: npt.NDArray[np.int64]


def read_count_columns(cluster: str, since: float, until: float) -> CountColumns:
    """Return the counts that overlap a time range, in seconds since the epoch."""
    columns = ("at", "resolution", "stranded_peak", "at_risk_peak", "state_counts")
    rows = list(_select(cluster, since, until).values_list(*columns))
    starts, durations, stranded_peaks, at_risk_peaks, state_counts = (
        zip(*rows, strict=True) if rows else [()] * 5
    )
    all_columns = CountColumns(
        np.array(starts, np.float64),
        np.array(durations, np.float64),
        np.array(stranded_peaks, np.int64),
        np.array(at_risk_peaks, np.int64),
        tuple(map(bytes, state_counts)),
    )
    first = int(np.searchsorted(all_columns.ends, since, side="right"))
    return CountColumns(
        all_columns.starts[first:],
        all_columns.durations[first:],
        all_columns.stranded_peaks[first:],
        all_columns.at_risk_peaks[first:],
        all_columns.state_counts[first:],
    )


def add_present(columns: CountColumns, present: PresentCounts, now: float) -> CountColumns:
    """Return counts with those of the newest round, from its end to `now`; unchanged without any rows.

    The minute before it, of which the row is not written yet, has the smaller of the counts before and after it.
    """
    if not len(columns.starts):
        return columns
    last_start, last_end = float(columns.starts[-1]), float(columns.ends[-1])
    stranded_counts, at_risk_counts = [present.stranded_count], [present.at_risk_count]
    starts, ends = [max(present.as_of, last_start)], [max(now, present.as_of)]
    if 0 < present.as_of - last_end <= MAX_ROW_DELAY:
        starts, ends = [last_end, *starts], [present.as_of, *ends]
        stranded_counts.insert(0, min(present.stranded_count, int(columns.stranded_peaks[-1])))
        at_risk_counts.insert(0, min(present.at_risk_count, int(columns.at_risk_peaks[-1])))
    return CountColumns(
        np.append(columns.starts, starts),
        np.append(columns.durations, np.subtract(ends, starts)),
        np.append(columns.stranded_peaks, np.array(stranded_counts, np.int64)),
        np.append(columns.at_risk_peaks, np.array(at_risk_counts, np.int64)),
        (*columns.state_counts, *[b""] * len(starts)),
    )


def iterate_stranded_columns(cluster: str, since: float, until: float) -> Iterator[GroupColumns]:
    """Yield the groups of the rows with stranded agents that overlap a time range, oldest first, in parts."""
    # Most minutes have no stranded agents: their groups need not be unpacked.
    query = _select(cluster, since, until).filter(stranded_peak__gt=0)
    rows = query.values_list("at", "resolution", "groups").iterator(_CHUNK_SIZE)
    while chunk := list(islice(rows, _CHUNK_SIZE)):
        overlapping = [row for row in chunk if row[0] + row[1] > since]
        if overlapping:
            yield group_columns_of(overlapping)


def group_columns_of(rows: Sequence[tuple[float, int, bytes]]) -> GroupColumns:
    """Return (start, seconds covered, `FleetMinute.groups`) as columns."""
    # A row without groups was written by a test or a migration.
    contents = [zlib.decompress(groups) if groups else b"" for _, _, groups in rows]
    counts = np.array([len(content) // GROUP_KEY_COUNT.itemsize for content in contents], np.int64)
    groups: Rows = np.zeros(int(counts.sum()), GROUP_KEY_COUNT)
    columns: dict[str, list[bytes]] = {name: [] for name in GROUP_KEY_COUNT.names or ()}
    # Each content has its columns one after the other: bytes are joined by column, which numpy reads at once.
    for content, count in zip(contents, counts.tolist(), strict=True):
        offset = 0
        for name, parts in columns.items():
            end = offset + count * GROUP_KEY_COUNT[name].itemsize
            parts.append(content[offset:end])
            offset = end
    for name, parts in columns.items():
        groups[name] = np.frombuffer(b"".join(parts), GROUP_KEY_COUNT[name])
    return GroupColumns(
        np.array([start for start, _, _ in rows], np.float64),
        np.array([duration for _, duration, _ in rows], np.float64),
        groups,
        np.repeat(np.arange(len(rows)), counts),
    )


def read_recorded_range(cluster: str) -> tuple[float, float] | None:
    """Return the start of the oldest and the end of the newest counts; None: nothing was recorded yet."""
    ends = FleetMinute.objects.filter(cluster=cluster).aggregate(first=Min("at"), last=Max("at"))
    if ends["first"] is None:
        return None
    last = FleetMinute.objects.get(cluster=cluster, at=ends["last"])
    return ends["first"], last.at + last.resolution


def _select(cluster: str, since: float, until: float) -> Any:
    return FleetMinute.objects.filter(cluster=cluster, at__gt=since - _LONGEST_ROW, at__lt=until).order_by(
        "at"
    )
