from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from fleet.alerts.runbooks.custom_texts import version_of
from fleet.alerts.runbooks.texts import RUNBOOKS
from fleet.models.access import Permission
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.models.runbooks import RunbookText
from fleet.models.tokens import create_token
from fleet.vocabulary.runbooks import RunbookCause
from tests.dashboards.alerts.api.conftest import post
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


@pytest.fixture
def config_admin(person: MakeUser, fake_reader: FakeReader) -> dict[str, str]:
    """Headers of a config admin's token."""
    ensure_default_cluster()
    return _headers_of(person("config admin"))


def _headers_of(user: Any) -> dict[str, str]:
    scopes = [Permission.VIEW_FLEET, Permission.CHANGE_CONFIG]
    _, secret = create_token(user, "t", scopes, lifetime=timedelta(days=1), now=timezone.now())
    return {"Authorization": f"Bearer {secret}"}


def test_runbooks_are_listed_and_shown(client: Client, operator: dict[str, str]) -> None:
    """All of them, with the built-in text; an unknown one is not found, and the error names all."""
    runbooks = client.get("/api/v1/runbooks", headers=operator).json()["runbooks"]
    assert [runbook["cause"] for runbook in runbooks] == list(RunbookCause)
    proxy = client.get("/api/v1/runbooks/proxy", headers=operator).json()
    assert proxy in runbooks
    assert proxy["meaning"] == RUNBOOKS[RunbookCause.PROXY].meaning
    assert proxy["cluster_text"] == {
        "text": "", "version": version_of(""), "updated_at": None, "updated_by": "",
    }  # fmt: skip
    answer = client.get("/api/v1/runbooks/none", headers=operator)
    assert (answer.status_code, "Use one of: auth, proxy," in answer.json()["detail"]) == (404, True)


def test_custom_text_is_set_for_its_owner(client: Client, config_admin: dict[str, str]) -> None:
    """The cluster, or the whole installation; an empty text removes it."""
    runbook = post(client, "runbooks/auth", {"text": "a\r\nb"}, config_admin).json()
    assert (runbook["cluster_text"]["text"], runbook["installation_text"]["text"]) == ("a\nb", "")
    assert (runbook["cluster_text"]["updated_by"] != "", runbook["cluster_text"]["updated_at"] is None) == (
        True,
        False,
    )
    runbook = post(client, "runbooks/auth", {"text": "all", "scope": "installation"}, config_admin).json()
    assert (runbook["cluster_text"]["text"], runbook["installation_text"]["text"]) == ("a\nb", "all")
    post(client, "runbooks/auth", {"text": ""}, config_admin)
    assert list(RunbookText.objects.values_list("cluster", "text")) == [("", "all")]


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"text": "x", "version": version_of("y")}, 409, "Out of date: somebody changed this text."),
        ({"text": "x" * 10_002}, 400, "Shorten the text by 2"),
        ({"text": "x", "colour": "red"}, 400, "unknown field 'colour'; use text, scope, version"),
        ({"text": "x", "scope": "fleet"}, 400, "scope"),
        ({}, 400, "text"),
    ],
)
def test_wrong_text_is_refused(
    client: Client, config_admin: dict[str, str], body: dict[str, Any], status: int, detail: str
) -> None:
    """The error says what to do, and nothing is stored."""
    answer = post(client, "runbooks/auth", body, config_admin)
    assert (answer.status_code, detail in answer.json()["detail"]) == (status, True)
    assert not RunbookText.objects.exists()


def test_only_users_without_a_limit_write_for_the_installation(
    client: Client, operator: dict[str, str], make_limited_user: MakeUser
) -> None:
    """And operators write nothing."""
    assert post(client, "runbooks/auth", {"text": "x"}, operator).status_code == 403
    headers = _headers_of(make_limited_user("config admin"))
    path = "clusters/other/runbooks/auth"
    assert post(client, path, {"text": "x", "scope": "installation"}, headers).status_code == 403
    assert post(client, path, {"text": "x"}, headers).status_code == 200


def test_incident_names_its_runbook(client: Client, operator: dict[str, str], incident: Incident) -> None:
    """With the path of the page."""
    (first_incident,) = client.get("/api/v1/incidents", headers=operator).json()["incidents"]
    assert (first_incident["runbook"], first_incident["runbook_path"]) == (
        "agents",
        f"/alerts/runbooks/agents/?incident={incident.pk}",
    )
