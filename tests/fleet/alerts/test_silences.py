from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from fleet.alerts.matchers import parse_matchers
from fleet.alerts.silences import (
    Silence,
    Window,
    WindowError,
    find_active_silences,
    find_silence,
    find_silence_name,
)
from fleet.vocabulary.incidents import Incident, IncidentState
from tests.fakes.alerting import PROXY


def _timestamp(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _window(timezone_name: str, first: str, hours: float, rule: str = "FREQ=DAILY") -> Window:
    return Window(
        "w",
        parse_matchers("cause=proxy-*"),
        rule,
        datetime.fromisoformat(first),
        timedelta(hours=hours),
        timezone_name,
    )


def _spans(window: Window, after: str, count: int) -> list[tuple[str, str]]:
    return [
        tuple(
            datetime.fromtimestamp(moment, UTC).strftime("%m-%d %H:%M")
            for moment in (silence.starts_at, silence.ends_at)
        )
        for silence in window.upcoming_silences(_timestamp(after), count)
    ]  # type: ignore[misc]


def test_window_follows_daylight_saving_time() -> None:
    """22:00 to 06:00 in Berlin is an hour longer in the autumn night and an hour shorter in the spring night."""
    night = _window("Europe/Berlin", "2026-01-01T22:00", 8)
    assert _spans(night, "2026-10-24T00:00", 3) == [
        ("10-24 20:00", "10-25 05:00"),
        ("10-25 21:00", "10-26 05:00"),
        ("10-26 21:00", "10-27 05:00"),
    ]
    assert _spans(night, "2026-03-28T00:00", 2) == [
        ("03-28 21:00", "03-29 04:00"),
        ("03-29 20:00", "03-30 04:00"),
    ]


def test_window_follows_daylight_saving_time_of_new_york() -> None:
    """The first Sunday of November."""
    weekly = _window("America/New_York", "2026-01-04T01:30", 1, "FREQ=WEEKLY;BYDAY=SU")
    assert _spans(weekly, "2026-10-31T00:00", 2) == [
        ("11-01 05:30", "11-01 07:30"),
        ("11-08 06:30", "11-08 07:30"),
    ]


def test_window_in_the_skipped_hour_starts_at_the_clock_change() -> None:
    """02:30 does not exist in Berlin on 29 March 2026: the window is from 01:00 UTC, when 02:00 became 03:00."""
    hour = _window("Europe/Berlin", "2026-01-01T02:30", 1)
    assert _spans(hour, "2026-03-28T12:00", 1) == [("03-29 01:00", "03-29 01:30")]


def test_window_is_active_from_its_start_until_its_end() -> None:
    """From its first second to the one before its end."""
    night = _window("Europe/Berlin", "2026-01-01T22:00", 8)
    assert night.current_silence(_timestamp("2026-10-24T19:59:59")) is None
    assert night.current_silence(_timestamp("2026-10-24T20:00")) is not None
    assert night.current_silence(_timestamp("2026-10-25T04:59:59")) is not None
    assert night.current_silence(_timestamp("2026-10-25T05:00")) is None


@pytest.mark.parametrize(
    "window",
    [
        _window("Europe/Nowhere", "2026-01-01T22:00", 8),
        _window("UTC", "2026-01-01T22:00", 8, "FREQ=SOMETIMES"),
        _window("UTC", "2026-01-01T22:00", 8, "FREQ=MINUTELY"),
        _window("UTC", "2026-01-01T22:00", 0),
        _window("UTC", "2026-01-01T22:00", 48),
    ],
)
def test_invalid_window_is_refused(window: Window) -> None:
    with pytest.raises(WindowError, match=" "):
        window.check()


def test_active_silences_and_windows_match_incidents() -> None:
    """Only those of the cluster that are active now."""
    incident = Incident("default", PROXY, 1, IncidentState.FIRING, 0.0)
    own_silence = Silence("mine", parse_matchers("kind=proxy"), 0.0, 100.0)
    other_silence = Silence("others", (), 0.0, 100.0, cluster="other")
    window = _window("UTC", "1970-01-01T00:00", 1)
    assert [
        silence.name
        for silence in find_active_silences([own_silence, other_silence], [window], "default", 50.0)
    ] == [
        "mine",
        "w",
    ]
    active_silences = find_active_silences([own_silence], [], "default", 50.0)
    assert find_silence_name(incident, active_silences) == "mine"
    assert find_silence(incident, active_silences) is own_silence
    assert (
        find_silence_name(incident, find_active_silences([own_silence, other_silence], [], "default", 100.0))
        == ""
    )


@pytest.mark.parametrize(
    "window",
    [
        _window("UTC", "0001-01-01T00:00", 1, "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"),
        _window("UTC", "2026-01-01T00:00", 1, "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"),
        _window("UTC", "2026-01-01T00:00", 1, "FREQ=YEARLY;INTERVAL=1000;BYMONTHDAY=31;BYMONTH=2"),
        _window("UTC", "0001-01-01T00:00", 1, "FREQ=DAILY"),
        _window("UTC", "9999-12-31T23:00", 8, "FREQ=DAILY"),
        _window("UTC", "2026-01-01T00:00", 1, "FREQ=DAILY;BYHOUR=0,1,2;BYMINUTE=0,1,2"),
        _window("UTC", "2026-01-01T00:00", 1, "FREQ=WEEKLY;COUNT=3"),
        _window("Europe/Nowhere", "2026-01-01T00:00", 1),
    ],
)
def test_invalid_window_does_not_slow_down_evaluations(window: Window) -> None:
    """A stored row from before the check is never active, and evaluations stay fast."""
    started_at = time.process_time()
    with pytest.raises(WindowError, match=" "):
        window.check()
    for _ in range(50):
        assert find_active_silences([], [window], "default", _timestamp("2026-02-28T00:30")) == []
        assert window.upcoming_silences(_timestamp("2026-02-28T00:30"), 3) == []
    assert time.process_time() - started_at < 3.0


def test_old_window_does_not_slow_down_evaluations() -> None:
    """Past recurrences are not computed."""
    window = _window("UTC", "1970-01-01T00:00", 1)
    started_at = time.process_time()
    for _ in range(50):
        assert window.current_silence(_timestamp("2026-02-28T00:30")) is not None
    assert len(window.upcoming_silences(_timestamp("2026-02-28T00:30"), 3)) == 3
    assert time.process_time() - started_at < 1.0


def test_occurrences_of_a_time_range_are_listed_once() -> None:
    """Those that last at its begin, and those that start before its end; none of a window that is not valid."""
    window = _window("Europe/Berlin", "2026-01-01T22:00", 8)
    begin, end = _timestamp("2026-03-28T00:00"), _timestamp("2026-03-30T00:00")
    spans = [(silence.starts_at, silence.ends_at) for silence in window.silences_between(begin, end)]
    assert spans == [
        (_timestamp("2026-03-27T21:00"), _timestamp("2026-03-28T05:00")),
        (_timestamp("2026-03-28T21:00"), _timestamp("2026-03-29T04:00")),
        (_timestamp("2026-03-29T20:00"), _timestamp("2026-03-30T04:00")),
    ]
    assert window.silences_between(_timestamp("2025-01-01T00:00"), _timestamp("2025-02-01T00:00")) == []
    assert _window("Mars/Base", "2026-01-01T22:00", 8).silences_between(begin, end) == []
