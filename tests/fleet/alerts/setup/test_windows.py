from __future__ import annotations

import time
from datetime import date, timedelta
from datetime import time as time_of_day
from typing import Any

import pytest

from fleet.alerts.incident_actions import ActionError
from fleet.alerts.setup import windows as window_actions
from fleet.alerts.setup.windows import WindowChangedError
from fleet.audit import CONSOLE_ACTOR
from fleet.models.alerting import MaintenanceWindow
from fleet.models.changes import AuditEntry

pytestmark = pytest.mark.django_db


def _row(**values: Any) -> MaintenanceWindow:
    defaults: dict[str, Any] = {
        "cluster": "default", "name": "night", "matchers": "kind=proxy", "rule": "FREQ=DAILY",
        "first_day": date(2026, 1, 1), "start_time": time_of_day(22), "length": timedelta(hours=8),
        "time_zone": "Europe/Berlin", "reason": "backups",
    }  # fmt: skip
    return MaintenanceWindow(**defaults | values)


def test_every_action_is_in_the_audit_log() -> None:
    """With the values before and after, without the ids of causes."""
    now = time.time()
    row = _row()
    window_actions.create_window(row, "ada", now, CONSOLE_ACTOR)
    changed_row = _row(pk=row.pk, start_time=time_of_day(23), creator=row.creator)
    window_actions.change_window(changed_row, now, CONSOLE_ACTOR, seen_version=window_actions.version_of(row))
    assert window_actions.set_window_enabled(changed_row, CONSOLE_ACTOR, is_enabled=False)
    assert not window_actions.set_window_enabled(changed_row, CONSOLE_ACTOR, is_enabled=False)
    window_actions.delete_window(changed_row, CONSOLE_ACTOR)
    entries = list(AuditEntry.objects.order_by("pk"))
    assert [(entry.action, entry.outcome) for entry in entries] == [
        ("window.create", "succeeded"),
        ("window.update", "succeeded"),
        ("window.toggle", "succeeded"),
        ("window.remove", "succeeded"),
    ]
    assert entries[1].before["schedule"] == "every day from 22:00 to 06:00 the next day Europe/Berlin"
    assert entries[1].after["schedule"] == "every day from 23:00 to 07:00 the next day Europe/Berlin"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": " "}, "enter a name"),
        ({"reason": "x"}, "enter a reason of at least 3 characters"),
        ({"matchers": "colour=red"}, "unknown field colour"),
        ({"matchers": ""}, "Enter the word “everything” as confirmation"),
        ({"rule": "FREQ=NEVER"}, "the recurrence rule is not valid"),
        ({"time_zone": "Mars/Base"}, "was not found"),
        ({"length": timedelta(hours=40)}, "between 1 min and 36 h"),
        ({"rule": "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"}, "no occurrence within 5 years"),
        # Every thousandth year from 2026 on: once, and that is past.
        ({"rule": "FREQ=YEARLY;INTERVAL=1000"}, "no occurrence in the next 5 years"),
    ],
)
def test_refused_window_is_logged_and_not_stored(values: dict[str, Any], message: str) -> None:
    """The same for pages and the API."""
    with pytest.raises(ActionError, match=message):
        window_actions.create_window(_row(**values), "ada", time.time(), CONSOLE_ACTOR)
    assert not MaintenanceWindow.objects.exists()
    assert AuditEntry.objects.get().outcome == "refused"


def test_window_that_somebody_changed_is_not_overwritten() -> None:
    """The error names what differs; with the new version, the change is stored; a deleted window has none."""
    now = time.time()
    row = _row()
    window_actions.create_window(row, "ada", now, CONSOLE_ACTOR)
    old_version = window_actions.version_of(row)
    window_actions.change_window(_row(pk=row.pk, reason="other backups"), now, CONSOLE_ACTOR)
    my_row = _row(pk=row.pk, start_time=time_of_day(23))
    with pytest.raises(WindowChangedError) as refusal:
        window_actions.change_window(my_row, now, CONSOLE_ACTOR, seen_version=old_version)
    assert refusal.value.changed_fields == ("start_time", "reason")
    stored_row = MaintenanceWindow.objects.get()
    assert (stored_row.reason, stored_row.start_time) == ("other backups", time_of_day(22))
    version = window_actions.version_of(stored_row)
    window_actions.change_window(my_row, now, CONSOLE_ACTOR, seen_version=version)
    assert MaintenanceWindow.objects.get().start_time == time_of_day(23)
    MaintenanceWindow.objects.all().delete()
    with pytest.raises(WindowChangedError, match="somebody deleted"):
        window_actions.change_window(my_row, now, CONSOLE_ACTOR, seen_version=version)


def test_change_keeps_a_window_disabled() -> None:
    """Enabling it is an action of its own."""
    now = time.time()
    row = _row()
    window_actions.create_window(row, "ada", now, CONSOLE_ACTOR)
    window_actions.set_window_enabled(row, CONSOLE_ACTOR, is_enabled=False)
    window_actions.change_window(_row(pk=row.pk, name="day", enabled=True), now, CONSOLE_ACTOR)
    stored_row = MaintenanceWindow.objects.get()
    assert (stored_row.name, stored_row.enabled) == ("day", False)
