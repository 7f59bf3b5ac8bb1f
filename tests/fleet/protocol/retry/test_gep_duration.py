"""Durations of the Gateway API: every vector of GEP-2257, and invalid texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.protocol.retry import gep_duration
from fleet.protocol.retry.gep_duration import LONGEST_MS, GepDuration, GepDurationError


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0h", "0s"),
        ("0s", "0s"),
        ("0h0m0s", "0s"),
        ("1h", "1h"),
        ("30m", "30m"),
        ("10s", "10s"),
        ("500ms", "500ms"),
        ("2h30m", "2h30m"),
        ("150m", "2h30m"),
        ("7230s", "2h30s"),
        ("1h30m10s", "1h30m10s"),
        ("10s30m1h", "1h30m10s"),
        ("100ms200ms300ms", "600ms"),
        ("00005ms", "5ms"),
        ("5m5ms", "5m5ms"),
        ("99999h59m59s999ms", "99999h59m59s999ms"),
    ],
)
def test_valid_text_is_parsed(text: str, canonical: str) -> None:
    """The canonical form is that of the GEP; the user's text is kept."""
    duration = GepDuration.read(text)

    assert duration.text == text
    assert GepDuration.of(duration.milliseconds) == GepDuration(canonical, duration.milliseconds)


@pytest.mark.parametrize(
    "text",
    [
        "1",
        "1m1",
        "1d",
        "1h30m10s20ms50h",
        "999999h",
        "1.5h",
        "-15m",
        "+15m",
        "",
        "0",
        "5ms\n",
        "\n5ms",
        " 5ms",
        "5 ms",
        "5MS",
        "1us",
        "\u0665ms",
        "\uff15s",
        "ms",
        "1h,1m",
    ],
)
def test_invalid_text_is_refused(text: str) -> None:
    """The error quotes the text and shows a valid form."""
    with pytest.raises(GepDurationError, match=r"is not a duration\. Use") as caught:
        gep_duration.parse(text)
    assert repr(text) in str(caught.value)


def test_ms_is_read_as_milliseconds() -> None:
    """The longer unit is tried first, so `ms` is not minutes."""
    assert gep_duration.parse("500ms") == 500
    assert gep_duration.parse("500m") == 30_000_000
    assert gep_duration.parse("1m1ms") == 60_001


def test_units_may_be_repeated_in_any_order() -> None:
    """The parts add up, even beyond the longest duration that can be written."""
    assert gep_duration.parse("99999h99999h99999h99999h") == 4 * 99999 * 3_600_000


@pytest.mark.parametrize("milliseconds", [-1, LONGEST_MS + 1, gep_duration.parse("99999h99999h99999h99999h")])
def test_format_refuses_lengths_out_of_range(milliseconds: int) -> None:
    """Negative durations and more than five digits of hours cannot be written."""
    with pytest.raises(GepDurationError, match="is out of range"):
        gep_duration.format_milliseconds(milliseconds)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0s"), (864_000.0, "240h"), (0.1, "100ms"), (90.5, "1m30s500ms")]
)
def test_format_seconds(seconds: float, text: str) -> None:
    """Hours are the largest unit: ten days are 240 h."""
    assert gep_duration.format_milliseconds(round(seconds * 1000)) == text
    assert GepDuration.read(text).seconds == seconds


@given(st.integers(0, LONGEST_MS))
def test_format_and_parse_round_trip(milliseconds: int) -> None:
    """Every length that can be written parses to the same length."""
    assert gep_duration.parse(gep_duration.format_milliseconds(milliseconds)) == milliseconds


@given(st.text(st.sampled_from("0123456789hms.- \n"), max_size=12))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """A text is refused or has the same length as its canonical form."""
    try:
        milliseconds = gep_duration.parse(text)
    except GepDurationError:
        return
    assert gep_duration.parse(gep_duration.format_milliseconds(min(milliseconds, LONGEST_MS))) == min(
        milliseconds, LONGEST_MS
    )
