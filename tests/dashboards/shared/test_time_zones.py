from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.test import RequestFactory

from dashboards.shared.time_zones import COOKIE_NAME, format_moment, read_zone_names, zone_of_request


@pytest.mark.parametrize(
    ("cookie", "expected"),
    [
        ("Europe%2FBerlin", "Europe/Berlin"),
        ("Europe/Berlin", "Europe/Berlin"),
        ("", "UTC"),
        ("Mars/Base", "UTC"),
        ("../../etc/passwd", "UTC"),
        ("x" * 500, "UTC"),
        ("%00", "UTC"),
    ],
)
def test_zone_is_that_of_the_browser(cookie: str, expected: str) -> None:
    """UTC if the cookie has none."""
    request = RequestFactory().get("/")
    request.COOKIES[COOKIE_NAME] = cookie
    assert zone_of_request(request).key == expected


def test_zone_names_begin_with_utc() -> None:
    """Then all others, in order, without copies."""
    names = read_zone_names()
    assert names[0] == "UTC"
    assert "Europe/Berlin" in names
    assert list(names[1:]) == sorted(names[1:])
    assert not any(name.startswith("posix/") for name in names)


def test_moment_has_its_day_unless_it_is_today() -> None:
    """And its year unless that is this year."""
    now = datetime(2026, 11, 28, 12, tzinfo=UTC).timestamp()
    assert format_moment(now + 3600, now) == "13:00 UTC"
    assert format_moment(now + 86400, now) == "Sun 29 Nov 12:00 UTC"
    assert format_moment(now + 60 * 86400, now) == "Wed 27 Jan 2027 12:00 UTC"
    assert format_moment(now, now, ZoneInfo("Asia/Kolkata")) == "17:30 Asia/Kolkata"
