"""Days of an RFC 5545 recurrence rule such as `FREQ=WEEKLY;BYDAY=SU`, computed in bounded time. Pure.

https://www.rfc-editor.org/rfc/rfc5545#section-3.3.10, without what maintenance windows do not need: times of day,
numbers of weeks, COUNT and UNTIL. Alerting asks once a second. python-dateutil walks from the first day of a rule to
the year 9999 when nothing matches (30 s for `BYMONTH=2;BYMONTHDAY=30`) and cannot be bounded; the tests compare this
module with it.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Self

WEEKDAY_CODES = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
MAX_INTERVAL = 1_000
#: Maximum length of a rule, characters.
MAX_RULE_LENGTH = 500


class RecurrenceError(ValueError):
    """A recurrence rule is not valid; the message says why."""


class Frequency(StrEnum):
    """The length of the periods of a rule."""

    DAILY = "DAILY"
    WEEKLY = "WEEKLY"
    MONTHLY = "MONTHLY"
    YEARLY = "YEARLY"


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurrence rule without its first day. Empty fields allow every day."""

    frequency: Frequency
    interval: int = 1
    months: frozenset[int] = frozenset()
    #: Days of the month and of the year; negative ones count from the end.
    month_days: frozenset[int] = frozenset()
    year_days: frozenset[int] = frozenset()
    #: (ordinal in the month or year, or 0 for all; number of the weekday).
    weekdays: frozenset[tuple[int, int]] = frozenset()
    #: Positions among the matching days of a period; negative ones count from the last.
    positions: frozenset[int] = frozenset()
    week_start: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a rule. Raises RecurrenceError."""
        if len(text) > MAX_RULE_LENGTH:
            raise RecurrenceError(f"more than {MAX_RULE_LENGTH} characters")
        parts: dict[str, str] = {}
        for part in text.upper().removeprefix("RRULE:").split(";"):
            name, equals, part_value = part.partition("=")
            if not equals or not part_value or name not in _PART_PARSERS:
                raise RecurrenceError(
                    f"{part!r} is not supported. Use {', '.join(_PART_PARSERS)}, each with a value"
                )
            if parts.setdefault(name, part_value) != part_value:
                raise RecurrenceError(f"{name} occurs twice")
        if "FREQ" not in parts:
            raise RecurrenceError("FREQ is missing")
        recurrence = cls(
            **{
                _PART_PARSERS[name][0]: _PART_PARSERS[name][1](part_value)
                for name, part_value in parts.items()
            }
        )
        ordinals = {ordinal for ordinal, _ in recurrence.weekdays}
        if ordinals != {0} and ordinals and recurrence.frequency in (Frequency.DAILY, Frequency.WEEKLY):
            raise RecurrenceError("BYDAY with a number requires FREQ=MONTHLY or FREQ=YEARLY")
        if recurrence.positions and not (
            recurrence.month_days or recurrence.year_days or recurrence.weekdays or recurrence.months
        ):
            raise RecurrenceError("BYSETPOS requires BYMONTH, BYMONTHDAY, BYYEARDAY or BYDAY")
        return recurrence

    def iterate_days(self, first_day: date, begin: date, end: date) -> Iterator[date]:
        """Yield the days of the rule from `begin` to `end`, both included. `first_day`: first day of the recurrence."""
        rule = self._with_defaults(first_day)
        period_start: date | None = rule.period_start_of(max(begin, first_day))
        while period_start is not None and period_start <= end:
            if rule.period_count_between(first_day, period_start) % rule.interval == 0:
                yield from (
                    day
                    for day in _find_matching_days(rule, period_start)
                    if max(begin, first_day) <= day <= end
                )
            period_start = rule.next_period_start(period_start)

    def _with_defaults(self, first_day: date) -> Self:
        """Return the rule with weekday, day and month of the first day where the rule has none."""
        if self.weekdays or self.month_days or self.year_days:
            return self
        if self.frequency is Frequency.WEEKLY:
            return replace(self, weekdays=frozenset({(0, first_day.weekday())}))
        if self.frequency is Frequency.DAILY:
            return self
        of_year = self.frequency is Frequency.YEARLY and not self.months
        months = frozenset({first_day.month}) if of_year else self.months
        return replace(self, months=months, month_days=frozenset({first_day.day}))

    def period_start_of(self, day: date) -> date:
        """Return the first day of the period that contains a day."""
        match self.frequency:
            case Frequency.DAILY:
                return day
            case Frequency.WEEKLY:
                return date.fromordinal(max(day.toordinal() - (day.weekday() - self.week_start) % 7, 1))
            case Frequency.MONTHLY:
                return day.replace(day=1)
            case Frequency.YEARLY:
                return day.replace(month=1, day=1)

    def next_period_start(self, period_start: date) -> date | None:
        """Return the first day of the next period; None after the year 9999."""
        try:
            return period_start + timedelta(days=self.day_count_of(period_start))
        except OverflowError:
            return None

    def day_count_of(self, period_start: date) -> int:
        match self.frequency:
            case Frequency.DAILY:
                return 1
            case Frequency.WEEKLY:
                return 7
            case Frequency.MONTHLY:
                return calendar.monthrange(period_start.year, period_start.month)[1]
            case Frequency.YEARLY:
                return 366 if calendar.isleap(period_start.year) else 365

    def period_count_between(self, first_day: date, period_start: date) -> int:
        """Return the number of periods between that of `first_day` and a period."""
        begin = self.period_start_of(first_day)
        match self.frequency:
            case Frequency.DAILY:
                return (period_start - begin).days
            case Frequency.WEEKLY:
                return (period_start - begin).days // 7
            case Frequency.MONTHLY:
                return (period_start.year - begin.year) * 12 + period_start.month - begin.month
            case Frequency.YEARLY:
                return period_start.year - begin.year

    def matches(self, day: date) -> bool:
        month_length = calendar.monthrange(day.year, day.month)[1]
        year_day, year_length = day.timetuple().tm_yday, 366 if calendar.isleap(day.year) else 365
        return (
            (not self.months or day.month in self.months)
            and (not self.month_days or bool(self.month_days & {day.day, day.day - month_length - 1}))
            and (not self.year_days or bool(self.year_days & {year_day, year_day - year_length - 1}))
            and (not self.weekdays or self._is_weekday(day, month_length, year_day, year_length))
        )

    def _is_weekday(self, day: date, month_length: int, year_day: int, year_length: int) -> bool:
        if (0, day.weekday()) in self.weekdays:
            return True
        # RFC 5545, table of BYDAY: ordinals count in the year only if no month is given.
        of_year = self.frequency is Frequency.YEARLY and not self.months
        place, length = (year_day, year_length) if of_year else (day.day, month_length)
        ordinals = ((place - 1) // 7 + 1, -((length - place) // 7 + 1))
        return any((ordinal, day.weekday()) in self.weekdays for ordinal in ordinals)


@lru_cache(maxsize=256)
def _find_matching_days(rule: Recurrence, period_start: date) -> tuple[date, ...]:
    """Return the days of a period that match a rule."""
    begin = period_start.toordinal()
    span = range(begin, min(begin + rule.day_count_of(period_start), date.max.toordinal() + 1))
    days = [day for day in map(date.fromordinal, span) if rule.matches(day)]
    if not rule.positions:
        return tuple(days)
    places = {place - 1 if place > 0 else len(days) + place for place in rule.positions}
    return tuple(days[place] for place in sorted(places) if 0 <= place < len(days))


def _parse_frequency(text: str) -> Frequency:
    try:
        return Frequency(text)
    except ValueError:
        raise RecurrenceError(f"FREQ={text} is not supported. Use DAILY, WEEKLY, MONTHLY or YEARLY") from None


def _parse_interval(text: str) -> int:
    numbers = sorted(_make_numbers_parser("INTERVAL", 1, MAX_INTERVAL)(text))
    if len(numbers) > 1:
        raise RecurrenceError(f"INTERVAL takes one number, not {text}")
    return numbers[0]


def _make_numbers_parser(
    name: str, least: int, most: int, *, allows_negative: bool = False
) -> Callable[[str], frozenset[int]]:
    def parse(text: str) -> frozenset[int]:
        numbers = []
        for token in text.split(","):
            digits = token.removeprefix("-") if allows_negative else token
            if not (digits.isascii() and digits.isdigit() and len(digits) <= 4):
                raise RecurrenceError(f"{name}: {token!r} is not a number")
            if not least <= int(digits) <= most:
                raise RecurrenceError(f"{name}: {token} is not between {least} and {most}")
            numbers.append(int(token))
        return frozenset(numbers)

    return parse


def _parse_weekdays(text: str) -> frozenset[tuple[int, int]]:
    weekdays = set()
    for token in text.split(","):
        ordinal, weekday = token[:-2].removeprefix("+"), token[-2:]
        if weekday not in WEEKDAY_CODES:
            raise RecurrenceError(f"BYDAY: {token!r} is not a weekday. Use {', '.join(WEEKDAY_CODES)}")
        (number,) = _make_numbers_parser("BYDAY", 1, 53, allows_negative=True)(ordinal) if ordinal else (0,)
        weekdays.add((number, WEEKDAY_CODES.index(weekday)))
    return frozenset(weekdays)


def _parse_week_start(text: str) -> int:
    if text not in WEEKDAY_CODES:
        raise RecurrenceError(f"WKST: {text!r} is not a weekday. Use {', '.join(WEEKDAY_CODES)}")
    return WEEKDAY_CODES.index(text)


#: Field and parser by the name of a part.
_PART_PARSERS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "FREQ": ("frequency", _parse_frequency),
    "INTERVAL": ("interval", _parse_interval),
    "BYMONTH": ("months", _make_numbers_parser("BYMONTH", 1, 12)),
    "BYMONTHDAY": ("month_days", _make_numbers_parser("BYMONTHDAY", 1, 31, allows_negative=True)),
    "BYYEARDAY": ("year_days", _make_numbers_parser("BYYEARDAY", 1, 366, allows_negative=True)),
    "BYDAY": ("weekdays", _parse_weekdays),
    "BYSETPOS": ("positions", _make_numbers_parser("BYSETPOS", 1, 366, allows_negative=True)),
    "WKST": ("week_start", _parse_week_start),
}
