from __future__ import annotations

from dataclasses import dataclass

from dashboards.fleet.timeline.chart_words import (
    EventCounts,
    describe_counts,
    describe_period,
    format_clock,
    format_minute,
    format_span,
    summary_of,
)

#: 2023-11-15 00:00 UTC.
MIDNIGHT = 1_700_006_400.0


@dataclass(frozen=True)
class _Peaks:
    at: float
    stranded_peak: int
    at_risk_peak: int


def test_times_are_utc_to_the_minute() -> None:
    """With the date where a page shows more than a day."""
    assert format_clock(MIDNIGHT + 37_000) == "10:16"
    assert format_minute(MIDNIGHT) == "2023-11-15 00:00"
    assert format_span(MIDNIGHT, MIDNIGHT + 300) == "2023-11-15 00:00 to 00:05 UTC"
    assert format_span(MIDNIGHT - 60, MIDNIGHT) == "2023-11-14 23:59 to 2023-11-15 00:00 UTC"
    assert describe_period(MIDNIGHT) == "the 24 h before 2023-11-15 00:00 UTC"


def test_counts_are_the_maxima() -> None:
    """Of all minutes of a quarter of an hour."""
    assert describe_counts([_Peaks(0, 1, 2), _Peaks(60, 1200, 0)]) == "1,200 stranded and 2 at risk at most"
    assert describe_counts([_Peaks(0, 0, 0)]) == "no agent stranded or at risk"


def test_summary_has_peaks_gaps_and_numbers() -> None:
    """The first minute of each peak; what did not happen is left out."""
    rows = [_Peaks(MIDNIGHT, 0, 1), _Peaks(MIDNIGHT + 60, 67, 0), _Peaks(MIDNIGHT + 120, 67, 1)]

    assert summary_of(rows, "the last 24 h", 5400, EventCounts(2, 1), with_dates=False) == (
        "Peaks in the last 24 h: 67 agents stranded (first at 00:01 UTC), 1 agent at risk (first at 00:00 UTC). "
        "No data for 1 h 30 min. 2 incidents and 1 change."
    )


def test_summary_tells_changes_from_other_events() -> None:
    """Versions and drains are no changes: Fleet now, which does not show them, counts the same changes."""
    counts = EventCounts(1, 11, 17)
    summary = summary_of([_Peaks(MIDNIGHT, 0, 0)], "this range", 0, counts, with_dates=True)
    assert summary.endswith("1 incident, 11 changes and 17 other events.")


def test_times_of_a_longer_period_have_dates() -> None:
    """Within the last 24 h, the time of day is enough."""
    summary = summary_of([_Peaks(MIDNIGHT, 1, 0)], "this range", 0, EventCounts(), with_dates=True)
    assert summary == "Peaks in this range: 1 agent stranded (first at 2023-11-15 00:00 UTC)."


def test_summary_of_a_calm_day() -> None:
    """One sentence; with missing data it claims only what was recorded."""
    rows = [_Peaks(MIDNIGHT, 0, 0)]

    assert summary_of(rows, "the last 24 h", 0, EventCounts(), with_dates=False) == (
        "No agent was stranded or at risk in the last 24 h."
    )
    assert summary_of(rows, "the last 24 h", 3600, EventCounts(changes=1), with_dates=False) == (
        "No agent was stranded or at risk in the recorded part of the last 24 h. No data for 1 h. 1 change."
    )
