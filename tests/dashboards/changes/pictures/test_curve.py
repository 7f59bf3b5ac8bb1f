"""Curves of counts over time."""

from __future__ import annotations

import pytest

from dashboards.changes.pictures.curve import Scale


def test_points_are_scaled_and_cut_to_the_plot() -> None:
    """The largest count is at the top, and nothing leaves the plot."""
    scale = Scale(seconds=10.0, count=4.0)
    assert scale.line([(0, 0), (5, 2), (20, 9)]) == "0,100 50,50 100,0"


def test_steps_hold_until_the_next_point() -> None:
    """And until the end."""
    scale = Scale(seconds=10.0, count=2.0)
    assert scale.steps([(0, 0), (5, 1)], 10.0) == "0,100 50,100 50,50 100,50"
    assert scale.steps([(0, 0)], 0.0) == "0,100"


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (8.0, ("0", "2 s", "4 s", "6 s", "8 s")),
        (120.0, ("0", "30 s", "1 min", "1 min 30 s", "2 min")),
        (3600.0, ("0", "15 min", "30 min", "45 min", "1 h")),
        (3888.0, ("0", "16 min", "32 min", "49 min", "1 h 5 min")),
    ],
)
def test_tick_labels_have_few_digits(seconds: float, labels: tuple[str, ...]) -> None:
    """At a scale that a person reads."""
    assert Scale(seconds, 1.0).tick_labels == labels
