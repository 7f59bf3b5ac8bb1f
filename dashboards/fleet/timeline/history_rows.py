"""What Fleet now and History show of a time range, read from the database. Times are seconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass

from dashboards.fleet.replay_markers import find_changes, find_incidents, find_started_changes
from dashboards.fleet.timeline.buckets import Buckets, split_range
from dashboards.fleet.timeline.chart_words import describe_period
from dashboards.fleet.timeline.heat_strip import (
    HeatStrip,
    StrandedCells,
    StripInstance,
    draw_strip,
    sort_by_name,
)
from dashboards.fleet.timeline.instance_spans import InstanceSpan, spans_of
from dashboards.fleet.timeline.line_chart import HistoryChart, draw_history
from dashboards.fleet.timeline.time_range import TimeRange
from fleet.models.history import InstanceChange
from fleet.models.inventory import Instance
from fleet.monitoring.history.minute_columns import (
    PresentCounts,
    add_present,
    iterate_stranded_columns,
    read_count_columns,
    read_recorded_range,
)
from fleet.monitoring.history.minutes import find_peak_time
from fleet.monitoring.history.past import instances_at
from fleet.monitoring.state.outbox import GroupKind
from fleet.vocabulary.instances import InstanceKind

#: Most changes of instances that the strip shows: the newest ones.
_CHANGE_LIMIT = 20_000
_DAY = 86_400.0
#: Columns of the chart of 24 h: one per minute.
_DAY_COLUMNS = 1440
#: Height of the chart of 24 h, pixels.
_DAY_HEIGHT = 120
_GROUP_KINDS = {InstanceKind.PROXY: GroupKind.PROXY, InstanceKind.AUTH: GroupKind.AUTH}


@dataclass(frozen=True, slots=True)
class FleetHistory:
    """The charts of one time range."""

    buckets: Buckets
    chart: HistoryChart
    proxies: HeatStrip
    auths: HeatStrip
    #: Start of the first and end of the last counts of the cluster; None: nothing was recorded yet.
    recorded: tuple[float, float] | None


def read_history(cluster: str, time_range: TimeRange, now: float) -> FleetHistory:
    """Return the charts of a time range."""
    buckets = split_range(time_range.since, time_range.until)
    counts = read_count_columns(cluster, buckets.since, buckets.until)
    chart = draw_history(
        counts,
        buckets,
        find_incidents(cluster, buckets.since, buckets.until),
        find_changes(cluster, buckets.since, buckets.until),
    )
    proxies, auths = _read_strips(cluster, buckets, now, has_data=chart.has_data)
    return FleetHistory(buckets, chart, proxies, auths, read_recorded_range(cluster))


def read_day_chart(
    cluster: str, now: float, *, is_past: bool, present: PresentCounts | None = None
) -> HistoryChart:
    """Return the chart of the 24 h up to `now`, in minutes; `is_past`: without what happened after that.

    It ends with the counts of the newest round (`present`), which the page shows too; None: they are out of date.
    """
    until = -(-now // 60) * 60
    buckets = split_range(until - _DAY, until, _DAY_COLUMNS)
    counts = read_count_columns(cluster, buckets.since, now)
    has_present = present is not None and len(counts.starts) > 0
    return draw_history(
        counts if present is None else add_present(counts, present, now),
        buckets,
        [incident.as_of(now) for incident in find_incidents(cluster, buckets.since, now)],
        [change.as_of(now) for change in find_started_changes(cluster, buckets.since, now)],
        height=_DAY_HEIGHT,
        period=describe_period(now if is_past else None),
        with_dates=False,
        has_present=has_present,
    )


def read_worst_moment(cluster: str, since: float, until: float) -> float | None:
    """Return when most agents were stranded between two times; None: no agent was."""
    counts = read_count_columns(cluster, since, until)
    if not counts.stranded_peaks.max(initial=0):
        return None
    peak_time = find_peak_time(cluster, float(counts.starts[int(counts.stranded_peaks.argmax())]))
    return None if peak_time is None else min(max(peak_time, since), until)


def _read_strips(
    cluster: str, buckets: Buckets, now: float, *, has_data: bool
) -> tuple[HeatStrip, HeatStrip]:
    rows = list(Instance.objects.filter(cluster=cluster))
    spans = _read_spans(cluster, buckets)
    cells = [
        StrandedCells(
            group_kind,
            sort_by_name(
                StripInstance(row.pk, row.instance_id, row.name)
                for row in rows
                # An instance that was gone all the time had no agents.
                if row.kind == kind and not _is_gone_throughout(spans.get(row.instance_id, ()), buckets)
            ),
            buckets,
        )
        for kind, group_kind in _GROUP_KINDS.items()
    ]
    if has_data:
        for columns in iterate_stranded_columns(cluster, buckets.since, buckets.until):
            for strip_cells in cells:
                strip_cells.add(columns)
    proxies, auths = (draw_strip(strip_cells, spans, now) for strip_cells in cells)
    return proxies, auths


def _read_spans(cluster: str, buckets: Buckets) -> dict[str, tuple[InstanceSpan, ...]]:
    changes = InstanceChange.objects.filter(cluster=cluster, at__gt=buckets.since, at__lt=buckets.until)
    columns = ("instance", "at", "new", "is_draining")
    newest = list(changes.order_by("-at", "-pk").values_list(*columns, named=True)[:_CHANGE_LIMIT])
    return spans_of(
        [*instances_at(cluster, buckets.since).values(), *reversed(newest)], buckets.since, buckets.until
    )


def _is_gone_throughout(spans: tuple[InstanceSpan, ...], buckets: Buckets) -> bool:
    return any(
        span.kind.slug == "gone" and span.start <= buckets.since and span.end >= buckets.until
        for span in spans
    )
