"""Simple schedules of maintenance windows (every day, every N weeks, monthly) and their RFC 5545 rules. Pure.

Forms have controls for these schedules. A rule that they cannot express has none: it is edited as text.
docs/reference/alerts.md, "Silences".
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from enum import StrEnum

from fleet.alerts.recurrence.rule import MAX_INTERVAL, WEEKDAY_CODES, Frequency, Recurrence, RecurrenceError
from fleet.vocabulary.name_lists import join_names

#: Names of the weekdays, Monday first, as pages and commands write them.
WEEKDAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
#: Value of `month_day` for the last day of each month.
LAST_MONTH_DAY = -1
_DAY = timedelta(days=1)
#: Any day, for arithmetic with times of day.
_SOME_DAY = date(2000, 1, 1)


class ScheduleError(ValueError):
    """A schedule is not valid; the message says why."""


class Repetition(StrEnum):
    """How often a simple schedule repeats."""

    DAILY = "daily"
    WEEKLY = "weekly"
    #: Every `interval` weeks, from two.
    EVERY_N_WEEKS = "every-n-weeks"
    MONTHLY = "monthly"

    @property
    def label(self) -> str:
        """Label of the choice in forms."""
        return _LABELS[self]


_LABELS = {
    Repetition.DAILY: "Every day",
    Repetition.WEEKLY: "Every week",
    Repetition.EVERY_N_WEEKS: "Every N weeks",
    Repetition.MONTHLY: "Every month",
}


@dataclass(frozen=True, slots=True)
class Schedule:
    """The days of a window, as forms have controls for it."""

    repetition: Repetition
    #: Weeks between occurrences; 1 unless the repetition is EVERY_N_WEEKS.
    interval: int = 1
    #: Numbers of weekdays, Monday is 0, in order; only of weekly schedules.
    weekdays: tuple[int, ...] = ()
    #: Day of the month, 1 to 31, or LAST_MONTH_DAY; only of monthly schedules.
    month_day: int = 1

    @property
    def rule(self) -> str:
        """The RFC 5545 rule. Raises ScheduleError."""
        match self.repetition:
            case Repetition.DAILY:
                return "FREQ=DAILY"
            case Repetition.MONTHLY:
                if self.month_day != LAST_MONTH_DAY and not 1 <= self.month_day <= 31:
                    raise ScheduleError("the day of the month must be between 1 and 31")
                return f"FREQ=MONTHLY;BYMONTHDAY={self.month_day}"
        if not self.weekdays:
            raise ScheduleError("choose at least one weekday")
        days = ",".join(WEEKDAY_CODES[weekday] for weekday in sorted(set(self.weekdays)))
        if self.repetition is Repetition.WEEKLY:
            return f"FREQ=WEEKLY;BYDAY={days}"
        if not 2 <= self.interval <= MAX_INTERVAL:
            raise ScheduleError(f"the number of weeks must be between 2 and {MAX_INTERVAL}")
        return f"FREQ=WEEKLY;INTERVAL={self.interval};BYDAY={days}"

    @property
    def text(self) -> str:
        """The days in words: `every Saturday and Sunday`."""
        match self.repetition:
            case Repetition.DAILY:
                return "every day"
            case Repetition.MONTHLY if self.month_day == LAST_MONTH_DAY:
                return "on the last day of every month"
            case Repetition.MONTHLY:
                return f"on day {self.month_day} of every month"
        days = join_names([WEEKDAY_NAMES[weekday] for weekday in self.weekdays])
        if self.repetition is Repetition.WEEKLY:
            return "every day" if len(self.weekdays) == 7 else f"every {days}"
        return f"every {self.interval} weeks on {days}"


def schedule_of(rule: str) -> Schedule | None:
    """Return the simple schedule with exactly this rule; None if there is none or the rule is not valid."""
    try:
        recurrence = Recurrence.parse(rule.strip())
    except RecurrenceError:
        return None
    schedule = _find_schedule(recurrence)
    # What a form cannot show must not be lost when it is saved, such as BYMONTH or the start of the week.
    return schedule if schedule is not None and Recurrence.parse(schedule.rule) == recurrence else None


def _find_schedule(recurrence: Recurrence) -> Schedule | None:
    weekdays = tuple(sorted(weekday for _, weekday in recurrence.weekdays))
    match recurrence.frequency:
        case Frequency.DAILY:
            return Schedule(Repetition.DAILY)
        case Frequency.WEEKLY if weekdays and recurrence.interval == 1:
            return Schedule(Repetition.WEEKLY, weekdays=weekdays)
        case Frequency.WEEKLY if weekdays:
            return Schedule(Repetition.EVERY_N_WEEKS, recurrence.interval, weekdays)
        case Frequency.MONTHLY if len(recurrence.month_days) == 1:
            (month_day,) = recurrence.month_days
            return Schedule(Repetition.MONTHLY, month_day=month_day) if month_day >= LAST_MONTH_DAY else None
    return None


def length_between(start_time: time, end_time: time) -> timedelta:
    """Return the local duration from a start to the next end: equal times are one day apart."""
    start, end = (
        timedelta(hours=at.hour, minutes=at.minute, seconds=at.second) for at in (start_time, end_time)
    )
    return (end - start) % _DAY or _DAY


def end_time_of(start_time: time, length: timedelta) -> time | None:
    """Return the end of a window of at most one day; None if it lasts longer, so that an end does not describe it."""
    if not timedelta(0) < length <= _DAY:
        return None
    return (datetime.combine(_SOME_DAY, start_time) + length).time()


def describe_schedule(rule: str, start_time: time, length: timedelta, zone_name: str) -> str:
    """Return when a window recurs: `every Sunday from 02:00 to 04:00 Europe/Berlin`."""
    schedule = schedule_of(rule)
    days = f"by the rule {rule.strip()}" if schedule is None else schedule.text
    end = datetime.combine(_SOME_DAY, start_time) + length
    day_count = (end.date() - _SOME_DAY).days
    later = {0: "", 1: " the next day"}.get(day_count, f" {day_count} days later")
    return f"{days} from {start_time:%H:%M} to {end:%H:%M}{later} {zone_name}"
