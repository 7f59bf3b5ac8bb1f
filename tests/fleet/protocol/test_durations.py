"""Go durations, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
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
def test_parse_what_go_takes(text: str, seconds: float) -> None:
    """Every spelling Go's ParseDuration takes reads as the same time."""
    assert durations.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "-", "30", "s", "1d", "1 s", "1s ", "not-a-duration", ".s", "1s2", "9999999h", "٣s"]
)
def test_parse_what_go_refuses(text: str) -> None:
    """What Go refuses is refused, with a sentence that shows it."""
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
    ],
)
def test_format_as_go(seconds: float, text: str) -> None:
    """Seconds are written as Go's Duration.String writes them."""
    assert durations.format_seconds(seconds) == text


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_format_then_parse_is_the_same(nanoseconds: int) -> None:
    """What is written reads back to the nanosecond, within a float's reach."""
    text = durations.format_seconds(nanoseconds / durations.NANOSECONDS)
    assert durations.parse_nanoseconds(text) == pytest.approx(nanoseconds, abs=1)


def test_long_nonsense_is_refused_at_once() -> None:
    """Somebody's hundred thousand digits hold nobody up, and are not said back in full."""
    for text in ("1" * 100_000, "1" * 200, "1h" * 100_000):
        with pytest.raises(durations.DurationError) as caught:
            durations.parse(text)
        assert len(str(caught.value)) < 200


def test_milliseconds_of_another_program() -> None:
    """No more than a century: dates that follow from it exist."""
    assert durations.from_milliseconds(1500) == 1.5
    assert durations.from_milliseconds(2**64 - 1) == durations.LONGEST_MS / 1000
