"""The calendar of silences and maintenance windows: bars on a line for each day, and the same as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from fleet.alerts.silences import timestamp_of

#: Height of a lane, and of its bar, pixels: templates/dashboards/_silence_calendar.html.
LANE_HEIGHT, BAR_HEIGHT = 22, 18
#: From this width on, percent of the day, a bar has its label inside.
_LABEL_INSIDE_FROM = 40.0
#: A bar that begins later than this, percent of the day, has its label on the left.
_LABEL_LEFT_FROM = 55.0
#: A bar is at least this wide, percent of the day, so that it can be seen.
_MIN_WIDTH = 1.0


@dataclass(frozen=True, slots=True)
class CalendarEntry:
    """A silence, or one occurrence of a window."""

    name: str
    starts_at: float
    ends_at: float
    is_window: bool


@dataclass(frozen=True, slots=True)
class CalendarBar:
    """The part of an entry on one day; positions in percent of the day."""

    entry: CalendarEntry
    x: float
    width: float
    #: Top of the bar, pixels.
    y: int
    #: The first bar of a lane has a label.
    label: str
    #: Position of the label, percent, and its side: `inside`, `right` or `left` of the bar.
    label_x: float
    label_side: str
    #: `02:00 to 04:00`, in the time zone of the calendar.
    text: str

    @property
    def label_y(self) -> int:
        """The baseline of the label, pixels."""
        return self.y + 13


@dataclass(frozen=True, slots=True)
class CalendarDay:
    """One day with its bars."""

    day: date
    is_today: bool
    bars: tuple[CalendarBar, ...]
    height: int
    #: Position of now, percent of the day; None on other days.
    now_x: float | None = None


def build_calendar(
    entries: Iterable[CalendarEntry], now: float, zone: ZoneInfo, day_count: int
) -> list[CalendarDay]:
    """Return the days from today on, in a time zone. A day with a change of the clocks has 23 or 25 hours."""
    today = datetime.fromtimestamp(now, zone).date()
    ordered_entries = sorted(entries, key=lambda entry: (entry.starts_at, entry.ends_at, entry.name))
    return [
        _build_day(today + timedelta(days=number), ordered_entries, now, zone) for number in range(day_count)
    ]


def end_of_calendar(now: float, zone: ZoneInfo, day_count: int) -> float:
    """Return the end of the last day of the calendar."""
    today = datetime.fromtimestamp(now, zone).date()
    return _begin_of(today + timedelta(days=day_count), zone)


def _begin_of(day: date, zone: ZoneInfo) -> float:
    return timestamp_of(datetime.combine(day, time()), zone)


def _build_day(day: date, entries: Sequence[CalendarEntry], now: float, zone: ZoneInfo) -> CalendarDay:
    begin, end = _begin_of(day, zone), _begin_of(day + timedelta(days=1), zone)
    lanes: list[list[CalendarEntry]] = []
    for entry in entries:
        if entry.starts_at < end and entry.ends_at > begin:
            _find_lane(lanes, entry).append(entry)
    bars = tuple(
        _build_bar(entry, lane, begin, end, zone, is_labelled=number == 0)
        for lane, lane_entries in enumerate(lanes)
        for number, entry in enumerate(lane_entries)
    )
    is_today = begin <= now < end
    return CalendarDay(
        day=day,
        is_today=is_today,
        bars=bars,
        height=max(1, len(lanes)) * LANE_HEIGHT,
        now_x=round(100 * (now - begin) / (end - begin), 2) if is_today else None,
    )


def _find_lane(lanes: list[list[CalendarEntry]], entry: CalendarEntry) -> list[CalendarEntry]:
    """Return the lane of an earlier entry with the same name that does not overlap, or a new lane."""
    for lane in lanes:
        last_entry = lane[-1]
        is_same = (last_entry.name, last_entry.is_window) == (entry.name, entry.is_window)
        if is_same and last_entry.ends_at <= entry.starts_at:
            return lane
    lanes.append([])
    return lanes[-1]


def _build_bar(
    entry: CalendarEntry, lane: int, begin: float, end: float, zone: ZoneInfo, *, is_labelled: bool
) -> CalendarBar:
    first, last = max(entry.starts_at, begin), min(entry.ends_at, end)
    width = max(100 * (last - first) / (end - begin), _MIN_WIDTH)
    x = min(100 * (first - begin) / (end - begin), 100 - width)
    side = "inside" if width >= _LABEL_INSIDE_FROM else "left" if x >= _LABEL_LEFT_FROM else "right"
    label_x = {"inside": x + 1, "right": x + width + 1, "left": x - 1}[side]
    return CalendarBar(
        entry=entry,
        x=round(x, 2),
        width=round(width, 2),
        y=lane * LANE_HEIGHT + (LANE_HEIGHT - BAR_HEIGHT) // 2,
        label=entry.name if is_labelled else "",
        label_x=round(label_x, 2),
        label_side=side,
        text=_range_text_of(entry, begin, end, zone),
    )


def _range_text_of(entry: CalendarEntry, begin: float, end: float, zone: ZoneInfo) -> str:
    if entry.starts_at <= begin and entry.ends_at >= end:
        return "all day"
    start_text = "" if entry.starts_at <= begin else f"{datetime.fromtimestamp(entry.starts_at, zone):%H:%M}"
    end_text = "" if entry.ends_at >= end else f"{datetime.fromtimestamp(entry.ends_at, zone):%H:%M}"
    if not start_text:
        return f"until {end_text}"
    return f"{start_text} to {end_text}" if end_text else f"from {start_text}"
