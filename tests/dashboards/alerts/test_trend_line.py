from __future__ import annotations

from dashboards.alerts.trend_line import trend_points_of


def test_trend_is_a_stepped_line_within_its_box() -> None:
    """From the first count to now."""
    points = [
        tuple(map(float, pair.split(","))) for pair in trend_points_of([(0, 10), (50, 20)], 100).split()
    ]
    assert [x for x, _ in points] == [0.0, 60.0, 60.0, 120.0]
    assert all(0 <= y <= 28 for _, y in points)
    assert points[0][1] > points[-1][1]
    assert trend_points_of([], 1) == ""
