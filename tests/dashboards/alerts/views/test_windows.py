from __future__ import annotations

from datetime import date, timedelta
from datetime import time as time_of_day
from typing import Any

import pytest
from django.test import Client

from fleet.models.alerting import MaintenanceWindow
from fleet.models.clusters import ensure_default_cluster
from tests.dashboards.conftest import MakeUser, reauthenticate
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db

_FORM: dict[str, Any] = {
    "do": "window", "name": "night", "matchers": "kind=proxy", "repetition": "weekly", "weekdays": ["5", "6"],
    "start_time": "22:00", "end_time": "06:00", "time_zone": "Europe/Berlin", "reason": "backups",
    "rule": "FREQ=WEEKLY;BYDAY=SU", "shown_rule": "FREQ=WEEKLY;BYDAY=SU",
}  # fmt: skip


@pytest.fixture
def operator(client: Client, person: MakeUser, fake_reader: FakeReader) -> Client:
    """A browser in which an operator is signed in."""
    ensure_default_cluster()
    client.force_login(person("operator"))
    reauthenticate(client)
    return client


def _create(client: Client, **changes: Any) -> str:
    return client.post("/silences/windows/new/", _FORM | changes, follow=True).content.decode()


@pytest.mark.parametrize(
    ("changes", "rule", "hours"),
    [
        ({}, "FREQ=WEEKLY;BYDAY=SA,SU", 8),
        ({"repetition": "daily"}, "FREQ=DAILY", 8),
        ({"repetition": "every-n-weeks", "interval": "2"}, "FREQ=WEEKLY;INTERVAL=2;BYDAY=SA,SU", 8),
        ({"repetition": "monthly", "month_day": "-1"}, "FREQ=MONTHLY;BYMONTHDAY=-1", 8),
        ({"end_time": "22:00"}, "FREQ=WEEKLY;BYDAY=SA,SU", 24),
        ({"end_time": "", "duration": "36 h"}, "FREQ=WEEKLY;BYDAY=SA,SU", 36),
        # A rule that was edited wins, also over a choice.
        ({"rule": "FREQ=YEARLY"}, "FREQ=YEARLY", 8),
        ({"repetition": "rule", "rule": "FREQ=YEARLY", "shown_rule": "FREQ=YEARLY"}, "FREQ=YEARLY", 8),
    ],
)
def test_window_is_created_from_its_controls(
    operator: Client, changes: dict[str, Any], rule: str, hours: float
) -> None:
    """Toggles or a rule; an end or a duration."""
    assert "The maintenance window night is created." in _create(operator, **changes)
    row = MaintenanceWindow.objects.get()
    assert (row.rule, row.length, row.creator) == (rule, timedelta(hours=hours), "operator")
    assert (row.cluster, row.start_time, row.time_zone) == ("default", time_of_day(22), "Europe/Berlin")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "This field is required."),
        ({"weekdays": []}, "Choose at least one weekday."),
        ({"repetition": "every-n-weeks", "interval": "1"}, "greater than or equal to 2"),
        ({"time_zone": "Mars/Base"}, "was not found. Use an IANA name"),
        ({"rule": "FREQ=NEVER"}, "The recurrence rule is not valid"),
        ({"rule": "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"}, "no occurrence within 5 years"),
        (
            {"rule": "FREQ=YEARLY;INTERVAL=1000", "first_day": "2020-01-01"},
            "no occurrence in the next 5 years",
        ),
        ({"first_day": "0001-01-01"}, "The first day must be between 1970 and 2199"),
        ({"end_time": ""}, "Enter the end of the window."),
        ({"duration": "30 h"}, "Enter an end or a duration, not both."),
        ({"end_time": "", "duration": "90 h"}, "Enter at most 36 h."),
        ({"reason": "x"}, "Enter a reason of at least 3 characters."),
        ({"matchers": ""}, "Enter the word “everything” as confirmation"),
        ({"matchers": "colour=red"}, "Unknown field colour"),
    ],
)
def test_refused_form_keeps_what_was_typed(operator: Client, changes: dict[str, Any], message: str) -> None:
    """It is still the content of its dialog, with its matchers, times and weekdays."""
    page = _create(operator, **changes)
    assert message in page
    assert "data-dialog-body" in page
    assert not MaintenanceWindow.objects.exists()
    values = {**_FORM, **changes}
    for name in ("name", "time_zone", "start_time"):
        assert f'value="{values[name]}"' in page or not values[name]
    assert page.count("checked") == 1 + len(values["weekdays"])


def test_window_that_silences_everything_is_confirmed(operator: Client) -> None:
    """By the typed word."""
    _create(operator, matchers="", confirmation="everything")
    assert MaintenanceWindow.objects.get().matchers == ""


def test_conditions_of_a_window_are_edited_without_scripts(operator: Client) -> None:
    """The other values stay, also the weekdays."""
    page = _create(
        operator, do="add", name="", condition_field="kind", condition_operator="is", condition_value="auth"
    )
    assert "Kind of cause is <b>auth</b>" in page
    assert "errors" not in page
    assert page.count("checked") == 3
    assert not MaintenanceWindow.objects.exists()


def _window(**values: Any) -> MaintenanceWindow:
    defaults: dict[str, Any] = {
        "cluster": "default", "name": "night", "matchers": "kind=proxy", "rule": "FREQ=WEEKLY;BYDAY=SU",
        "first_day": date(2026, 1, 1), "start_time": time_of_day(22), "length": timedelta(hours=8),
        "time_zone": "Europe/Berlin", "reason": "backups", "creator": "ada",
    }  # fmt: skip
    return MaintenanceWindow.objects.create(**defaults | values)


def test_window_is_edited(operator: Client) -> None:
    """The form shows its values; its creator and whether it is enabled stay."""
    row = _window(enabled=False)
    response = operator.get(f"/silences/windows/{row.pk}/")
    page = response.content.decode()
    assert "Every Sunday from 22:00 to 06:00 the next day Europe/Berlin; next:" in page
    assert "Kind of cause is <b>proxy</b>" in page
    form = _FORM | {"seen_version": response.context["seen_version"], "repetition": "daily"}
    page = operator.post(f"/silences/windows/{row.pk}/", form, follow=True).content.decode()
    assert "The maintenance window night is changed." in page
    row.refresh_from_db()
    assert (row.rule, row.creator, row.enabled) == ("FREQ=DAILY", "ada", False)


def test_rule_that_controls_cannot_show_is_kept(operator: Client) -> None:
    """The form opens with the rule, and saving it changes nothing; so does a window of more than a day."""
    row = _window(rule="FREQ=MONTHLY;BYDAY=2SU", length=timedelta(hours=30))
    response = operator.get(f"/silences/windows/{row.pk}/")
    assert response.context["is_advanced_open"]
    page = response.content.decode()
    assert 'name="rule" class="code" maxlength="200" value="FREQ=MONTHLY;BYDAY=2SU"' in page
    form = _FORM | {
        "repetition": "rule", "rule": "FREQ=MONTHLY;BYDAY=2SU", "shown_rule": "FREQ=MONTHLY;BYDAY=2SU",
        "end_time": "", "duration": "30 h", "seen_version": response.context["seen_version"],
    }  # fmt: skip
    operator.post(f"/silences/windows/{row.pk}/", form)
    row.refresh_from_db()
    assert (row.rule, row.length) == ("FREQ=MONTHLY;BYDAY=2SU", timedelta(hours=30))


def test_edit_of_a_window_that_somebody_changed_loses_nothing(operator: Client) -> None:
    """The form says what differs and keeps what was typed; saving again replaces the other change."""
    row = _window()
    url = f"/silences/windows/{row.pk}/"
    form = _FORM | {"seen_version": operator.get(url).context["seen_version"], "reason": "my backups"}
    MaintenanceWindow.objects.update(time_zone="Asia/Tokyo")
    response = operator.post(url, form)
    page = response.content.decode()
    assert "Out of date: somebody changed this maintenance window." in page
    assert "Your values differ in: days, time zone, reason." in page or "time zone" in page
    assert 'value="my backups"' in page
    assert MaintenanceWindow.objects.get().reason == "backups"
    operator.post(url, form | {"seen_version": response.context["seen_version"]})
    stored_row = MaintenanceWindow.objects.get()
    assert (stored_row.reason, stored_row.time_zone) == ("my backups", "Europe/Berlin")


def test_edit_of_a_window_that_somebody_deleted_becomes_a_new_one(operator: Client) -> None:
    """With what was typed."""
    row = _window()
    url = f"/silences/windows/{row.pk}/"
    MaintenanceWindow.objects.all().delete()
    page = operator.post(url, _FORM | {"reason": "my backups"}).content.decode()
    assert "Somebody deleted this maintenance window." in page
    assert 'action="/silences/windows/new/"' in page
    assert 'value="my backups"' in page
    assert operator.get(url).status_code == 404


def test_window_is_deleted_after_a_question(operator: Client) -> None:
    """A GET deletes nothing; the second of two people is told."""
    row = _window()
    url = f"/silences/windows/{row.pk}/delete/"
    assert "Delete maintenance window night?" in operator.get(url).content.decode()
    assert MaintenanceWindow.objects.exists()
    assert "is deleted." in operator.post(url, follow=True).content.decode()
    assert not MaintenanceWindow.objects.exists()
    assert "was deleted already" in operator.post(url, follow=True).content.decode()
    assert operator.get(url).status_code == 404


def test_preview_is_a_sentence(operator: Client) -> None:
    """When the window recurs, what it matches, and what is wrong."""
    preview = operator.get("/silences/windows/preview", _FORM).content.decode()
    assert "Every Saturday and Sunday from 22:00 to 06:00 the next day Europe/Berlin; next:" in preview
    assert "Matches <b>0</b>" in preview
    wrong = operator.get("/silences/windows/preview", _FORM | {"time_zone": "Mars/Base"}).content.decode()
    assert "was not found" in wrong
    assert operator.get("/silences/windows/preview").status_code == 200
