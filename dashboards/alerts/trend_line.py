"""The line of the affected agents of an incident over time. Pure."""

from __future__ import annotations

from collections.abc import Sequence

#: Width and height of the trend chart.
_TREND_WIDTH, _TREND_HEIGHT = 120.0, 28.0


def trend_points_of(trend: Sequence[tuple[float, int]], ends_at: float) -> str:
    """Return the counts as a stepped line for an SVG polyline; empty without data."""
    if not trend:
        return ""
    started_at = trend[0][0]
    span = max(ends_at - started_at, 1.0)
    peak = max((count for _, count in trend), default=1) or 1
    points, last_y = [], None
    for at, count in trend:
        x = (at - started_at) / span * _TREND_WIDTH
        y = _TREND_HEIGHT - 1 - count / peak * (_TREND_HEIGHT - 3)
        if last_y is not None:
            points.append(f"{x:.1f},{last_y:.1f}")
        points.append(f"{x:.1f},{y:.1f}")
        last_y = y
    return " ".join([*points, f"{_TREND_WIDTH:.1f},{last_y:.1f}"])
