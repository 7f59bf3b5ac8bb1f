"""Silences and recurring maintenance windows. Pure. docs/reference/alerts.md, "Silences".

A window is in local time of an IANA zone: 02:00 to 04:00 in Berlin stays so on days when daylight saving time changes,
and lasts one or three hours then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fleet.alerts.matchers import Matcher, are_agent_matchers, matches_incident
from fleet.alerts.recurrence.rule import Recurrence, RecurrenceError
from fleet.vocabulary.incidents import Incident

#: Seconds before the end of a silence at which receivers are notified.
WARN_BEFORE_SECONDS = 900.0
#: Longest window: longer ones would overlap with their next occurrence.
MAX_WINDOW_LENGTH = timedelta(hours=36)
#: A window without an occurrence within this time is refused.
_OCCURRENCE_HORIZON = timedelta(days=5 * 366)
#: Allowed years of the first day of a window.
_FIRST_DAY_YEARS = range(1970, 2200)


class WindowError(ValueError):
    """A maintenance window is not valid; the message says why."""


@dataclass(frozen=True, slots=True)
class Silence:
    """A silence, or one occurrence of a maintenance window."""

    name: str
    matchers: tuple[Matcher, ...]
    starts_at: float
    ends_at: float
    #: Cluster that owns the silence; empty: the whole installation.
    cluster: str = ""
    #: Name of the user who created it; empty for a maintenance window.
    creator: str = ""

    def is_active(self, cluster: str, now: float) -> bool:
        """Return whether the silence is active in a cluster."""
        return self.cluster in ("", cluster) and self.starts_at <= now < self.ends_at


@dataclass(frozen=True, slots=True)
class Window:
    """A recurring maintenance window: an RFC 5545 rule for its days, local times and a time zone."""

    name: str
    matchers: tuple[Matcher, ...]
    #: `FREQ=WEEKLY;BYDAY=SU`.
    recurrence_rule: str
    #: First possible day and time of day, local: 2026-11-22T02:00.
    first_start: datetime
    #: Duration in local time.
    length: timedelta
    zone_name: str
    cluster: str = ""

    def current_silence(self, now: float) -> Silence | None:
        """Return the current occurrence as a silence; None outside the window or if the window is not valid."""
        if self.problem:
            return None
        local = self._local_time_of(now)
        for start in reversed([*self._iterate_starts(local - MAX_WINDOW_LENGTH, local + timedelta(hours=3))]):
            silence = self._silence_starting_at(start)
            if silence.starts_at <= now < silence.ends_at:
                return silence
        return None

    def upcoming_silences(self, now: float, count: int = 1) -> list[Silence]:
        """Return the next `count` occurrences within five years that have not started."""
        if self.problem:
            return []
        local = self._local_time_of(now)
        begin = max(local - timedelta(hours=3), self.first_start)
        later = (
            self._silence_starting_at(start)
            for start in self._iterate_starts(begin, begin + _OCCURRENCE_HORIZON)
        )
        return list(islice((silence for silence in later if silence.starts_at > now), count))

    def silences_between(self, begin: float, end: float) -> list[Silence]:
        """Return the occurrences that overlap a time range."""
        if self.problem:
            return []
        current_silence = self.current_silence(begin)
        silences = [] if current_silence is None else [current_silence]
        zone = self._load_zone()
        first, last = (datetime.fromtimestamp(at, zone).replace(tzinfo=None) for at in (begin, end))
        starts = self._iterate_starts(
            max(first - timedelta(hours=3), self.first_start), last + timedelta(hours=3)
        )
        silences += [
            silence
            for start in starts
            if begin < (silence := self._silence_starting_at(start)).starts_at < end
        ]
        return silences

    def check(self) -> None:
        """Raise WindowError unless rule, zone and length can be used, and the window begins within five years."""
        if self.problem:
            raise WindowError(self.problem)
        if next(self._iterate_starts(self.first_start, self.first_start + _OCCURRENCE_HORIZON), None) is None:
            raise WindowError(
                f"the recurrence rule {self.recurrence_rule!r} has no occurrence within 5 years after the first day"
            )

    @property
    def problem(self) -> str:
        """Why the window is not valid; empty if it is. Checked at each use, because time zones may be removed."""
        try:
            self._load_zone()
            self._parse_rule()
        except WindowError as error:
            return str(error)
        if not timedelta(0) < self.length <= MAX_WINDOW_LENGTH:
            return "a maintenance window must last between 1 min and 36 h"
        if self.first_start.year not in _FIRST_DAY_YEARS:
            return f"the first day must be between {_FIRST_DAY_YEARS[0]} and {_FIRST_DAY_YEARS[-1]}"
        return ""

    def _silence_starting_at(self, start: datetime) -> Silence:
        zone = self._load_zone()
        return Silence(
            self.name,
            self.matchers,
            timestamp_of(start, zone),
            timestamp_of(start + self.length, zone),
            self.cluster,
        )

    def _iterate_starts(self, after: datetime, before: datetime) -> Iterator[datetime]:
        time = self.first_start.time()
        for day in self._parse_rule().iterate_days(self.first_start.date(), after.date(), before.date()):
            start = datetime.combine(day, time)
            if after <= start <= before:
                yield start

    def _local_time_of(self, now: float) -> datetime:
        return datetime.fromtimestamp(now, self._load_zone()).replace(tzinfo=None)

    def _parse_rule(self) -> Recurrence:
        try:
            return Recurrence.parse(self.recurrence_rule.strip())
        except RecurrenceError as error:
            raise WindowError(f"the recurrence rule is not valid: {error}") from error

    def _load_zone(self) -> ZoneInfo:
        return zone_of(self.zone_name)


def zone_of(name: str) -> ZoneInfo:
    """Return the IANA time zone of a name. Raises WindowError."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise WindowError(
            f"time zone {name!r} was not found. Use an IANA name such as Europe/Berlin"
        ) from error


def timestamp_of(wall_time: datetime, zone: ZoneInfo) -> float:
    """Return the time of a local time: the first one if it occurs twice, the moment of the jump if it is skipped."""
    at = wall_time.replace(tzinfo=zone)
    back = at.astimezone(UTC).astimezone(zone)
    if back.replace(tzinfo=None) == wall_time:
        return at.timestamp()
    # The local time is skipped. With fold=1 the offset after the jump applies, which yields a time before the jump.
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


def find_active_silences(
    silences: Iterable[Silence], windows: Iterable[Window], cluster: str, now: float
) -> list[Silence]:
    """Return the silences and maintenance windows that are active in a cluster."""
    window_silences = (window.current_silence(now) for window in windows if window.cluster in ("", cluster))
    return [
        *(silence for silence in silences if silence.is_active(cluster, now)),
        *(window_silence for window_silence in window_silences if window_silence is not None),
    ]


def find_silence(incident: Incident, active_silences: Sequence[Silence]) -> Silence | None:
    """Return the silence that matches an incident; None if none does."""
    return next(
        (
            silence
            for silence in active_silences
            if not are_agent_matchers(silence.matchers) and matches_incident(silence.matchers, incident)
        ),
        None,
    )


def find_silence_name(incident: Incident, active_silences: Sequence[Silence]) -> str:
    """Return the name of the silence that matches an incident; empty if none does."""
    silence = find_silence(incident, active_silences)
    return "" if silence is None else silence.name
