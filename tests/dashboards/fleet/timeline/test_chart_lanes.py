from __future__ import annotations

from dashboards.fleet.timeline.chart_lanes import (
    BAR_LINE_HEIGHT,
    MIN_BAR_WIDTH,
    ChartBar,
    TimeAxis,
    place_on_lines,
)

AXIS = TimeAxis(1000, 2000)


def test_positions_are_shares_of_the_width() -> None:
    """Times outside are at the edge."""
    assert [AXIS.x_of(at) for at in (900, 1000, 1250, 2000, 2100)] == [0, 0, 25, 100, 100]
    assert AXIS.bar_of(1100, 1100, "x") == ChartBar(10, 0, "x")


def test_visible_bars_have_a_width() -> None:
    """At the right edge they grow to the left."""
    assert AXIS.visible_bar_of(1100, 1100, "x").width == MIN_BAR_WIDTH
    assert AXIS.visible_bar_of(2000, 2000, "x").x == 100 - MIN_BAR_WIDTH
    bar = AXIS.visible_bar_of(1100, 1300, "x", target="/incidents/1/", tone="critical")
    assert (bar.x, bar.width, bar.target, bar.tone) == (10, 20, "/incidents/1/", "critical")


def test_bars_that_overlap_are_on_other_lines() -> None:
    """Each on the first free line; there are four."""
    bars = [AXIS.bar_of(1000 + 10 * start, 1500, str(start)) for start in range(5)]
    placed, line_count = place_on_lines([*bars, AXIS.bar_of(1600, 1700, "later")])
    assert [(bar.title, bar.y // BAR_LINE_HEIGHT) for bar in placed] == [
        ("0", 0), ("1", 1), ("2", 2), ("3", 3), ("later", 0),
    ]  # fmt: skip
    assert line_count == 4
    assert place_on_lines([]) == ((), 0)
