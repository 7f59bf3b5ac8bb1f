from __future__ import annotations

import pytest
from django.test import AsyncClient, Client

from tests.fakes.reader import FakeReader


def test_wrong_method_of_the_api(client: Client, fake_reader: FakeReader) -> None:
    """405 is a sentence in JSON, and names what is allowed."""
    answer = client.post("/api/v1/fleet/summary")
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "GET"
    assert answer.json() == {"detail": "POST is not allowed at this address, only GET."}


async def test_wrong_method_of_the_api_under_asgi(async_client: AsyncClient) -> None:
    """The same where the console really runs."""
    answer = await async_client.delete("/api/v1/clusters")
    assert (answer.status_code, answer.headers["Content-Type"]) == (405, "application/json")


@pytest.mark.parametrize("path", ["/healthz", "/accounts/logout/"])
def test_other_answers_pass(client: Client, path: str) -> None:
    """Only the API speaks JSON."""
    assert client.delete(path).headers["Content-Type"] != "application/json"
