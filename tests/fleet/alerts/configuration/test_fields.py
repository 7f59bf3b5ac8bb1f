from __future__ import annotations

from datetime import date, time
from typing import Any

import pytest

from fleet.alerts.configuration import fields
from fleet.alerts.configuration.fields import (
    ChannelReference,
    FieldError,
    FieldSpec,
    Secret,
    SecretReference,
    find_variables,
    placeholder_of,
)

_TEXT = fields.text_field("name", max_length=5, is_required=True)
_FLAG = fields.flag_field("is_enabled", default=True)
_COUNT = fields.count_field("min_count", default=1, maximum=9)
_CHOICE = fields.choice_field("digest", {"daily": "daily", "never": ""})
_DURATION = fields.duration_field("group_wait", default=30.0)
_OPTIONAL_DURATION = fields.duration_field("escalate_after", default=None)
_SHARE = fields.share_field("min_share", default=0.0)
_TIME = fields.time_field("quiet_from")
_DAY = fields.day_field("first_day")
_CHANNELS = fields.channels_field("channels")
_SECRET = fields.secret_field("url", max_length=5)


@pytest.mark.parametrize(
    ("spec", "document_value", "value"),
    [
        (_TEXT, "a b", "a b"),
        (_FLAG, False, False),
        (_COUNT, 9, 9),
        (_CHOICE, "never", ""),
        (_DURATION, "15 min", 900.0),
        (_DURATION, "1 h 30 min", 5400.0),
        (_OPTIONAL_DURATION, None, None),
        (_SHARE, "0.5 %", 0.005),
        (_TIME, "22:00", time(22)),
        (_TIME, "22:00:01", time(22, 0, 1)),
        (_TIME, None, None),
        (_DAY, date(2026, 11, 22), date(2026, 11, 22)),
        (_CHANNELS, ["a", {"name": "b", "cluster": ""}], (ChannelReference("a"), ChannelReference("b", ""))),
        (_SECRET, "${HOOK_URL}", SecretReference("HOOK_URL")),
    ],
)
def test_value_is_read_and_written_back(spec: FieldSpec, document_value: Any, value: Any) -> None:
    """As it stood in the document."""
    assert spec.parse(document_value) == value
    assert spec.format(value) == document_value


@pytest.mark.parametrize(
    ("spec", "document_value", "message"),
    [
        (_TEXT, 5, "5 is not text. Put it in quotes"),
        (_TEXT, "too long", "more than 5 characters"),
        (_TEXT, "a\nb", "unprintable"),
        (_TEXT, " ", "empty"),
        (_FLAG, "yes", "is not true or false"),
        (_COUNT, 10, "10 is not between 0 and 9"),
        (_COUNT, 1.5, "is not a whole number"),
        (_COUNT, True, "is not a whole number"),
        (_CHOICE, "hourly", "'hourly' is not one of daily, never"),
        (_DURATION, 15, "the unit is missing in 15"),
        (_DURATION, "15", "Enter a number with its unit"),
        (_DURATION, "-5 s", "negative"),
        (_DURATION, None, "is not a duration"),
        (_SHARE, 0.5, "Write the unit: 0.5 %"),
        (_SHARE, "101 %", "is not a percentage"),
        (_TIME, 1320, "in quotes, such as '22:00'"),
        (_TIME, "25:00", "is not a time of day"),
        (_TIME, "22:00Z", "without a zone"),
        (_DAY, "tomorrow", "is not a date"),
        (_DAY, 5, "is not a date"),
        (_CHANNELS, "ops", "write a list"),
        (_CHANNELS, ["a", "a"], "twice"),
        (_CHANNELS, [{"name": "a"}], "nor a mapping"),
        (_SECRET, "s3cret", "at most 5 printable characters"),
        (_SECRET, None, "a secret is text"),
    ],
)
def test_wrong_value_says_how_to_mend_it(spec: FieldSpec, document_value: Any, message: str) -> None:
    """A secret is not repeated."""
    with pytest.raises(FieldError, match=message) as error_info:
        spec.parse(document_value)
    assert "s3cret" not in str(error_info.value)


@pytest.mark.parametrize(
    ("spec", "value", "text"),
    [
        (_FLAG, True, "yes"),
        (_FLAG, False, "no"),
        (_DURATION, 900.0, "15 min"),
        (_OPTIONAL_DURATION, None, "none"),
        (_TEXT, "", "none"),
        (_CHANNELS, (ChannelReference("a", ""), ChannelReference("b", "eu")), "a, b (cluster eu)"),
        (_CHANNELS, (), "none"),
        (_SECRET, Secret("s3cret"), "stored"),
    ],
)
def test_value_is_described_for_a_diff(spec: FieldSpec, value: Any, text: str) -> None:
    """A secret is only named."""
    assert spec.describe(value) == text
    assert "s3cret" not in repr(value)


def test_placeholder_is_made_of_the_channel_and_the_field() -> None:
    """And a document is searched for such variables."""
    assert placeholder_of("", "Ops hook!", "url") == SecretReference("REFLOAT_CHANNEL_OPS_HOOK_URL")
    assert placeholder_of("eu", "ops", "token") == SecretReference("REFLOAT_CHANNEL_EU_OPS_TOKEN")
    assert find_variables("a: ${A_1}\nb: '${B}'\nc: $C ${1}") == {"A_1", "B"}
