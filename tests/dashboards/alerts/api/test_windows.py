from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from fleet.models.access import Permission
from fleet.models.alerting import MaintenanceWindow
from fleet.models.changes import AuditEntry
from fleet.models.tokens import create_token
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db

_BODY: dict[str, Any] = {
    "name": "night", "matchers": "cause=proxy-1", "rule": "FREQ=WEEKLY;BYDAY=SU", "start_time": "22:00",
    "end_time": "06:00", "time_zone": "Europe/Berlin", "reason": "backups",
}  # fmt: skip


def _post(client: Client, path: str, body: Any, headers: dict[str, str]) -> Any:
    return client.post(
        f"/api/v1/maintenance-windows{path}", body, content_type="application/json", headers=headers
    )


def _list(client: Client, headers: dict[str, str]) -> Any:
    return client.get("/api/v1/maintenance-windows", headers=headers).json()["maintenance_windows"]


def test_windows_are_created_listed_changed_and_deleted(client: Client, operator: dict[str, str]) -> None:
    """The creator is the token's user; each step is logged."""
    response = _post(client, "", _BODY, operator)
    assert response.status_code == 201
    window = response.json()
    assert (window["creator"], window["duration_seconds"], window["is_enabled"]) == ("operator", 28800, True)
    assert window["schedule"] == "every Sunday from 22:00 to 06:00 the next day Europe/Berlin"
    assert window["next_at"] is not None
    assert _list(client, operator) == [window]
    path = f"/{window['number']}"
    changed_window = _post(
        client, path, {"start_time": "23:00", "version": window["version"]}, operator
    ).json()
    assert (changed_window["start_time"], changed_window["duration_seconds"], changed_window["name"]) == (
        "23:00:00",
        28800,
        "night",
    )
    assert _post(client, f"{path}/disable", {}, operator).json()["is_enabled"] is False
    assert _post(client, f"{path}/enable", {}, operator).json()["is_enabled"] is True
    assert _post(client, f"{path}/delete", {}, operator).json()["name"] == "night"
    assert _list(client, operator) == []
    assert list(AuditEntry.objects.order_by("pk").values_list("action", flat=True)) == [
        "window.create",
        "window.update",
        "window.toggle",
        "window.toggle",
        "window.remove",
    ]


@pytest.mark.parametrize(
    ("wrong", "detail"),
    [
        ({"time_zone": "Mars/Base"}, "was not found. Use an IANA name"),
        ({"rule": "FREQ=NEVER"}, "The recurrence rule is not valid"),
        (
            {"rule": "FREQ=YEARLY;INTERVAL=1000", "first_day": "2020-01-01"},
            "no occurrence in the next 5 years",
        ),
        ({"matchers": "colour=red"}, "Unknown field colour"),
        ({"matchers": ""}, "Enter the word “everything” as confirmation"),
        ({"reason": "x"}, "Enter a reason of at least 3 characters."),
        ({"name": " "}, "Enter a name"),
        ({"name": "a\0"}, "NUL character"),
        ({"end_time": None}, "Send end_time or duration_seconds."),
        ({"duration_seconds": 3600}, "not both"),
        ({"start_time": "22:00Z"}, "local times"),
        ({"creator": "mallory"}, "unknown field"),
    ],
)
def test_invalid_window_is_refused(
    client: Client, operator: dict[str, str], wrong: dict[str, Any], detail: str
) -> None:
    """With the validations of the page."""
    response = _post(client, "", _BODY | wrong, operator)
    assert response.status_code == 400
    assert detail in response.json()["detail"]
    assert not MaintenanceWindow.objects.exists()


def test_window_of_everything_requires_the_word(client: Client, operator: dict[str, str]) -> None:
    """As on the page."""
    body = _BODY | {"matchers": "", "confirmation": "everything"}
    assert _post(client, "", body, operator).status_code == 201


def test_change_based_on_an_old_version_is_refused(client: Client, operator: dict[str, str]) -> None:
    """409; without a version, the last writer wins."""
    window = _post(client, "", _BODY, operator).json()
    path = f"/{window['number']}"
    assert _post(client, path, {"name": "day"}, operator).status_code == 200
    refusal = _post(client, path, {"name": "noon", "version": window["version"]}, operator)
    assert refusal.status_code == 409
    assert "Read the window again." in refusal.json()["detail"]
    assert MaintenanceWindow.objects.get().name == "day"
    assert _post(client, path, {"end_time": "22:30"}, operator).json()["duration_seconds"] == 1800
    assert _post(client, path, {"duration_seconds": 10}, operator).status_code == 400


def test_window_of_others_is_not_found_or_not_allowed(
    client: Client, operator: dict[str, str], person: MakeUser
) -> None:
    """A number that does not exist; a viewer may only list."""
    for action in ("", "/enable", "/disable", "/delete"):
        response = _post(client, f"/77{action}", {}, operator)
        assert response.status_code == 404
        assert "Maintenance window 77 was not found" in response.json()["detail"]
    _, secret = create_token(
        person("viewer"), "t", [Permission.VIEW_FLEET], lifetime=timedelta(days=1), now=timezone.now()
    )
    headers = {"Authorization": f"Bearer {secret}"}
    assert _list(client, headers) == []
    assert _post(client, "", _BODY, headers).status_code == 403
