from __future__ import annotations

import pytest
from celery import current_app
from django.test import AsyncClient, Client

from fleet.models.clusters import ensure_default_cluster
from fleet.models.inventory import Agent
from fleet.monitoring.state.writer import Writer
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader


def test_wrong_method_of_the_api(client: Client, fake_reader: FakeReader) -> None:
    """405 is a sentence in JSON, and names what is allowed."""
    answer = client.post("/api/v1/fleet/summary")
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "GET"
    assert answer.json() == {"detail": "POST is not allowed for this URL. Allowed: GET."}


async def test_wrong_method_of_the_api_under_asgi(async_client: AsyncClient) -> None:
    """The same where the console really runs."""
    answer = await async_client.delete("/api/v1/clusters")
    assert (answer.status_code, answer.headers["Content-Type"]) == (405, "application/json")


@pytest.mark.parametrize("path", ["/healthz", "/accounts/logout/"])
def test_other_answers_pass(client: Client, path: str) -> None:
    """Only the API speaks JSON."""
    assert client.delete(path).headers["Content-Type"] != "application/json"


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/map/",
        "/agents/",
        "/agents.csv",
        "/tokens/",
        "/nowhere/",
        "/accounts/login/",
        "/api/v1/agents",
        "/healthz",
    ],
)
@pytest.mark.parametrize("signed_in", [True, False])
def test_no_copy_is_kept(
    client: Client, fake_reader: FakeReader, person: MakeUser, path: str, signed_in: bool
) -> None:
    """Neither on the disk of a shared computer, nor by a proxy on the way."""
    if signed_in:
        client.force_login(person("viewer"))
    assert "no-store" in client.get(path).headers["Cache-Control"]


@pytest.mark.django_db
def test_unchanged_layout_is_not_sent_again(
    client: Client, fake_reader: FakeReader, person: MakeUser
) -> None:
    """The one answer that may be kept says so: its ETag saves a megabyte."""
    client.force_login(person("viewer"))
    assert client.get("/map/instances.json").headers["Cache-Control"] == "private, no-cache"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "location"),
    [("/agents/", "/accounts/login/?next=/agents/"), ("/tokens/", "/accounts/login/?next=/tokens/")],
)
def test_redirect_of_a_dialog_is_in_a_header(client: Client, path: str, location: str) -> None:
    """A dialog gets the location without following it; every other request gets a redirect."""
    answer = client.get(path, headers={"X-Refloat-Dialog": "1"})
    assert (answer.status_code, answer.headers["X-Refloat-Location"]) == (204, location)
    assert "Location" not in answer.headers
    usual_answer = client.get(path)
    assert (usual_answer.status_code, usual_answer.headers["Location"]) == (302, location)


@pytest.mark.django_db
def test_form_of_a_dialog_survives_reauthentication(
    client: Client, record: Writer, person: MakeUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page that asks for the password is no dialog: it redirects after it has repeated the form."""
    monkeypatch.setattr(current_app, "send_task", lambda name, **_: None)
    ensure_default_cluster()
    client.force_login(person("operator"))
    path = f"/agents/{record.agent_ids_and_names('default')[0][0]}/"
    form = {"action": "retire", "reason": "scrapped", "sure": "on"}
    answer = client.post(f"{path}retire/", form, headers={"X-Refloat-Dialog": "1"})
    assert answer.headers["X-Refloat-Location"].startswith("/accounts/reauthenticate/")
    answer = client.post(answer.headers["X-Refloat-Location"], {"password": "correct horse"})
    assert (answer.status_code, answer.headers["Location"]) == (302, path)
    assert Agent.objects.get().is_retired
