from __future__ import annotations

from dashboards.system.data_health.round_chart import HEIGHT, MAX_BARS, WIDTH, make_chart
from fleet.management.data_health.facts import RoundsPart
from fleet.monitoring.state.poll_log import RoundEntry

_NOW = 1_700_000_000.0


def _part(*durations: float, interval: float = 5.0) -> RoundsPart:
    rounds = [
        RoundEntry(n, _NOW - n * interval - seconds, _NOW - n * interval)
        for n, seconds in enumerate(durations)
    ]
    return RoundsPart(interval=interval, as_of=_NOW, rounds=tuple(rounds))


def test_no_rounds() -> None:
    assert make_chart(RoundsPart(), _NOW) is None


def test_late_round_is_marked_and_above_the_line() -> None:
    """The newest is at the right."""
    chart = make_chart(_part(8.0, *[1.0] * 50), _NOW)
    assert chart is not None
    assert [bar.is_late for bar in chart.bars].count(True) == 1
    late = chart.bars[-1]
    assert late.is_late
    assert late.y < chart.interval_y < min(bar.y for bar in chart.bars[:-1])
    assert (chart.late_count, chart.count, chart.longest_seconds, chart.median_seconds) == (1, 51, 8.0, 1.0)


def test_a_full_hour_fits() -> None:
    """Every bar is within the picture, and rounds within the last minute are counted."""
    chart = make_chart(_part(*[0.1] * 720), _NOW)
    assert chart is not None
    assert len(chart.bars) <= MAX_BARS
    assert all(0 <= bar.x <= WIDTH - bar.width and 0 <= bar.y <= HEIGHT for bar in chart.bars)
    assert chart.rounds_per_minute == 13
