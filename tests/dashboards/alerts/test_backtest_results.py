"""The picture of a backtest."""

from __future__ import annotations

from dashboards.alerts.backtest_results import describe_duration, draw_backtest
from fleet.alerts.backtest import FiringPeriod

_DAY_SECONDS = 86400.0
#: 2026-11-28 00:00 UTC.
_UNTIL = 1_795_824_000.0
_SINCE = _UNTIL - 7 * _DAY_SECONDS


def test_picture_has_a_line_for_each_cause_and_a_mark_for_each_day() -> None:
    """The cause with the most time first; a short time stays visible."""
    periods = [
        FiringPeriod("p1", _SINCE, _SINCE + 3600, 40),
        FiringPeriod("p2", _SINCE + _DAY_SECONDS, _SINCE + 2 * _DAY_SECONDS, 1),
        FiringPeriod("p1", _UNTIL - 60, _UNTIL, 7),
    ]
    picture = draw_backtest(periods, {"p1": "proxy-1", "p2": "proxy-2"}, _SINCE, _UNTIL)
    assert picture is not None
    assert [(line.cause, len(line.bars)) for line in picture.lines] == [("proxy-2", 1), ("proxy-1", 2)]
    (long_bar,) = picture.lines[0].bars
    assert (long_bar.x, long_bar.width) == (142.9, 142.9)
    assert long_bar.title == "proxy-2: 2026-11-22 00:00 UTC, 24 h, 1 agent at the peak"
    assert picture.lines[1].bars[1].width >= 3
    assert [label for _, label in picture.day_marks] == ["11-22", "11-23", "11-24", "11-25", "11-26", "11-27"]
    assert draw_backtest([], {}, _SINCE, _UNTIL) is None


def test_many_causes_share_a_line() -> None:
    """No more than eight lines; a rule about the whole fleet has one."""
    periods = [FiringPeriod(f"p{number}", _SINCE, _SINCE + 60 + number, 1) for number in range(12)]
    picture = draw_backtest(periods, {}, _SINCE, _UNTIL)
    assert picture is not None
    assert [line.cause for line in picture.lines][-2:] == ["p5", "5 more causes"]
    assert len(picture.lines[-1].bars) == 5
    whole = draw_backtest([FiringPeriod("", _SINCE, _UNTIL, 1)], {}, _SINCE, _UNTIL)
    assert whole is not None
    assert whole.lines[0].cause == "whole fleet"


def test_period_that_still_lasts_has_no_end() -> None:
    period = FiringPeriod("p1", _UNTIL - 90, _UNTIL, 7)
    assert describe_duration(period, _UNTIL) == "1 min 30 s so far"
    assert describe_duration(period, _UNTIL + 5) == "1 min 30 s"
