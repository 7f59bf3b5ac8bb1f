from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day

import pytest

from dashboards.alerts.silences.matches import read_scope
from dashboards.alerts.silences.rows import (
    describe_clock_change,
    describe_window,
    find_active_silences_of,
    present_silences,
    present_windows,
)
from fleet.alerts import store
from fleet.alerts.matchers import parse_matchers
from fleet.alerts.silences import Window
from fleet.models.alerting import MaintenanceWindow, Silence
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


def _at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


_NOW = _at("2026-11-28T12:30")


def _window(rule: str, start: str, hours: float, zone: str = "Europe/Berlin") -> Window:
    first_start = datetime.fromisoformat(f"2026-11-01T{start}")
    return Window("w", parse_matchers("kind=proxy"), rule, first_start, timedelta(hours=hours), zone)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (
            _window("FREQ=WEEKLY;BYDAY=SU", "02:00", 2),
            "Every Sunday from 02:00 to 04:00 Europe/Berlin; next: Sun 29 Nov 02:00.",
        ),
        (
            _window("FREQ=DAILY", "22:00", 8),
            "Every day from 22:00 to 06:00 the next day Europe/Berlin; next: today 22:00.",
        ),
        (
            _window("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=3", "22:00", 1, "UTC"),
            "By the rule FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=3 from 22:00 to 23:00 UTC; next: Wed 3 Feb 2027 22:00.",
        ),
        (
            _window("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "22:00", 1, "UTC"),
            (
                "By the rule FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30 from 22:00 to 23:00 UTC; no further occurrence "
                "within 5 years."
            ),
        ),
        (_window("FREQ=DAILY", "22:00", 1, "Mars/Base"), "Every day from 22:00 to 23:00 Mars/Base."),
    ],
)
def test_window_is_described_with_its_next_occurrence(window: Window, expected: str) -> None:
    """In the local time of the window."""
    assert describe_window(window, _NOW) == expected


@pytest.mark.parametrize(
    ("start", "hours", "expected"),
    [
        ("02:00", 2, "On Sun 28 Mar 2027 the clocks change: the window lasts 1 h instead of 2 h."),
        ("02:15", 0.5, "On Sun 28 Mar 2027 the clocks change: the window lasts 0 s instead of 30 min."),
        ("12:00", 2, ""),
    ],
)
def test_change_of_the_clocks_is_announced(start: str, hours: float, expected: str) -> None:
    """A window in the skipped hour is shorter, or does not take place."""
    assert describe_clock_change(_window("FREQ=WEEKLY;BYDAY=SU", start, hours), _NOW) == expected


def _incident() -> Incident:
    return Incident.objects.create(
        cluster=ensure_default_cluster(), key="proxy/90569a4c", cause_kind="proxy", cause_id="90569a4c",
        cause_name="proxy-1", generation=1, state="firing", severity=2, opened_at=1.0,
    )  # fmt: skip


def _silence(matchers: str, seconds: float, reason: str) -> Silence:
    return Silence.objects.create(
        cluster="default",
        matchers=matchers,
        reason=reason,
        creator="ada",
        starts_at=_NOW - 60,
        ends_at=_NOW + seconds,
    )


def test_incident_has_all_its_silences(fake_reader: FakeReader) -> None:
    """The one that ends last first; windows without a number; silences of agents and of others are left out."""
    incident = _incident()
    silence = _silence("cause=proxy/90569a4c", 7200, "new disks")
    _silence("agent=proxy-1", 9000, "agents")
    _silence("cause=proxy-2", 9000, "other")
    MaintenanceWindow.objects.create(
        name="noon", matchers="kind=proxy", rule="FREQ=DAILY", first_day=date(2026, 1, 1), start_time=time_of_day(12),
        length=timedelta(hours=1), reason="lunch", creator="bo",
    )  # fmt: skip
    found_silences = find_active_silences_of(store.incident_of(incident), "default", _NOW, ["default"])
    assert [(entry.number, entry.text, entry.can_act) for entry in found_silences] == [
        (silence.pk, "until 14:30 UTC by ada: new disks", True),
        (0, "until 13:00 UTC by the maintenance window noon: lunch", False),
    ]
    incident.state = "resolved"
    assert find_active_silences_of(store.incident_of(incident), "default", _NOW, []) == []


def test_rows_show_names_and_matches(fake_reader: FakeReader) -> None:
    """Never the id of an instance; a silence that ends soon is marked."""
    _incident()
    _silence("cause=proxy/90569a4c severity!=info", 600, "new disks")
    _silence("", 9000, "all")
    scope = read_scope("default", _NOW)
    widest_row, row = present_silences(Silence.objects.all(), _NOW, scope, ["default"])
    assert widest_row.conditions == ["everything"]
    assert row.conditions == ["proxy-1", "severity not info"]
    assert (row.until_text, row.ends_soon, row.can_act) == ("12:40 UTC", True, True)
    assert row.matches is not None
    assert row.matches.names == ("proxy-1",)


def test_window_row_shows_its_problem() -> None:
    """A window that cannot be read is listed and not active."""
    MaintenanceWindow.objects.create(
        name="old", matchers="cause=x", rule="FREQ=WEEKLY;COUNT=3", first_day=date(2026, 1, 1),
        start_time=time_of_day(12), reason="lunch", creator="bo",
    )  # fmt: skip
    (row,) = present_windows(MaintenanceWindow.objects.all(), _NOW, "default", [])
    assert "COUNT=3" in row.problem
    assert (row.is_active, row.next_periods, row.can_act) == (False, [], False)
