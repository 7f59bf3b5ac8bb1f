from __future__ import annotations

import numpy as np

from dashboards.fleet.chart_lanes import TimeAxis
from dashboards.fleet.replay_markers import Marker
from dashboards.fleet.timeline.buckets import Buckets, split_range
from dashboards.fleet.timeline.line_chart import HistoryChart, draw_history, ticks_of
from fleet.monitoring.history.minute_columns import CountColumns

#: 2023-11-15T00:00:00Z.
NOW = 1_700_006_400.0
HOUR, DAY = 3600.0, 86_400.0


def _columns(*rows: tuple[float, int, int], duration: float = 60.0) -> CountColumns:
    starts, stranded_peaks, at_risk_peaks = (np.array(column) for column in zip(*rows, strict=True))
    return CountColumns(
        starts.astype(float), np.full(len(rows), duration), stranded_peaks, at_risk_peaks, (b"",) * len(rows)
    )


def _minutes(since: float, until: float) -> list[tuple[float, int, int]]:
    return [(since + 60 * minute, 0, 0) for minute in range(round((until - since) / 60))]


def _draw(
    columns: CountColumns,
    buckets: Buckets,
    incidents: tuple[Marker, ...] = (),
    changes: tuple[Marker, ...] = (),
) -> HistoryChart:
    return draw_history(columns, buckets, incidents, changes, NOW)


def test_chart_of_a_fault() -> None:
    """Its peak, its moment, its area and its row of the table agree."""
    buckets = split_range(NOW - 6 * HOUR, NOW)
    rows = _minutes(buckets.since, NOW)
    rows[100:103] = [(at, 67, 3) for at, _, _ in rows[100:103]]
    chart = _draw(_columns(*rows), buckets)

    worst_at = buckets.since + 101 * 60
    assert (chart.peak, chart.worst_at) == (67, worst_at)
    assert chart.summary.startswith(
        "Peaks in this range: 67 agents stranded (first at 2023-11-14 19:40 UTC), 3 agents"
    )
    assert (len(chart.stranded_areas), len(chart.at_risk_areas)) == (1, 1)
    assert chart.data["stranded"][99:104] == [0, 67, 67, 67, 0]
    assert chart.data["moments"][100] == worst_at * 1000
    worst_row = max(chart.rows, key=lambda row: row.stranded_peak or 0)
    assert (worst_row.label, worst_row.at_text) == ("2023-11-14 19:40", "2023-11-14T19:41:00.000Z")
    assert chart.rows[0].label > chart.rows[-1].label
    band = next(band for band in chart.bands if band.target == worst_row.at_text)
    assert "67 stranded and 3 at risk at most. Open the map at that time." in band.title
    assert chart.gaps == ()


def test_stopped_polling_is_a_gap_and_not_zero() -> None:
    """In the drawing, the data of the script, the table and the sentence."""
    buckets = split_range(NOW - 6 * HOUR, NOW)
    rows = _minutes(buckets.since, NOW - 5 * HOUR) + _minutes(NOW - 3 * HOUR, NOW)
    chart = _draw(_columns(*rows), buckets)

    assert [gap.title for gap in chart.gaps] == ["No data from 2023-11-14 19:00 to 2023-11-14 21:00 UTC"]
    assert chart.data["stranded"][59:61] == [0, None]
    assert [row.gap_text for row in chart.rows if row.stranded_peak is None] == ["10 min"] * 12
    assert "the recorded part of this range" in chart.summary
    assert "No data for 2 h." in chart.summary


def test_late_minute_at_the_end_is_no_gap() -> None:
    """It is written when it is over; more than two minutes are a gap."""
    buckets = split_range(NOW - 6 * HOUR, NOW)
    assert _draw(_columns(*_minutes(buckets.since, NOW - 120)), buckets).gaps == ()
    assert len(_draw(_columns(*_minutes(buckets.since, NOW - 180)), buckets).gaps) == 1


def test_rows_that_are_longer_than_a_column() -> None:
    """An hour of the history covers its columns; the moment is inside of the column."""
    buckets = split_range(NOW - 2 * HOUR, NOW)
    chart = _draw(_columns((NOW - 2 * HOUR, 4, 0), (NOW - HOUR, 0, 0), duration=HOUR), buckets)
    assert chart.data["stranded"] == [4] * 60 + [0] * 60
    assert chart.data["moments"][0] == (NOW - 2 * HOUR + 60) * 1000
    assert chart.gaps == ()


def test_markers_are_bars_and_rows() -> None:
    """Open incidents reach to the end; a change without a page has no link; times have dates."""
    buckets = split_range(NOW - DAY, NOW)
    incidents = (
        Marker("Incident 1: proxy-1", NOW - 2 * HOUR, NOW - HOUR, "/incidents/1/", "critical"),
        Marker("Incident 2: proxy-2", NOW - HOUR / 2, None, "/incidents/2/", "warning"),
    )
    changes = (
        Marker("proxy-1: version 1 to 2", NOW - HOUR, NOW - HOUR),
        Marker("Change 3", NOW - HOUR, None, "/c/"),
    )
    chart = _draw(_columns(*_minutes(NOW - DAY, NOW)), buckets, incidents, changes)

    assert [(bar.tone, bar.target) for bar in chart.incidents] == [
        ("resolved", "/incidents/1/"),
        ("warning", "/incidents/2/"),
    ]
    assert chart.incidents[0].title == (
        "Incident 1: proxy-1 (critical); opened 2023-11-14 22:00 UTC, resolved 2023-11-14 23:00 UTC"
    )
    assert chart.listed_incidents == chart.incidents[::-1]
    assert [(change.title, change.target) for change in chart.changes] == [
        ("proxy-1: version 1 to 2; 2023-11-14 23:00 UTC", ""),
        ("Change 3; 2023-11-14 23:00 UTC, in progress", "/c/"),
    ]
    assert chart.summary.endswith("2 incidents and 2 changes.")


def test_nothing_recorded() -> None:
    """One gap, no peak, and a sentence."""
    buckets = split_range(NOW - DAY, NOW)
    empty = CountColumns(np.zeros(0), np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64), ())
    chart = _draw(empty, buckets)
    assert chart.summary == "Refloat has recorded no agent counts in this range."
    assert (chart.peak, chart.worst_at, chart.bands, len(chart.gaps)) == (0, None, (), 1)


def test_labels_of_the_axis() -> None:
    """Times of day, dates at midnight, and none that the edge would cut off."""
    labels = [tick.label for tick in ticks_of(TimeAxis(NOW - DAY, NOW + HOUR)) if tick.label]
    assert labels == ["03:00", "06:00", "09:00", "12:00", "15:00", "18:00", "21:00", "Nov 15"]
    assert len(list(ticks_of(TimeAxis(NOW - 400 * DAY, NOW)))) <= 16
    assert len({tick.label for tick in ticks_of(TimeAxis(NOW - 360, NOW)) if tick.label}) >= 5
