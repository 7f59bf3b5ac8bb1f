"""Curves of counts over time."""

from __future__ import annotations

import pytest

from dashboards.changes.pictures.curve import Scale, cover


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
        (0.9, ("0", "250 ms", "500 ms", "750 ms", "1 s")),
        (8.0, ("0", "2 s", "4 s", "6 s", "8 s")),
        (68.0, ("0", "20 s", "40 s", "1 min", "1 min 20 s")),
        (120.0, ("0", "30 s", "1 min", "1 min 30 s", "2 min")),
        (3888.0, ("0", "20 min", "40 min", "1 h", "1 h 20 min")),
        (90_000.0, ("0", "12 h", "24 h", "1 d 12 h", "2 d")),
        (800_000.0, ("0", "3 d", "6 d", "9 d", "12 d")),
    ],
)
def test_plot_ends_at_a_label_that_a_person_reads(seconds: float, labels: tuple[str, ...]) -> None:
    """No time of the curve is cut off."""
    scale = cover(seconds, 1.0)
    assert scale.tick_labels == labels
    assert scale.seconds >= seconds
