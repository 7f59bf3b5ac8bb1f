"""Draining instances by the API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from celery import current_app
from django.test import Client
from django.utils import timezone

from dashboards.changes import service
from fleet.models.access import ClusterLimit, Permission
from fleet.models.changes import AuditEntry
from fleet.models.drains import Drain
from fleet.models.tokens import create_token
from fleet.monitoring.views import FleetTable
from fleet.protocol.destination.health import DrainRequest
from tests.dashboards.changes.api.test_networking import CallApi, call_api
from tests.dashboards.conftest import MakeUser
from tests.fakes.locked import database_read_only
from tests.fakes.reader import FakeReader

__all__ = ["call_api"]
pytestmark = pytest.mark.django_db
PATH = "/api/v1/instances/proxy-id-1/drain"
BODY = {"is_drained": True, "reason": "kernel update"}


@pytest.fixture
def tasks(call_api: CallApi, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the tasks that workers are given."""
    names: list[str] = []
    monkeypatch.setattr(current_app, "send_task", lambda name, **_: names.append(name))
    return names


@pytest.mark.django_db(transaction=True)
def test_write_on_a_full_disk_is_a_503(call_api: CallApi, tasks: list[str]) -> None:
    """With a sentence for whoever wrote it, and nothing kept."""
    with database_read_only():
        answer = call_api("POST", PATH, BODY)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert "its disk may be full" in answer.json()["detail"]
    assert not Drain.objects.exists()


def test_drain_and_undrain(call_api: CallApi, tasks: list[str]) -> None:
    """A request makes a row, a row in the log with the token, and a task; the answer and GET show the request."""
    before = call_api("GET", PATH).json()
    assert (before["is_drained"], before["is_draining"], before["requested_at"]) == (None, False, None)
    answer = call_api("POST", PATH, BODY).json()
    row = Drain.objects.get()
    assert (row.instance, row.name, row.is_drained, row.reason) == (
        "proxy-id-1",
        "proxy-1",
        True,
        BODY["reason"],
    )
    assert (answer["is_drained"], answer["requested_by"], answer["applied_at"]) == (
        True,
        row.actor_name,
        None,
    )
    entry = AuditEntry.objects.get(action="instance.drain")
    assert ("token ci" in entry.actor_name, entry.outcome, entry.reason) == (
        True,
        "succeeded",
        BODY["reason"],
    )
    assert tasks == ["fleet.tasks.apply_drains"]
    Drain.objects.update(error="connection refused", applied_at=timezone.now())
    status = call_api("GET", PATH).json()
    assert (status["error"], status["applied_at"] is not None) == ("connection refused", True)
    cluster = PATH.replace("/api/v1/", "/api/v1/clusters/default/")
    assert call_api("POST", cluster, {"is_drained": False, "reason": "updated"}).json()["is_drained"] is False
    assert not Drain.objects.get().is_drained


def test_last_of_its_kind_must_be_confirmed(
    call_api: CallApi, tasks: list[str], fake_reader: FakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the other proxy drains, 409 until `allow_last`; the refusal is in the log, and undraining needs nothing."""
    read_table = fake_reader.table

    def with_drained_others(cluster: str, now: float) -> FleetTable:
        table = read_table(cluster, now)
        views = {
            index: replace(view, drain_request=DrainRequest("disk", now))
            if view.facts.id == "proxy-id-2"
            else view
            for index, view in table.instances.items()
        }
        return replace(table, instances=views)

    monkeypatch.setattr(fake_reader, "table", with_drained_others)
    answer = call_api("POST", PATH, BODY)
    assert (answer.status_code, "allow_last: true" in answer.json()["detail"]) == (409, True)
    assert AuditEntry.objects.get().outcome == "refused"
    assert not Drain.objects.exists()
    assert call_api("POST", PATH, BODY | {"allow_last": True}).status_code == 200
    assert call_api("POST", PATH, {"is_drained": False, "reason": "updated"}).status_code == 200
    assert call_api("GET", PATH.replace("id-1", "id-2")).json()["is_draining"] is True


def test_requested_drain_counts_before_the_instance_reports_it(call_api: CallApi, tasks: list[str]) -> None:
    """Of two proxies drained at once the second is refused, until the first is undrained."""
    other_path = PATH.replace("id-1", "id-2")
    assert call_api("POST", other_path, BODY).status_code == 200
    assert call_api("POST", PATH, BODY).status_code == 409
    assert call_api("POST", other_path, BODY).status_code == 200
    assert call_api("POST", other_path, {"is_drained": False, "reason": "updated"}).status_code == 200
    assert call_api("POST", PATH, BODY).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (PATH, {"is_drained": True, "reason": " x "}, 400),
        (PATH, {"is_drained": True, "reason": "x" * 201}, 400),
        (PATH, {"is_drained": True, "reason": "a\u0001bc"}, 400),
        (PATH, {"is_drained": True}, 400),
        (PATH, BODY | {"soon": True}, 400),
        (PATH.replace("proxy-id-1", "nobody"), BODY, 404),
        (PATH.replace("/api/v1/", "/api/v1/clusters/mars/"), BODY, 404),
    ],
)
def test_wrong_request_changes_nothing(
    call_api: CallApi, tasks: list[str], path: str, body: Any, status: int
) -> None:
    """Each is refused with a sentence."""
    answer = call_api("POST", path, body)
    assert answer.status_code == status
    assert answer.json()["detail"]
    assert (Drain.objects.exists(), tasks) == (False, [])


def test_token_without_the_scope_and_limited_user(
    client: Client, person: MakeUser, fake_reader: FakeReader
) -> None:
    """The scope `act_on_fleet`, the role and the cluster are needed, for reading the request too."""
    user = person("operator")
    scopes = [Permission.VIEW_FLEET]
    _token, secret = create_token(user, "view", scopes, lifetime=None, now=timezone.now())
    headers = {"Authorization": f"Bearer {secret}"}
    assert client.get(PATH, headers=headers).status_code == 403
    assert client.post(PATH, BODY, "application/json", headers=headers).status_code == 403
    client.force_login(person("viewer"))
    assert client.post(PATH, BODY, "application/json").status_code == 403
    ClusterLimit.objects.create(user=user, cluster="eu")
    client.force_login(user)
    assert client.post(PATH, BODY, "application/json").status_code == 403


def test_session_without_recent_proof_is_refused(
    client: Client, person: MakeUser, fake_reader: FakeReader
) -> None:
    """As on the page: 403 without recent proof."""
    client.force_login(person("operator"))
    answer = client.post(PATH, BODY, "application/json")
    assert (answer.status_code, "reauthenticate" in answer.json()["detail"]) == (403, True)
    assert not Drain.objects.exists()


def test_accepts_connections(fake_reader: FakeReader) -> None:
    """An instance that is well and does not drain."""
    view = fake_reader.instances("default", 0.0)[0]
    assert service.accepts_connections(view)
    assert not service.accepts_connections(replace(view, drain_request=DrainRequest("disk", 0.0)))
    assert service.accepts_connections(view, {"other-id"})
    assert not service.accepts_connections(view, {view.facts.id})


def test_name_instead_of_an_id_is_404_with_where_ids_are_listed(call_api: CallApi) -> None:
    """Pages show names, so that the instance would seem to be gone."""
    for prefix in ("", "/clusters/default"):
        answer = call_api("GET", f"/api/v1{prefix}/instances/proxy-1/drain")
        assert answer.status_code == 404
        assert answer.json()["detail"] == (
            "Instance proxy-1 was not found in cluster default: paths take ids. "
            "GET /api/v1/instances lists ids and names."
        )
