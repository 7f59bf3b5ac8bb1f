from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

from dashboards.alerts.silences.calendar import CalendarEntry, build_calendar, end_of_calendar

_BERLIN, _UTC = ZoneInfo("Europe/Berlin"), ZoneInfo("UTC")


def _at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _entry(name: str, begin: str, end: str, *, is_window: bool = True) -> CalendarEntry:
    return CalendarEntry(name, _at(begin), _at(end), is_window)


def test_entry_is_drawn_on_each_of_its_days() -> None:
    """A night is the end of one day and the begin of the next."""
    night = _entry("night", "2026-11-28T22:00", "2026-11-29T06:00")
    first, second, third = build_calendar([night], _at("2026-11-28T12:00"), _UTC, 3)
    assert (first.day, first.is_today, first.now_x) == (date(2026, 11, 28), True, 50.0)
    assert [(bar.x, bar.width, bar.text, bar.label_side) for bar in first.bars] == [
        (91.67, 8.33, "from 22:00", "left")
    ]
    assert [(bar.x, bar.width, bar.text, bar.label_side) for bar in second.bars] == [
        (0.0, 25.0, "until 06:00", "right")
    ]
    assert (third.bars, third.now_x) == ((), None)


def test_entries_of_one_name_share_a_lane_and_a_label() -> None:
    """Others, and those that overlap, have lanes of their own."""
    entries = [
        _entry("night", "2026-11-27T22:00", "2026-11-28T06:00"),
        _entry("night", "2026-11-28T22:00", "2026-11-29T06:00"),
        _entry("proxy-1", "2026-11-28T01:00", "2026-11-28T02:00", is_window=False),
        _entry("proxy-1", "2026-11-28T01:30", "2026-11-28T02:30", is_window=False),
    ]
    (day,) = build_calendar(entries, _at("2026-11-28T12:00"), _UTC, 1)
    assert [(bar.y, bar.label) for bar in day.bars] == [
        (2, "night"),
        (2, ""),
        (24, "proxy-1"),
        (46, "proxy-1"),
    ]
    assert day.height == 66


def test_days_are_those_of_the_time_zone() -> None:
    """The day on which clocks change has 23 hours; a whole day and a minute can be seen."""
    now = _at("2026-03-28T23:30")
    entries = [
        _entry("all", "2026-03-01T00:00", "2026-04-01T00:00"),
        _entry("short", "2026-03-29T21:59", "2026-03-29T22:00"),
        _entry("morning", "2026-03-29T00:00", "2026-03-29T01:00"),
    ]
    (day,) = build_calendar(entries, now, _BERLIN, 1)
    assert day.day == date(2026, 3, 29)
    texts = {bar.entry.name: (bar.x, bar.width, bar.text) for bar in day.bars}
    assert texts["all"] == (0.0, 100.0, "all day")
    assert texts["short"] == (99.0, 1.0, "from 23:59")
    assert texts["morning"] == (4.35, 4.35, "01:00 to 03:00")
    assert end_of_calendar(now, _BERLIN, 1) == _at("2026-03-29T22:00")
