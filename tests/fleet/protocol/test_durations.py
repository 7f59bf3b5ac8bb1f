"""Go durations: parsing and formatting."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleet.protocol import durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("30s", 30.0),
        ("1m", 60.0),
        ("1h15m30.918s", 4530.918),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("100us", 0.0001),
        ("100µs", 0.0001),
        ("-1m", -60.0),
        ("+2s", 2.0),
        ("10ns", 1e-8),
    ],
)
def test_parse_accepts_every_go_spelling(text: str, seconds: float) -> None:
    """Every spelling that Go's ParseDuration accepts gives the same duration."""
    assert durations.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "-", "30", "s", "1d", "1 s", "1s ", "not-a-duration", ".s", "1s2", "9999999h", "٣s"]
)
def test_parse_refuses_what_go_refuses(text: str) -> None:
    """The error quotes the text."""
    with pytest.raises(durations.DurationError, match="is not a duration"):
        durations.parse(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (60.0, "1m0s"),
        (600.0, "10m0s"),
        (3600.0, "1h0m0s"),
        (1.5, "1.5s"),
        (0.5, "500ms"),
        (0.0000015, "1.5µs"),
        (1e-9, "1ns"),
        (-90.25, "-1m30.25s"),
        (710610606.023, "197391h50m6.023s"),
    ],
)
def test_format_matches_go(seconds: float, text: str) -> None:
    """Seconds are formatted like Go's Duration.String."""
    assert durations.format_seconds(seconds) == text


@given(st.integers(-(10**15), 10**15))
def test_format_and_parse_round_trip(nanoseconds: int) -> None:
    """A text has every nanosecond of a duration up to eleven days."""
    text = durations.format_seconds(nanoseconds / durations.NANOSECONDS_PER_SECOND)
    assert durations.parse_nanoseconds(text) == nanoseconds


@given(st.integers(-(10**13), 10**13))
@example(710_610_606_023)
def test_milliseconds_survive_as_text(milliseconds: int) -> None:
    """A text has every millisecond of a duration, up to the longest of Go: 292 years."""
    seconds = milliseconds / 1000
    limit = durations.from_nanoseconds((1 << 63) - 1)
    assert durations.parse(durations.format_seconds(seconds)) == max(min(seconds, limit), -limit)


def test_very_long_text_is_refused_quickly() -> None:
    """A hundred thousand digits are refused quickly, and the error does not quote all of them."""
    for text in ("1" * 100_000, "1" * 200, "1h" * 100_000):
        with pytest.raises(durations.DurationError) as caught:
            durations.parse(text)
        assert len(str(caught.value)) < 200


def test_milliseconds_are_capped() -> None:
    """Milliseconds from another program are capped at a century, so that dates computed from them exist."""
    assert durations.from_milliseconds(1500) == 1.5
    assert durations.from_milliseconds(2**64 - 1) == durations.LONGEST_MS / 1000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.25, "250 ms"), (1.5, "1.5 s"), (59.9, "59.9 s"), (60, "1 min"), (90.4, "1 min 30 s"),
        (600.0, "10 min"), (5_400, "1 h 30 min"), (3_601, "1 h"), (7_200, "2 h"), (90_000, "1 d 1 h"),
    ],
)  # fmt: skip
def test_format_readable(seconds: float, text: str) -> None:
    """The two largest units, without a unit of which there are none."""
    assert durations.format_readable(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("24 h", 86_400), ("24h", 86_400), ("10 min", 600), ("90 s", 90), ("1 h 30 min", 5_400), ("1h30m", 5_400),
        ("2 d", 172_800), ("1.5 h", 5_400), ("500 ms", 0.5), (" 5 m ", 300), ("0", 0), ("-5 s", -5),
    ],
)  # fmt: skip
def test_typed_durations_are_parsed(text: str, seconds: float) -> None:
    """With and without blanks, in the units of people and of Go."""
    assert durations.parse_readable(text) == seconds


@pytest.mark.parametrize("text", ["", "86400", "1.5", "5 hours", "1 h 30", "h", "soon", "1 h, 30 min", "٣ h"])
def test_typed_duration_without_units_is_refused(text: str) -> None:
    """The error shows the form."""
    with pytest.raises(durations.DurationError, match="24 h, 10 min, 90 s or 1 h 30 min"):
        durations.parse_readable(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.25, "250 ms"), (90.5, "1 min 30.5 s"), (86_400, "24 h"), (5_400, "1 h 30 min"),
        (90_061, "25 h 1 min 1 s"), (-5, "-5 s"),
    ],
)  # fmt: skip
def test_format_exact(seconds: float, text: str) -> None:
    """No unit is dropped."""
    assert durations.format_exact(seconds) == text


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_exact_format_and_parse_round_trip(nanoseconds: int) -> None:
    """A form that is saved unchanged keeps its durations, within float precision."""
    text = durations.format_exact(nanoseconds / durations.NANOSECONDS_PER_SECOND)
    assert durations.parse_readable(text) * durations.NANOSECONDS_PER_SECOND == pytest.approx(
        nanoseconds, abs=1
    )


def test_moment_as_time_of_day() -> None:
    """In UTC, to the second."""
    assert durations.format_clock_time(1_790_000_000.9) == "14:13:20 UTC"
