from __future__ import annotations

from dataclasses import dataclass

from dashboards.fleet.fleet_chart_words import describe_counts, describe_period, format_clock, summary_of

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
    assert format_clock(MIDNIGHT, with_date=True) == "2023-11-15 00:00"
    assert describe_period(MIDNIGHT) == "the 24 h before 2023-11-15 00:00 UTC"


def test_counts_are_the_maxima() -> None:
    """Of all minutes of a quarter of an hour."""
    assert describe_counts([_Peaks(0, 1, 2), _Peaks(60, 1200, 0)]) == "1,200 stranded and 2 at risk at most"
    assert describe_counts([_Peaks(0, 0, 0)]) == "no agent stranded or at risk"


def test_summary_has_peaks_gaps_and_numbers() -> None:
    """The first minute of each peak; what did not happen is left out."""
    rows = [_Peaks(MIDNIGHT, 0, 1), _Peaks(MIDNIGHT + 60, 67, 0), _Peaks(MIDNIGHT + 120, 67, 1)]

    assert summary_of(rows, "the last 24 h", 5400, [1, 2], [1]) == (
        "Peaks in the last 24 h: 67 agents stranded (first at 00:01 UTC), 1 agent at risk (first at 00:00 UTC). "
        "No data for 1 h 30 min. 2 incidents and 1 change."
    )


def test_summary_of_a_calm_day() -> None:
    """One sentence; with missing data it claims only what was recorded."""
    rows = [_Peaks(MIDNIGHT, 0, 0)]

    assert summary_of(rows, "the last 24 h", 0, [], []) == (
        "No agent was stranded or at risk in the last 24 h."
    )
    assert summary_of(rows, "the last 24 h", 3600, [], [1]) == (
        "No agent was stranded or at risk in the recorded part of the last 24 h. No data for 1 h. 1 change."
    )
