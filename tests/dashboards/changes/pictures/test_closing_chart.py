"""The closing curve of a config change."""

from __future__ import annotations

import pytest

from dashboards.changes.pictures.closing_chart import closing_chart_of, expected_count_at

STEPS = (
    {"nth": 1, "tunnel_count": 10, "earliest_seconds": 20.0, "latest_seconds": 40.0},
    {"nth": 2, "tunnel_count": 4, "earliest_seconds": 40.0, "latest_seconds": 80.0},
)


@pytest.mark.parametrize(
    ("seconds", "count"), [(0, 0), (20, 0), (30, 5), (40, 10), (60, 12), (80, 14), (999, 14)]
)
def test_expected_count_grows_between_the_bounds(seconds: float, count: float) -> None:
    """Each tunnel closes at a random time between the two."""
    assert expected_count_at(STEPS, seconds) == count


def test_planned_chart_has_a_forecast_only() -> None:
    """No actual curve, and no present moment."""
    chart = closing_chart_of(STEPS)
    assert chart is not None
    assert (chart.total_count, chart.actual, chart.now_x) == (14, "", None)
    assert chart.expected.startswith("0,100")
    assert chart.expected.endswith(",0")
    assert chart.tick_labels[0] == "0"


def test_chart_compares_the_plan_with_what_was_seen() -> None:
    """While the change is being verified."""
    chart = closing_chart_of(STEPS, [[25.0, 3], [30.0, 6]], elapsed_seconds=30.0)
    assert chart is not None
    assert (chart.closed_count, chart.expected_now_count) == (6, 5)
    assert chart.actual.startswith("0,100 ")
    assert chart.now_x == pytest.approx(100 * 30 / 120, abs=0.1)


def test_ended_chart_has_no_present_moment() -> None:
    """More closings than planned fit too."""
    chart = closing_chart_of(STEPS, [[100.0, 20]])
    assert chart is not None
    assert (chart.total_count, chart.now_x, chart.expected_now_count) == (20, None, None)


def test_plan_without_closings_has_no_chart() -> None:
    """Nothing to draw."""
    assert closing_chart_of(()) is None
