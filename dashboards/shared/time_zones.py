"""The time zone of the user, which the browser writes into a cookie: js/page.js.

Pages show UTC. Forms also use the user's zone, for example for *until tomorrow 09:00*.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from urllib.parse import unquote
from zoneinfo import ZoneInfo, available_timezones

from django.http import HttpRequest

from fleet.alerts.silences import WindowError, zone_of

COOKIE_NAME = "refloat_zone"
#: Longest name in the database of time zones is half as long.
_MAX_NAME_LENGTH = 64
#: Copies of all zones with other leap seconds, and files that are no zones.
_HIDDEN_PREFIXES = ("posix/", "right/", "Factory", "localtime", "SystemV/")


def zone_of_request(request: HttpRequest) -> ZoneInfo:
    """Return the time zone of the user's browser; UTC if it is not known."""
    name = unquote(request.COOKIES.get(COOKIE_NAME, ""))[:_MAX_NAME_LENGTH]
    try:
        return zone_of(name or "UTC")
    except WindowError:
        return zone_of("UTC")


@lru_cache(maxsize=1)
def read_zone_names() -> tuple[str, ...]:
    """Return the names of all time zones, UTC first."""
    names = {name for name in available_timezones() if not name.startswith(_HIDDEN_PREFIXES)} | {"UTC"}
    return ("UTC", *sorted(names - {"UTC"}))


def format_moment(at: float, now: float, zone: ZoneInfo | None = None) -> str:
    """Return a time to the minute with its zone, and its day unless that is today: `Sun 29 Nov 02:00 UTC`."""
    zone = zone or zone_of("UTC")
    local, today = datetime.fromtimestamp(at, zone), datetime.fromtimestamp(now, zone)
    return f"{format_day_and_time(local, today)} {zone.key}"


def format_day_and_time(local: datetime, today: datetime) -> str:
    """Return a local time to the minute, with its day unless that is today, and its year unless that is this year."""
    if local.date() == today.date():
        return f"{local:%H:%M}"
    year = "" if local.year == today.year else f" {local.year}"
    return f"{local:%a} {local.day} {local:%b}{year} {local:%H:%M}"
