from __future__ import annotations

import numpy as np
import pytest

from dashboards.fleet.replay_markers import Marker
from dashboards.fleet.timeline.buckets import Buckets, split_range
from dashboards.fleet.timeline.chart_lanes import TimeAxis
from dashboards.fleet.timeline.line_chart import HistoryChart, draw_history, plot_data_of, ticks_of
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
    return draw_history(columns, buckets, incidents, changes)


def test_chart_of_a_fault() -> None:
    """Its peak, its start, its area and its row of the table agree."""
    buckets = split_range(NOW - 6 * HOUR, NOW)
    rows = _minutes(buckets.since, NOW)
    rows[100:103] = [(at, 67, 3) for at, _, _ in rows[100:103]]
    chart = _draw(_columns(*rows), buckets)

    worst_start = buckets.since + 100 * 60
    assert (chart.peak, chart.worst_start) == (67, worst_start)
    assert chart.summary.startswith(
        "Peaks in this range: 67 agents stranded (first at 2023-11-14 19:40 UTC), 3 agents"
    )
    assert (len(chart.stranded_areas), len(chart.at_risk_areas)) == (1, 1)
    data = plot_data_of(chart)
    assert data["stranded"][99:104] == [0, 67, 67, 67, 0]
    assert data["peak_starts"][100] == worst_start * 1000
    worst_row = max(chart.rows, key=lambda row: row.stranded_peak or 0)
    assert (worst_row.label, worst_row.query) == ("2023-11-14 19:40", "peak_of=2023-11-14T19:40:00.000Z")
    assert chart.rows[0].label > chart.rows[-1].label
    band = next(band for band in chart.bands if band.target == worst_row.query)
    assert band.title == "2023-11-14 19:40 to 19:45 UTC: 67 stranded and 3 at risk at most."
    assert chart.gaps == ()


def test_stopped_polling_is_a_gap_and_not_zero() -> None:
    """In the drawing, the data of the script, the table and the sentence."""
    buckets = split_range(NOW - 6 * HOUR, NOW)
    rows = _minutes(buckets.since, NOW - 5 * HOUR) + _minutes(NOW - 3 * HOUR, NOW)
    chart = _draw(_columns(*rows), buckets)

    assert [gap.title for gap in chart.gaps] == ["No data from 2023-11-14 19:00 to 21:00 UTC"]
    assert plot_data_of(chart)["stranded"][59:61] == [0, None]
    assert [row.gap_text for row in chart.rows if row.stranded_peak is None] == ["10 min"] * 12
    assert "the recorded part of this range" in chart.summary
    assert "No data for 2 h." in chart.summary


def test_late_minute_at_the_end_is_no_gap() -> None:
    """It is written when it is over; more than two minutes are a gap."""
    buckets = split_range(NOW - 6 * HOUR, NOW)
    assert _draw(_columns(*_minutes(buckets.since, NOW - 120)), buckets).gaps == ()
    assert len(_draw(_columns(*_minutes(buckets.since, NOW - 180)), buckets).gaps) == 1


def test_rows_that_are_longer_than_a_column() -> None:
    """An hour of the history covers its columns, which lead to the peak of the hour."""
    buckets = split_range(NOW - 2 * HOUR, NOW)
    chart = _draw(_columns((NOW - 2 * HOUR, 4, 0), (NOW - HOUR, 0, 0), duration=HOUR), buckets)
    data = plot_data_of(chart)
    assert data["stranded"] == [4] * 60 + [0] * 60
    assert set(data["peak_starts"][:60]) == {(NOW - 2 * HOUR) * 1000}
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
        Marker("Change 3", NOW - HOUR, None, "/c/", state="running"),
        Marker("Change 4", NOW - HOUR, NOW - HOUR / 2, "/d/", state="failed"),
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
    assert [(change.title, change.target, change.tone) for change in chart.changes] == [
        ("proxy-1: version 1 to 2; 2023-11-14 23:00 UTC", "", ""),
        ("Change 3 (running); 2023-11-14 23:00 UTC, in progress", "/c/", "running"),
        ("Change 4 (failed); 2023-11-14 23:00 to 23:30 UTC", "/d/", "failed"),
    ]
    assert chart.summary.endswith("2 incidents, 2 changes and 1 other event.")
    assert [bar.title[:8] for bar in chart.listed_changes] == ["Change 4", "Change 3"]
    assert [bar.title[:7] for bar in chart.listed_events] == ["proxy-1"]


def test_incidents_of_the_same_time_have_lines_of_their_own() -> None:
    """A line is used again; only the table has the fifth incident at a time."""
    incidents = (
        Marker("Incident 0", NOW - DAY, NOW - DAY + HOUR / 2, severity="critical"),
        *(Marker(f"Incident {number}", NOW - HOUR, None, severity="critical") for number in range(1, 6)),
    )
    chart = _draw(_columns(*_minutes(NOW - DAY, NOW)), split_range(NOW - DAY, NOW), incidents)

    assert [bar.y for bar in chart.incidents] == [0, 0, 11, 22, 33]
    assert (chart.lane_height, chart.undrawn_count, len(chart.listed_incidents)) == (44, 1, 6)


def test_areas_share_one_scale() -> None:
    """The axis ends with the larger peak; the chart of a day has a column for each minute."""
    buckets = split_range(NOW - DAY, NOW, 1440)
    chart = draw_history(_columns((NOW - DAY, 10, 20), (NOW - DAY + 60, 5, 0)), buckets, (), (), height=120)

    assert (chart.peak, chart.height) == (20, 120)
    assert chart.stranded_areas == ("0,120 0,60 1,60 1,89.8 2,89.8 2,120",)
    assert chart.at_risk_areas == ("0,120 0,0.5 1,0.5 1,120",)


@pytest.mark.parametrize("seconds_after_midnight", [0, 60, 840, 1740])
def test_day_has_rows_of_hours_and_links_of_quarters_of_an_hour(seconds_after_midnight: int) -> None:
    """Whatever the minute at which it ends."""
    now = NOW + seconds_after_midnight
    chart = _draw(_columns(*_minutes(now - DAY, now)), split_range(now - DAY, now, 1440))

    assert chart.period_text == "1 h"
    assert len(chart.rows) in (24, 25)
    assert len(chart.bands) in (96, 97)


def test_words_of_a_chart_that_ends_now() -> None:
    """The period, and times without a date."""
    chart = draw_history(
        _columns((NOW - HOUR, 3, 0)),
        split_range(NOW - DAY, NOW),
        (),
        (),
        period="the last 24 h",
        with_dates=False,
    )
    assert chart.summary.startswith("Peaks in the last 24 h: 3 agents stranded (first at 23:00 UTC).")


def test_calm_period_leads_to_its_first_counts() -> None:
    """Nothing above the base line, but links to the past."""
    chart = _draw(_columns(*_minutes(NOW - HOUR, NOW)), split_range(NOW - HOUR, NOW))
    assert (chart.peak, chart.stranded_areas, chart.at_risk_areas) == (0, (), ())
    assert chart.bands[1].target == "peak_of=2023-11-14T23:01:00.000Z"


def test_nothing_recorded() -> None:
    """One gap, no peak, and a sentence."""
    buckets = split_range(NOW - DAY, NOW)
    empty = CountColumns(np.zeros(0), np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64), ())
    chart = _draw(empty, buckets)
    assert chart.summary == "Refloat has recorded no agent counts in this range."
    assert (chart.peak, chart.worst_start, chart.has_data, chart.bands, len(chart.gaps)) == (
        0,
        None,
        False,
        (),
        1,
    )


def test_labels_of_the_axis() -> None:
    """Times of day, dates at midnight, and none that the edge would cut off."""
    labels = [tick.label for tick in ticks_of(TimeAxis(NOW - DAY, NOW + HOUR)) if tick.label]
    assert labels == ["03:00", "06:00", "09:00", "12:00", "15:00", "18:00", "21:00", "Nov 15"]
    assert len(list(ticks_of(TimeAxis(NOW - 400 * DAY, NOW)))) <= 16
    assert len({tick.label for tick in ticks_of(TimeAxis(NOW - 360, NOW)) if tick.label}) >= 5


def test_labels_near_an_edge_are_left_out() -> None:
    """On narrow screens from a larger distance: there a label is a larger share of the width."""
    for share, is_shown, is_shown_on_narrow in (
        (0.02, False, False),
        (0.05, True, False),
        (0.07, True, True),
    ):
        start = 20_000 * DAY + 6 * HOUR - share * DAY
        tick = next(iter(ticks_of(TimeAxis(start, start + DAY))))
        assert (bool(tick.label), bool(tick.label) and not tick.is_minor) == (is_shown, is_shown_on_narrow)
