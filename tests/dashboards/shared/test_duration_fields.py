from __future__ import annotations

import pytest
from django import forms
from django.core.exceptions import ValidationError

from dashboards.shared.duration_fields import ReadableDurationField


class _Form(forms.Form):
    wait = ReadableDurationField(initial=86_400)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("24h", 86_400), ("10 min", 600), ("90 s", 90), ("1 h 30 min", 5_400), (" 2 d ", 172_800), ("0", 0)],
)
def test_duration_is_read_as_seconds(text: str, seconds: float) -> None:
    """With its units, with and without blanks."""
    assert ReadableDurationField().clean(text) == seconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "86400",
            "'86400' is not a duration. Enter a number with its unit: 24 h, 10 min, 90 s or 1 h 30 min.",
        ),
        (
            "1 day",
            "'1 day' is not a duration. Enter a number with its unit: 24 h, 10 min, 90 s or 1 h 30 min.",
        ),
        ("2 min", "Enter at least 3 min."),
        ("-1 h", "Enter at least 3 min."),
        ("37 h", "Enter at most 36 h."),
        ("", "This field is required."),
    ],
)
def test_invalid_duration_is_refused(text: str, message: str) -> None:
    """The message shows the form of a duration, or the range."""
    with pytest.raises(ValidationError) as caught:
        ReadableDurationField(minimum=180.0, maximum=36 * 3600.0).clean(text)
    assert caught.value.messages == [message]


def test_empty_optional_duration_has_no_value() -> None:
    """None, not zero seconds."""
    assert ReadableDurationField(required=False).clean("") is None


def test_duration_is_shown_with_units_and_a_typed_text_stays() -> None:
    """The stored seconds as hours; what was refused as it was typed."""
    assert 'value="24 h"' in str(_Form()["wait"])
    assert 'value="86400"' in str(_Form({"wait": "86400"})["wait"])
