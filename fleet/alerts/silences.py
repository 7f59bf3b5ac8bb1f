"""Silences and recurring maintenance windows: what is quiet now, and until when. Pure. docs/alerts.md, "Silences".

A window is wall-clock time in an IANA zone: 02:00 to 04:00 in Berlin is that on the day the clocks change, too,
be it one, two or three hours long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fleet.alerts.matchers import Matcher, is_agent_matching, matches
from fleet.alerts.recurrence import Recurrence, RecurrenceError
from fleet.vocabulary.incidents import Incident

#: Who made a silence is told so long before it ends, seconds.
WARN_BEFORE = 900.0
#: A window is a day and a half at most: longer ones would overlap with themselves.
LONGEST_WINDOW = timedelta(hours=36)
#: A window that does not begin within this is a mistake.
_HORIZON = timedelta(days=5 * 366)
#: Years in which a window may begin to recur.
_YEARS = range(1970, 2200)


class WindowError(ValueError):
    """A window cannot be read; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Something kept quiet from one moment to another."""

    name: str
    matchers: tuple[Matcher, ...]
    starts_at: float
    ends_at: float
    #: The cluster that owns it; empty: the installation.
    cluster: str = ""

    def is_active(self, cluster: str, now: float) -> bool:
        """Whether it holds in a cluster now."""
        return self.cluster in ("", cluster) and self.starts_at <= now < self.ends_at


@dataclass(frozen=True, slots=True)
class Window:
    """Maintenance that recurs: an RFC 5545 rule for its days, wall-clock times and a zone."""

    name: str
    matchers: tuple[Matcher, ...]
    #: `FREQ=WEEKLY;BYDAY=SU`.
    rule: str
    #: The first day it may be on, and the time of day, local: 2026-11-22T02:00.
    first: datetime
    #: By the clock on the wall.
    length: timedelta
    zone: str
    cluster: str = ""

    def current(self, now: float) -> Silence | None:
        """The silence it is now, if it is one; a window that cannot be read is none."""
        if self.problem:
            return None
        local = self._local(now)
        for start in reversed([*self._iterate(local - LONGEST_WINDOW, local + timedelta(hours=3))]):
            silence = self._silence(start)
            if silence.starts_at <= now < silence.ends_at:
                return silence
        return None

    def upcoming_silences(self, now: float, count: int = 1) -> list[Silence]:
        """The next occurrences that have not begun, of those within five years."""
        if self.problem:
            return []
        local = self._local(now)
        begin = max(local - timedelta(hours=3), self.first)
        later = (self._silence(start) for start in self._iterate(begin, begin + _HORIZON))
        return list(islice((silence for silence in later if silence.starts_at > now), count))

    def check(self) -> None:
        """Raise WindowError unless rule, zone and length can be used, and the window begins within five years."""
        if self.problem:
            raise WindowError(self.problem)
        if next(self._iterate(self.first, self.first + _HORIZON), None) is None:
            raise WindowError(f"the rule {self.rule!r} names no day within five years of the first")

    @property
    def problem(self) -> str:
        """Why the window cannot be used; empty when it can. Zones come and go, and a row may be older than a check."""
        try:
            self._zone()
            self._rule()
        except WindowError as error:
            return str(error)
        if not timedelta(0) < self.length <= LONGEST_WINDOW:
            return "a window lasts between a minute and 36 hours"
        if self.first.year not in _YEARS:
            return f"the first day is not within {_YEARS[0]} and {_YEARS[-1]}"
        return ""

    def _silence(self, start: datetime) -> Silence:
        zone = self._zone()
        return Silence(
            self.name, self.matchers, _timestamp_of(start, zone), _timestamp_of(start + self.length, zone), self.cluster
        )

    def _iterate(self, after: datetime, before: datetime) -> Iterator[datetime]:
        time = self.first.time()
        for day in self._rule().days(self.first.date(), after.date(), before.date()):
            start = datetime.combine(day, time)
            if after <= start <= before:
                yield start

    def _local(self, now: float) -> datetime:
        return datetime.fromtimestamp(now, self._zone()).replace(tzinfo=None)

    def _rule(self) -> Recurrence:
        try:
            return Recurrence.parse(self.rule.strip())
        except RecurrenceError as error:
            raise WindowError(f"the rule cannot be read: {error}") from error

    def _zone(self) -> ZoneInfo:
        return zone_of(self.zone)


def zone_of(name: str) -> ZoneInfo:
    """The IANA zone of that name. Raises WindowError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise WindowError(f"there is no time zone {name!r}: use a name like Europe/Berlin") from error


def _timestamp_of(wall_time: datetime, zone: ZoneInfo) -> float:
    """When a clock on the wall shows that: the first time if twice, and the moment of the jump if never."""
    at = wall_time.replace(tzinfo=zone)
    back = at.astimezone(UTC).astimezone(zone)
    if back.replace(tzinfo=None) == wall_time:
        return at.timestamp()
    # In the hour that is skipped: with fold=1 the offset after the jump is used, which lands before it.
    early = at.replace(fold=1).timestamp()
    late = at.timestamp()
    low, high = min(early, late), max(early, late)
    before = datetime.fromtimestamp(low, zone).utcoffset()
    while high - low > 0.5:
        middle = (low + high) / 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return float(round(high))


def find_active_silences(silences: Iterable[Silence], windows: Iterable[Window], cluster: str, now: float) -> list[Silence]:
    """Everything that keeps something quiet now."""
    window_silences = (window.current(now) for window in windows if window.cluster in ("", cluster))
    return [
        *(silence for silence in silences if silence.is_active(cluster, now)),
        *(window_silence for window_silence in window_silences if window_silence is not None),
    ]


def find_silence_name(incident: Incident, active_silences: Sequence[Silence]) -> str:
    """The name of the silence that keeps an incident quiet; empty when none does."""
    return next(
        (silence.name for silence in active_silences if not is_agent_matching(silence.matchers) and matches(silence.matchers, incident)), ""
    )
