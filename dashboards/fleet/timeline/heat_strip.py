"""Instances x time: stranded agents of every proxy or auth, and its states, as rows of coloured cells. Pure.

Coordinates: one unit for each bucket and one for each row. Cells of the same colour are one path, so that a strip
of 100 proxies has as few elements as that of a single proxy. Cells without stranded agents have the colour of the row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from shlex import quote
from typing import Any

import numpy as np
import numpy.typing as npt

from dashboards.fleet.timeline.buckets import NO_DATA, Buckets, find_first_maxima
from dashboards.fleet.timeline.instance_spans import InstanceSpan, SpanKind
from dashboards.shared.rewind import format_at
from fleet.monitoring.history.minute_columns import GroupColumns
from fleet.monitoring.state.outbox import GroupKind
from fleet.vocabulary.natural_order import natural_sort_key
from fleet.vocabulary.verdicts import State

#: Colours of cells, from the least to the most stranded agents.
LEVEL_COUNT = 4
#: Heights of a row in pixels by the number of rows up to which it is used.
_ROW_HEIGHTS = ((12, 26), (30, 20))
_LEAST_ROW_HEIGHT = 16
#: Seconds after the start of a minute at which the state that was counted in it is shown: it was counted in the first
#: round of the newest minute of the row.
_AFTER_COUNT, _MINUTE = 30.0, 60.0
#: Width of the narrowest span, in buckets.
_MIN_SPAN_WIDTH = 1.2
#: Positions of the lines of states in a row, from its top.
_STATE_LINE, _DRAINING_LINE = 0.86, 0.14


@dataclass(frozen=True, slots=True)
class StripInstance:
    """An auth or proxy that has a row."""

    #: `Instance.pk`.
    key: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class StripRow:
    """One row, as the list of names and the table show it."""

    name: str
    #: Most stranded agents in the range.
    peak: int
    #: Moment of `?at=` with the most stranded agents; empty if there were none.
    at_text: str
    #: Agent query that selects its agents: `proxy:proxy-1`.
    query: str
    #: `not responding (2), draining (1)`: states and the number of their periods; empty if it was OK.
    states: str


@dataclass(frozen=True, slots=True)
class LevelPath:
    """The cells of one colour, or the spans of one state."""

    #: `level-3` or the slug of a state.
    css_class: str
    #: SVG path.
    path: str


@dataclass(frozen=True, slots=True)
class LevelRange:
    """One colour in the legend."""

    css_class: str
    #: `26 to 50`.
    label: str


@dataclass(frozen=True, slots=True)
class HeatStrip:
    """Everything that the template draws of one kind of instances."""

    rows: tuple[StripRow, ...]
    #: Width of all buckets: the last one may be cut off.
    width: float
    #: Height of a row and of all rows, pixels.
    row_height: int
    height: int
    cells: tuple[LevelPath, ...]
    spans: tuple[LevelPath, ...]
    legend: tuple[LevelRange, ...]
    #: States that occur, for the legend.
    kinds: tuple[SpanKind, ...]
    #: For the script, by row: `names`; `queries` (agent queries); `cells` as [bucket, count, seconds from the start of
    #: the bucket to the moment]; `spans` as [start, end, label], in seconds since the epoch.
    data: dict[str, Any]

    @property
    def peak(self) -> int:
        """Return the largest number of stranded agents."""
        return max((row.peak for row in self.rows), default=0)


@dataclass(slots=True)
class StrandedCells:
    """Most stranded agents of each instance and bucket, from parts of the history, oldest first."""

    kind: GroupKind
    instances: Sequence[StripInstance]
    buckets: Buckets
    counts: npt.NDArray[np.int64] = field(init=False)
    moments: npt.NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        size = len(self.instances) * self.buckets.count
        self.counts, self.moments = np.zeros(size, np.int64), np.zeros(size)

    def add(self, columns: GroupColumns) -> None:
        """Add the counts of some minutes."""
        if not self.instances:
            return
        groups = columns.groups
        keys = np.array([instance.key for instance in self.instances], np.int64)
        order = np.argsort(keys)
        places = np.minimum(np.searchsorted(keys, groups["instance"], sorter=order), len(keys) - 1)
        instances = order[places]
        is_stranded = (
            (groups["kind"] == self.kind)
            & (groups["state"] == State.STRANDED)
            & (keys[instances] == groups["instance"])
        )
        positions, instances = columns.positions[is_stranded], instances[is_stranded]
        counts = groups["count"][is_stranded].astype(np.int64)
        starts = columns.starts[positions]
        ends = starts + columns.durations[positions]
        entries, columns_of_cells = self.buckets.spread(starts, ends)
        # The count is of the newest minute of its row; of a row that is longer than a bucket it stands for all of it.
        counted_at = (ends - _MINUTE + _AFTER_COUNT)[entries]
        moments = np.clip(
            counted_at, self.buckets.starts[columns_of_cells], self.buckets.ends[columns_of_cells]
        )
        cells = instances[entries] * self.buckets.count + columns_of_cells
        maxima, maximum_moments = find_first_maxima(cells, counts[entries], moments, len(self.counts))
        is_larger = maxima > self.counts
        self.counts[is_larger] = maxima[is_larger]
        self.moments[is_larger] = maximum_moments[is_larger]


def sort_by_name(instances: Iterable[StripInstance]) -> list[StripInstance]:
    """Return instances in natural order of their names: proxy-2 before proxy-10."""
    return sorted(instances, key=lambda instance: natural_sort_key(instance.name))


def draw_strip(
    stranded_cells: StrandedCells, spans_by_instance: Mapping[str, Sequence[InstanceSpan]], now: float
) -> HeatStrip:
    """Return the rows of the instances of `stranded_cells`, in their order; spans by id of the instance."""
    instances, buckets = stranded_cells.instances, stranded_cells.buckets
    shape = (len(instances), buckets.count)
    counts = stranded_cells.counts.reshape(shape)
    moments = np.minimum(stranded_cells.moments, now).reshape(shape)
    peak = int(counts.max(initial=0))
    levels = level_of(counts, peak)
    spans = [spans_by_instance.get(instance.id, ()) for instance in instances]
    row_height = next(
        (height for limit, height in _ROW_HEIGHTS if len(instances) <= limit), _LEAST_ROW_HEIGHT
    )
    return HeatStrip(
        rows=tuple(
            _row_of(instance.name, stranded_cells.kind, counts[row], moments[row], spans[row])
            for row, instance in enumerate(instances)
        ),
        width=round((buckets.until - buckets.since) / buckets.step, 3),
        row_height=row_height,
        height=row_height * len(instances),
        cells=tuple(_draw_cells(levels)),
        spans=tuple(_draw_spans(spans, buckets)),
        legend=tuple(_list_levels(peak)),
        kinds=tuple(kind for kind in SpanKind if any(span.kind is kind for row in spans for span in row)),
        data={
            "names": [instance.name for instance in instances],
            "queries": [
                quote(f"{stranded_cells.kind.name.lower()}:{instance.name}") for instance in instances
            ],
            "cells": [_cells_as_json(counts[row], moments[row], buckets) for row in range(len(instances))],
            "spans": [
                [[round(span.start), round(span.end), span.kind.label] for span in row] for row in spans
            ],
        },
    )


def level_of(counts: npt.NDArray[np.int64], peak: int) -> npt.NDArray[np.int64]:
    """Return the colour of each count: 0 for no agent, LEVEL_COUNT for counts next to the peak."""
    return np.ceil(counts * LEVEL_COUNT / max(peak, 1)).astype(np.int64)


def _list_levels(peak: int) -> Iterable[LevelRange]:
    bounds = [level * peak // LEVEL_COUNT for level in range(LEVEL_COUNT + 1)]
    for level, (below, last) in enumerate(pairwise(bounds), 1):
        if last > below:
            label = f"{last:,}" if last == below + 1 else f"{below + 1:,} to {last:,}"
            yield LevelRange(f"level-{level}", label)


def _row_of(name: str, kind: GroupKind, counts: Any, moments: Any, spans: Sequence[InstanceSpan]) -> StripRow:
    worst = int(np.argmax(counts)) if len(counts) else 0
    peak = int(counts[worst]) if len(counts) else 0
    span_counts = defaultdict[SpanKind, int](int)
    for span in spans:
        span_counts[span.kind] += 1
    return StripRow(
        name=name,
        peak=peak,
        at_text=format_at(float(moments[worst])) if peak else "",
        query=quote(f"{kind.name.lower()}:{name}"),
        states=", ".join(f"{kind.label} ({span_counts[kind]})" for kind in SpanKind if span_counts[kind]),
    )


def _draw_cells(levels: npt.NDArray[np.int64]) -> Iterable[LevelPath]:
    """Yield one path for each colour, of runs of equal cells."""
    paths = defaultdict[int, list[str]](list)
    for row, row_levels in enumerate(levels):
        edges = np.flatnonzero(np.diff(row_levels, prepend=NO_DATA, append=NO_DATA))
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if level := int(row_levels[start]):
                paths[level].append(f"M{start} {row}h{end - start}v1h{start - end}z")
    for level in sorted(paths):
        yield LevelPath(f"level-{level}", "".join(paths[level]))


def _draw_spans(spans: Sequence[Sequence[InstanceSpan]], buckets: Buckets) -> Iterable[LevelPath]:
    """Yield one path for each state: a line in the row, or the whole row of an instance that is gone."""
    paths = defaultdict[SpanKind, list[str]](list)
    width = (buckets.until - buckets.since) / buckets.step
    for row, row_spans in enumerate(spans):
        for span in row_spans:
            start = max((span.start - buckets.since) / buckets.step, 0.0)
            end = min(max((span.end - buckets.since) / buckets.step, start + _MIN_SPAN_WIDTH), width)
            start = min(start, max(end - _MIN_SPAN_WIDTH, 0.0))
            if span.kind is SpanKind.DEREGISTERED:
                paths[span.kind].append(f"M{start:.1f} {row}H{end:.1f}v1H{start:.1f}z")
            else:
                line = _DRAINING_LINE if span.kind is SpanKind.DRAINING else _STATE_LINE
                paths[span.kind].append(f"M{start:.1f} {row + line:.2f}H{end:.1f}")
    for kind in SpanKind:
        if kind in paths:
            yield LevelPath(kind.slug, "".join(paths[kind]))


def _cells_as_json(counts: Any, moments: Any, buckets: Buckets) -> list[list[int]]:
    columns = np.flatnonzero(counts)
    offsets = np.round(moments[columns] - buckets.starts[columns]).astype(np.int64)
    rows: list[list[int]] = np.column_stack((columns, counts[columns], offsets)).tolist()
    return rows
