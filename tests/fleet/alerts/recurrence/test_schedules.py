from __future__ import annotations

from datetime import date, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.alerts.recurrence.rule import Recurrence
from fleet.alerts.recurrence.schedules import (
    LAST_MONTH_DAY,
    Repetition,
    Schedule,
    ScheduleError,
    describe_schedule,
    end_time_of,
    length_between,
    schedule_of,
)

_WEEKDAYS = st.sets(st.integers(0, 6), min_size=1).map(sorted).map(tuple)
_SCHEDULES = st.one_of(
    st.just(Schedule(Repetition.DAILY)),
    st.builds(Schedule, st.just(Repetition.WEEKLY), st.just(1), _WEEKDAYS),
    st.builds(Schedule, st.just(Repetition.EVERY_N_WEEKS), st.integers(2, 1000), _WEEKDAYS),
    st.builds(
        lambda day: Schedule(Repetition.MONTHLY, month_day=day),
        st.one_of(st.integers(1, 31), st.just(LAST_MONTH_DAY)),
    ),
)
_RULES = st.builds(
    lambda parts, days: ";".join(filter(None, [*parts, days])),
    st.tuples(
        st.sampled_from(["FREQ=DAILY", "FREQ=WEEKLY", "FREQ=MONTHLY", "FREQ=YEARLY"]),
        st.sampled_from(["", "INTERVAL=1", "INTERVAL=3"]),
        st.sampled_from(["", "WKST=SU", "WKST=MO", "BYMONTH=3"]),
    ),
    st.sampled_from(["", "BYDAY=SU", "BYDAY=MO,WE,FR", "BYMONTHDAY=15", "BYMONTHDAY=-1", "BYMONTHDAY=1,15"]),
)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("FREQ=DAILY", Schedule(Repetition.DAILY)),
        ("RRULE:freq=weekly;byday=su,mo", Schedule(Repetition.WEEKLY, weekdays=(0, 6))),
        ("FREQ=WEEKLY;INTERVAL=1;BYDAY=SU", Schedule(Repetition.WEEKLY, weekdays=(6,))),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=TU", Schedule(Repetition.EVERY_N_WEEKS, 2, (1,))),
        ("FREQ=MONTHLY;BYMONTHDAY=15", Schedule(Repetition.MONTHLY, month_day=15)),
        ("FREQ=MONTHLY;BYMONTHDAY=-1", Schedule(Repetition.MONTHLY, month_day=LAST_MONTH_DAY)),
        # What the controls cannot show stays a rule.
        ("FREQ=DAILY;INTERVAL=2", None),
        ("FREQ=DAILY;BYMONTH=2", None),
        ("FREQ=WEEKLY", None),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=SU;WKST=SU", None),
        ("FREQ=MONTHLY;BYMONTHDAY=-2", None),
        ("FREQ=MONTHLY;BYMONTHDAY=1,15", None),
        ("FREQ=MONTHLY;BYDAY=2SU", None),
        ("FREQ=YEARLY", None),
        ("FREQ=NEVER", None),
        ("", None),
    ],
)
def test_rule_is_translated_if_controls_can_show_all_of_it(rule: str, expected: Schedule | None) -> None:
    """Otherwise saving a form would lose a part of the rule."""
    assert schedule_of(rule) == expected


@given(_SCHEDULES)
def test_schedule_survives_the_way_to_its_rule_and_back(schedule: Schedule) -> None:
    """Toggles to rule to toggles."""
    assert schedule_of(schedule.rule) == schedule


@given(_RULES)
def test_rule_survives_the_way_to_its_schedule_and_back(rule: str) -> None:
    """Rule to toggles to rule: the same recurrence, and so the same days."""
    schedule = schedule_of(rule)
    if schedule is not None:
        recurrence, translation = Recurrence.parse(rule), Recurrence.parse(schedule.rule)
        assert translation == recurrence
        days = [date(2026, 1, 7), date(2026, 1, 1), date(2026, 4, 1)]
        assert list(translation.iterate_days(*days)) == list(recurrence.iterate_days(*days))
        assert schedule_of(schedule.rule) == schedule


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(Repetition.WEEKLY),
        Schedule(Repetition.EVERY_N_WEEKS, 1, (0,)),
        Schedule(Repetition.EVERY_N_WEEKS, 1001, (0,)),
        Schedule(Repetition.MONTHLY, month_day=32),
        Schedule(Repetition.MONTHLY, month_day=0),
    ],
)
def test_incomplete_schedule_has_no_rule(schedule: Schedule) -> None:
    """The error is a sentence."""
    with pytest.raises(ScheduleError, match=" "):
        _ = schedule.rule


@pytest.mark.parametrize(
    ("rule", "start", "hours", "expected"),
    [
        ("FREQ=WEEKLY;BYDAY=SU", time(2), 2, "every Sunday from 02:00 to 04:00 Europe/Berlin"),
        (
            "FREQ=WEEKLY;BYDAY=SA,SU,MO", time(2), 2,
            "every Monday, Saturday and Sunday from 02:00 to 04:00 Europe/Berlin",
        ),
        ("FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR,SA,SU", time(2), 2, "every day from 02:00 to 04:00 Europe/Berlin"),
        ("FREQ=DAILY", time(22), 8, "every day from 22:00 to 06:00 the next day Europe/Berlin"),
        ("FREQ=DAILY", time(0), 24, "every day from 00:00 to 00:00 the next day Europe/Berlin"),
        (
            "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU", time(20), 36,
            "every 2 weeks on Tuesday from 20:00 to 08:00 2 days later Europe/Berlin",
        ),
        ("FREQ=MONTHLY;BYMONTHDAY=-1", time(1), 1, "on the last day of every month from 01:00 to 02:00 Europe/Berlin"),
        ("FREQ=MONTHLY;BYMONTHDAY=5", time(1), 1, "on day 5 of every month from 01:00 to 02:00 Europe/Berlin"),
        ("FREQ=YEARLY", time(1), 1, "by the rule FREQ=YEARLY from 01:00 to 02:00 Europe/Berlin"),
    ],
)  # fmt: skip
def test_schedule_is_described_in_words(rule: str, start: time, hours: int, expected: str) -> None:
    """Days, local times and the time zone."""
    assert describe_schedule(rule, start, timedelta(hours=hours), "Europe/Berlin") == expected


@pytest.mark.parametrize(
    ("start", "end", "hours"), [(time(2), time(4), 2), (time(22), time(6), 8), (time(2), time(2), 24)]
)
def test_end_and_length_are_translated(start: time, end: time, hours: float) -> None:
    """An end that is not after the start is on the next day."""
    length = timedelta(hours=hours)
    assert length_between(start, end) == length
    assert end_time_of(start, length) == end


def test_long_window_has_no_end_on_the_next_day() -> None:
    """Its end would look like that of a shorter one."""
    assert end_time_of(time(2), timedelta(hours=25)) is None
    assert end_time_of(time(2), timedelta(0)) is None
