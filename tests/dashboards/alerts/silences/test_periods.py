from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from dashboards.alerts.silences.periods import (
    end_of_period,
    extension_seconds_of,
    list_extensions,
    tomorrow_morning_after,
)

_BERLIN = ZoneInfo("Europe/Berlin")


def _at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("now", "zone", "expected"),
    [
        ("2026-11-28T05:00", _BERLIN, "2026-11-29T08:00"),
        # Half past midnight in Berlin, and still yesterday in UTC.
        ("2026-11-28T23:30", _BERLIN, "2026-11-30T08:00"),
        ("2026-11-28T23:30", ZoneInfo("UTC"), "2026-11-29T09:00"),
        # The clocks change in between.
        ("2026-03-28T12:00", _BERLIN, "2026-03-29T07:00"),
        ("2026-10-24T12:00", _BERLIN, "2026-10-25T08:00"),
    ],
)
def test_tomorrow_is_that_of_the_user(now: str, zone: ZoneInfo, expected: str) -> None:
    """09:00 of the next day in the time zone, also when the clocks change."""
    assert tomorrow_morning_after(_at(now), zone) == _at(expected)


def test_period_ends_after_its_duration() -> None:
    """A usual duration, a typed one, or tomorrow."""
    assert end_of_period("7200", 100.0, 0.0, _BERLIN) == 7300.0
    assert end_of_period("custom", 100.0, 600.0, _BERLIN) == 700.0
    assert end_of_period("tomorrow", 0.0, 0.0, ZoneInfo("UTC")) == 33 * 3600.0


def test_extensions_name_the_new_end() -> None:
    """Tomorrow is offered only if that is later."""
    now = _at("2026-11-28T05:00")
    extensions = list_extensions(now + 3600, now, _BERLIN)
    assert [extension.end_text for extension in extensions] == [
        "06:30 UTC", "07:00 UTC", "08:00 UTC", "14:00 UTC", "Sun 29 Nov 08:00 UTC",
    ]  # fmt: skip
    assert extensions[-1].label == "Until tomorrow 09:00 Europe/Berlin"
    assert len(list_extensions(now + 2 * 86400, now, _BERLIN)) == 4
    assert extension_seconds_of("tomorrow", now + 3600, now, 0.0, _BERLIN) == 26 * 3600
    assert extension_seconds_of("custom", now, now, 60.0, _BERLIN) == 60
