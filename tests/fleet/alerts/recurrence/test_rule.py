"""The days of recurrence rules, compared with python-dateutil, and rules that could take forever."""

from __future__ import annotations

import time
from datetime import date, datetime, timedelta
from itertools import islice

import pytest
from dateutil.rrule import rrulestr
from hypothesis import assume, given
from hypothesis import strategies as st

from fleet.alerts.recurrence.rule import Recurrence, RecurrenceError

FIVE_YEARS = timedelta(days=5 * 366)


def recurrence_days(rule: str, first: str, begin: str, end: str) -> list[str]:
    year_days = Recurrence.parse(rule).iterate_days(*map(date.fromisoformat, (first, begin, end)))
    return [day.isoformat() for day in year_days]


@pytest.mark.parametrize(
    ("rule", "first", "expected"),
    [
        ("FREQ=DAILY", "2026-01-30", ["2026-01-30", "2026-01-31", "2026-02-01"]),
        ("FREQ=DAILY;INTERVAL=3", "2026-01-30", ["2026-01-30", "2026-02-02", "2026-02-05"]),
        ("FREQ=DAILY;BYDAY=SA,SU", "2026-01-30", ["2026-01-31", "2026-02-01", "2026-02-07"]),
        ("FREQ=WEEKLY", "2026-01-28", ["2026-01-28", "2026-02-04", "2026-02-11"]),
        ("RRULE:freq=weekly;byday=su", "2026-01-28", ["2026-02-01", "2026-02-08", "2026-02-15"]),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,SU;WKST=MO", "1997-08-05", ["1997-08-05", "1997-08-10", "1997-08-19"]),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,SU;WKST=SU", "1997-08-05", ["1997-08-05", "1997-08-17", "1997-08-19"]),
        ("FREQ=MONTHLY", "2026-01-31", ["2026-01-31", "2026-03-31", "2026-05-31"]),
        ("FREQ=MONTHLY;BYDAY=1SU", "2026-01-28", ["2026-02-01", "2026-03-01", "2026-04-05"]),
        ("FREQ=MONTHLY;BYDAY=-1FR", "2026-01-28", ["2026-01-30", "2026-02-27", "2026-03-27"]),
        ("FREQ=MONTHLY;BYMONTHDAY=-1", "2026-01-28", ["2026-01-31", "2026-02-28", "2026-03-31"]),
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", "2026-01-28", ["2026-01-30", "2026-02-27", "2026-03-31"]),
        ("FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13", "2026-01-01", ["2026-02-13", "2026-03-13", "2026-11-13"]),
        ("FREQ=YEARLY", "2024-02-29", ["2024-02-29", "2028-02-29"]),
        ("FREQ=YEARLY;BYDAY=20MO", "1997-05-19", ["1997-05-19", "1998-05-18", "1999-05-17"]),
        ("FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU", "2026-01-01", ["2026-03-29", "2027-03-28", "2028-03-26"]),
        ("FREQ=YEARLY;BYYEARDAY=1,-1", "2026-01-02", ["2026-12-31", "2027-01-01", "2027-12-31"]),
    ],
)  # fmt: skip
def test_days_of_a_rule(rule: str, first: str, expected: list[str]) -> None:
    """Some rules are examples of RFC 5545."""
    end = (date.fromisoformat(first) + FIVE_YEARS).isoformat()
    assert recurrence_days(rule, first, first, end)[:3] == expected


def test_days_between_two_dates() -> None:
    """Both ends count, and nothing before the first day of the rule."""
    assert recurrence_days("FREQ=DAILY", "2026-01-30", "2026-01-01", "2026-01-31") == [
        "2026-01-30",
        "2026-01-31",
    ]
    assert recurrence_days("FREQ=WEEKLY", "2000-01-02", "2026-02-01", "2026-02-08") == [
        "2026-02-01",
        "2026-02-08",
    ]
    assert recurrence_days("FREQ=DAILY", "2026-01-30", "2026-02-02", "2026-02-01") == []


def test_days_in_the_last_year_of_the_calendar() -> None:
    """The rule ends with the calendar."""
    for frequency in ("DAILY", "WEEKLY", "MONTHLY", "YEARLY"):
        year_days = recurrence_days(f"FREQ={frequency}", "9999-12-31", "9999-12-01", "9999-12-31")
        assert year_days == ["9999-12-31"]


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30,31",
        "FREQ=WEEKLY;BYYEARDAY=60;BYMONTH=1",
        "FREQ=YEARLY;BYDAY=53MO;BYMONTH=1",
        "FREQ=DAILY;INTERVAL=1000;BYMONTH=2;BYMONTHDAY=30",
        f"FREQ=YEARLY;BYYEARDAY={','.join(map(str, range(1, 110)))};BYMONTH=12;BYSETPOS=366,-366",
    ],
)
def test_rule_without_days_returns_quickly(rule: str) -> None:
    """Also from the first year of the calendar."""
    started_at = time.process_time()
    assert recurrence_days(rule, "0001-01-01", "2026-01-01", "2030-12-31") == []
    assert time.process_time() - started_at < 2.0


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("", "'' is not supported. Use FREQ"),
        ("nonsense", "'NONSENSE' is not supported. Use FREQ"),
        ("INTERVAL=2", "FREQ is missing"),
        ("FREQ=HOURLY", "FREQ=HOURLY is not supported. Use DAILY, WEEKLY, MONTHLY or YEARLY"),
        ("FREQ=DAILY;FREQ=SECONDLY", "FREQ occurs twice"),
        ("FREQ=DAILY;BYHOUR=1", "'BYHOUR=1' is not supported. Use FREQ"),
        ("FREQ=DAILY;BYSECOND=0,1,2", "is not supported. Use FREQ"),
        ("FREQ=DAILY;BYEASTER=0", "is not supported. Use FREQ"),
        ("FREQ=DAILY;COUNT=5", "is not supported. Use FREQ"),
        ("FREQ=DAILY;UNTIL=20300101", "is not supported. Use FREQ"),
        ("FREQ=DAILY\nDTSTART=00010101", "is not supported. Use DAILY"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL: 0 is not between 1 and 1000"),
        ("FREQ=DAILY;INTERVAL=1,2", "takes one number, not 1,2"),
        ("FREQ=DAILY;INTERVAL=99999999999", "is not a number"),
        ("FREQ=DAILY;INTERVAL=-1", "is not a number"),
        ("FREQ=DAILY;INTERVAL=٣", "is not a number"),
        ("FREQ=DAILY;BYMONTH=13", "not between 1 and 12"),
        ("FREQ=DAILY;BYMONTHDAY=-32", "not between 1 and 31"),
        ("FREQ=DAILY;BYDAY=1SU", "BYDAY with a number"),
        ("FREQ=MONTHLY;BYDAY=54SU", "not between 1 and 53"),
        ("FREQ=MONTHLY;BYDAY=XX", "is not a weekday"),
        ("FREQ=MONTHLY;BYDAY=", "with a value"),
        ("FREQ=MONTHLY;WKST=1", "is not a weekday"),
        ("FREQ=MONTHLY;BYSETPOS=1", "BYSETPOS requires"),
        ("FREQ=DAILY;BYMONTHDAY=" + "1," * 300 + "1", "more than 500 characters"),
    ],
)
def test_invalid_rule_raises_an_error(rule: str, message: str) -> None:
    """The error names the part of the rule."""
    with pytest.raises(RecurrenceError, match=message):
        Recurrence.parse(rule)


_SIGNED = st.integers(1, 28) | st.integers(-28, -1)
_PLAIN_DAYS = st.lists(st.sampled_from(["MO", "TU", "WE", "TH", "FR", "SA", "SU"]), min_size=1, unique=True)


def _comma_separated(values: st.SearchStrategy[list[object]]) -> st.SearchStrategy[str]:
    return values.map(lambda elements: ",".join(map(str, elements)))


@st.composite
def _rules(draw: st.DrawFn) -> str:
    """Generate rules that dateutil reads as RFC 5545 does: without numbered and plain weekdays together."""
    frequency = draw(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]))
    parts = [f"FREQ={frequency}", f"INTERVAL={draw(st.integers(1, 4))}"]
    has_day_part = False
    if draw(st.booleans()):
        parts.append(
            f"BYMONTH={draw(_comma_separated(st.lists(st.integers(1, 12), min_size=1, unique=True)))}"
        )
    if draw(st.booleans()):
        has_day_part = True
        numbered_days = st.lists(
            st.sampled_from(["1MO", "-1FR", "2WE", "4SU", "-2TU"]), min_size=1, unique=True
        )
        of_day = frequency in ("DAILY", "WEEKLY")
        parts.append(
            f"BYDAY={draw(_comma_separated(_PLAIN_DAYS if of_day else _PLAIN_DAYS | numbered_days))}"
        )
    if draw(st.booleans()):
        has_day_part = True
        parts.append(f"BYMONTHDAY={draw(_comma_separated(st.lists(_SIGNED, min_size=1, unique=True)))}")
    if has_day_part and frequency in ("MONTHLY", "YEARLY") and draw(st.booleans()):
        parts.append(f"BYSETPOS={draw(st.sampled_from(['1', '-1', '2', '1,-1']))}")
    if draw(st.booleans()):
        parts.append("WKST=SU")
    return ";".join(parts)


@given(_rules(), st.dates(date(1990, 1, 1), date(2030, 12, 31)))
def test_days_are_those_of_dateutil(rule: str, first: date) -> None:
    """The first 30 days within five years; dateutil does not terminate for rules without days."""
    days = list(islice(Recurrence.parse(rule).iterate_days(first, first, first + FIVE_YEARS), 30))
    assume(days)
    dateutil_days = islice(rrulestr(rule, dtstart=datetime.combine(first, datetime.min.time())), len(days))
    assert days == [moment.date() for moment in dateutil_days]
