from __future__ import annotations

import pytest
from django.test import AsyncClient, Client

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
