"""The choices for the duration of a silence: 30 min, 1 h, 2 h, 8 h, until tomorrow 09:00, or a typed duration. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from dashboards.shared.time_zones import format_moment
from fleet.alerts.silences import timestamp_of

#: Values of the choice that are no number of seconds.
TOMORROW, CUSTOM = "tomorrow", "custom"
#: Seconds by value.
_FIXED_SECONDS = {"1800": 1800.0, "3600": 3600.0, "7200": 7200.0, "28800": 28800.0}
_MORNING = time(9)
_FIXED_CHOICES = (("1800", "30 min"), ("3600", "1 h"), ("7200", "2 h"), ("28800", "8 h"))


@dataclass(frozen=True, slots=True)
class ExtensionChoice:
    """One way to extend a silence: the value and label of its button, and the new end as text."""

    slug: str
    label: str
    end_text: str


def list_period_choices(zone: ZoneInfo) -> tuple[tuple[str, str], ...]:
    """Return value and label of each choice. `zone`: that of the user."""
    return (*_FIXED_CHOICES, (TOMORROW, _label_of_tomorrow(zone)), (CUSTOM, "Custom"))


def _label_of_tomorrow(zone: ZoneInfo) -> str:
    return f"Until tomorrow 09:00 {zone.key}"


def end_of_period(slug: str, begin: float, custom_seconds: float, zone: ZoneInfo) -> float:
    """Return the end of a period that begins at `begin`. `zone`: that of the user, for *tomorrow*."""
    if slug == TOMORROW:
        return tomorrow_morning_after(begin, zone)
    return begin + _FIXED_SECONDS.get(slug, custom_seconds)


def tomorrow_morning_after(at: float, zone: ZoneInfo) -> float:
    """Return 09:00 of the next day in a time zone."""
    tomorrow = datetime.fromtimestamp(at, zone).date() + timedelta(days=1)
    return timestamp_of(datetime.combine(tomorrow, _MORNING), zone)


def list_extensions(ends_at: float, now: float, zone: ZoneInfo) -> list[ExtensionChoice]:
    """Return the ways to extend a silence that ends at `ends_at`."""
    choices = [
        ExtensionChoice(slug, f"Extend by {label}", format_moment(ends_at + _FIXED_SECONDS[slug], now))
        for slug, label in _FIXED_CHOICES
    ]
    morning = tomorrow_morning_after(now, zone)
    if morning > ends_at:
        choices.append(ExtensionChoice(TOMORROW, _label_of_tomorrow(zone), format_moment(morning, now)))
    return choices


def extension_seconds_of(
    slug: str, ends_at: float, now: float, custom_seconds: float, zone: ZoneInfo
) -> float:
    """Return by how much a choice moves the end of a silence."""
    if slug == TOMORROW:
        return tomorrow_morning_after(now, zone) - ends_at
    return _FIXED_SECONDS.get(slug, custom_seconds)
