from __future__ import annotations

from dashboards.shared.step_lines import CountSample, StepScale, split_at_gaps

SCALE = StepScale(since=0, until=600, width=100, height=11, peak=10)


def test_line_has_one_step_for_each_change() -> None:
    """Counts that repeat add no points; the line ends with the last sample."""
    run = [CountSample(0, 60, 0), CountSample(60, 60, 0), CountSample(120, 60, 10), CountSample(180, 60, 10)]

    assert SCALE.line_of(run) == "0,10.5 20,10.5 20,0.5 40,0.5"


def test_areas_leave_out_zeros() -> None:
    """A polygon for each run above 0, from the bottom."""
    counts = [0, 10, 5, 0, 10]
    samples = [CountSample(60 * minute, 60, count) for minute, count in enumerate(counts)]

    assert SCALE.areas_of(samples) == ("10,11 10,0.5 20,0.5 20,5.5 30,5.5 30,11", "40,11 40,0.5 50,0.5 50,11")


def test_times_and_counts_outside_are_at_the_edge() -> None:
    """A row of the history may begin before the chart."""
    assert SCALE.line_of([CountSample(-60, 3600, 99)]) == "0,0.5 100,0.5"


def test_minutes_that_do_not_touch_are_runs() -> None:
    """No line is drawn through minutes without data."""
    samples = [CountSample(60, 60, 1), CountSample(120, 60, 2), CountSample(300, 60, 3)]

    assert [len(run) for run in split_at_gaps(samples)] == [2, 1]
