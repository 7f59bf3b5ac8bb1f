from __future__ import annotations

from dashboards.fleet.fleet_chart import CHART_SECONDS, ChangeSpan, FleetChart, IncidentSpan, draw_chart
from fleet.monitoring.history.minutes import MinuteCounts
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.incidents import Severity

#: 2023-11-15 00:00 UTC: the end of the chart.
NOW = 1_700_006_400.0
START = NOW - CHART_SECONDS
HOUR = 3600.0


def _minute(at: float, stranded_peak: int = 0, at_risk_peak: int = 0, resolution: int = 60) -> MinuteCounts:
    return MinuteCounts(at, resolution, {}, stranded_peak, at_risk_peak)


def _whole_day(stranded_peak: int = 0) -> list[MinuteCounts]:
    return [_minute(START + 60 * minute, stranded_peak) for minute in range(1440)]


def _incident(number: int, opened_at: float, resolved_at: float | None = None) -> IncidentSpan:
    return IncidentSpan(number, "proxy-1 is not responding.", Severity.CRITICAL, opened_at, resolved_at)


def _chart_of(*incidents: IncidentSpan) -> FleetChart:
    return draw_chart(_whole_day(), incidents, [], NOW)


def test_chart_without_data_is_a_sentence() -> None:
    """Rows that end before the 24 h are no data."""
    chart = draw_chart([_minute(START - 60, 5)], [], [], NOW)

    assert not chart.has_data
    assert chart.summary == "Refloat has recorded no agent counts in the last 24 h."


def test_calm_day_is_a_flat_line() -> None:
    """Nothing above the base line, and no gap."""
    chart = draw_chart(_whole_day(), [], [], NOW)

    assert chart.summary == "No agent was stranded or at risk in the last 24 h."
    assert (chart.peak, chart.gaps) == (0, ())
    assert chart.stranded_areas == chart.at_risk_areas == ()


def test_areas_share_one_scale() -> None:
    """The axis ends with the larger peak."""
    counts = [_minute(START, 10, 20), _minute(START + 60, 5, 0)]
    chart = draw_chart(counts, [], [], NOW)

    assert chart.peak == 20
    assert chart.stranded_areas == ("0,120 0,60 1,60 1,89.8 2,89.8 2,120",)
    assert chart.at_risk_areas == ("0,120 0,0.5 1,0.5 1,120",)


def test_missing_minutes_are_gaps() -> None:
    """Also at the begin; at the end only when more than the newest minute is late."""
    counts = _whole_day()
    chart = draw_chart([*counts[60:120], *counts[180:1438]], [], [], NOW)
    dead = draw_chart(counts[:-60], [], [], NOW)

    assert [(gap.x, gap.width) for gap in chart.gaps] == [(0.0, 4.167), (8.333, 4.167)]
    assert chart.gaps[1].title == "No data 02:00 to 03:00 UTC"
    assert [round(gap.x, 1) for gap in dead.gaps] == [95.8]
    assert "No data for 2 h" in chart.summary


def test_hours_have_labels_that_fit() -> None:
    """A line for each hour; text every 3 h, not at the edges."""
    ticks = _chart_of().ticks

    assert len(ticks) == 24
    assert [tick.label for tick in ticks if tick.label] == [f"{hour:02d}:00" for hour in range(3, 24, 3)]
    assert [tick.label for tick in ticks if tick.label and not tick.is_minor] == ["06:00", "12:00", "18:00"]


def test_bands_link_to_their_worst_minute() -> None:
    """To the peak of the first minute that has it; without affected agents, to the end of the first minute."""
    counts = [_minute(START, 0), _minute(START + 60, 7), _minute(START + 120, 7), _minute(NOW - 60, 0)]
    bands = draw_chart(counts, [], [], NOW - 30).bands

    assert [band.target for band in bands] == [
        "?peak_of=2023-11-14T00:01:00.000Z",
        "?at=2023-11-14T23:59:30.000Z",
    ]
    assert bands[0].title.startswith("00:00 to 00:15 UTC: 7 stranded and 0 at risk at most.")


def test_incidents_of_the_same_time_have_lines_of_their_own() -> None:
    """A line is used again; from the fifth on only the table has them."""
    parallel_incidents = [_incident(number, START + HOUR) for number in range(5)]
    chart = _chart_of(_incident(8, START, START + HOUR / 2), *parallel_incidents)

    assert [bar.y for bar in chart.incidents] == [0, 0, 11, 22, 33]
    assert (chart.lane_height, chart.undrawn_count, len(chart.listed_incidents)) == (44, 1, 6)


def test_incident_has_its_times_and_words() -> None:
    """Resolved ones are calm; bars that are too short stay visible at the right edge."""
    open_bar, resolved_bar = _chart_of(
        _incident(2, NOW), _incident(1, START - HOUR, START + HOUR)
    ).listed_incidents

    assert (resolved_bar.x, resolved_bar.width, resolved_bar.tone) == (0.0, 4.167, "resolved")
    assert (open_bar.x, open_bar.width, open_bar.tone) == (99.5, 0.5, "critical")
    assert resolved_bar.target == "/incidents/1/"
    assert resolved_bar.title == (
        "Incident 1 (critical): proxy-1 is not responding; opened 23:00 UTC, resolved 01:00 UTC"
    )
    assert open_bar.title.endswith("opened 00:00 UTC, open")


def test_change_has_its_times_and_words() -> None:
    """From start to end, or to the end of the chart."""
    changes = [
        ChangeSpan(3, "Raise the TTL.", ChangeState.VERIFIED, START + HOUR, START + 2 * HOUR),
        ChangeSpan(4, "Move agents", ChangeState.RUNNING, START + 12 * HOUR, None),
    ]
    first_bar, second_bar = draw_chart(_whole_day(), [], changes, NOW).changes

    assert (first_bar.x, first_bar.width, first_bar.target) == (4.167, 4.166, "/changes/3/")
    assert first_bar.title == "Change 3 (verified): Raise the TTL; started 01:00 UTC, ended 02:00 UTC"
    assert (second_bar.x, second_bar.width) == (50.0, 50.0)
    assert second_bar.title == "Change 4 (running): Move agents; started 12:00 UTC, in progress"


def test_table_has_every_hour() -> None:
    """The newest first, with its peaks and what is missing; a row of the history may cover an hour."""
    counts = [_minute(START, 3, resolution=3600), _minute(START + HOUR, 1, 2)]
    hours = draw_chart(counts, [], [], NOW).hours

    assert len(hours) == 24
    assert (hours[0].label, hours[0].stranded_peak, hours[0].gap_text, hours[0].query) == (
        "2023-11-14 23:00", None, "1 h", "",
    )  # fmt: skip
    assert (hours[-2].stranded_peak, hours[-2].at_risk_peak, hours[-2].gap_text) == (1, 2, "59 min")
    assert (hours[-1].stranded_peak, hours[-1].gap_text) == (3, "")
    assert hours[-1].query == "?peak_of=2023-11-14T00:00:00.000Z"


def test_past_chart_says_when_it_ends() -> None:
    """Its period is no longer the last 24 h."""
    summary = draw_chart(_whole_day(), [], [], NOW, is_past=True).summary
    assert summary == "No agent was stranded or at risk in the 24 h before 2023-11-15 00:00 UTC."
