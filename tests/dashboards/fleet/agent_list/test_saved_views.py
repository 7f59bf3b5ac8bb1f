"""Saved views of the list: which parameters are valid, and their page."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from django.test import Client

from dashboards.fleet.agent_list import saved_views
from fleet.audit import CONSOLE_ACTOR
from fleet.models.clusters import ensure_default_cluster
from fleet.models.saved_views import SavedView
from fleet.saved_views import SavedViewError, ViewParameters
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db

STRANDED = ViewParameters(q="state:stranded", grouping="cause")


@pytest.fixture(autouse=True)
def _cluster(fake_reader: FakeReader) -> Iterator[None]:
    """The default cluster, with data that stays fresh."""
    ensure_default_cluster()
    fake_reader.as_of = time.time() + 600
    return


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        (" ", STRANDED, "Enter a name"),
        ("x" * 101, STRANDED, "101 characters"),
        ("x", ViewParameters(q="state:x"), "Unknown state"),
        ("x", ViewParameters(q="x" * 2001), "2,000 characters"),
        ("x", ViewParameters(q="a\0"), "Shorten"),
        ("x", ViewParameters(grouping="size"), "Unknown grouping"),
        ("x", ViewParameters(sort="size"), "Unknown sort key"),
        ("x", ViewParameters(columns="size"), "Unknown column"),
    ],
)
def test_view_that_the_page_cannot_show_is_refused(
    person: MakeUser, name: str, parameters: ViewParameters, sentence: str
) -> None:
    with pytest.raises(SavedViewError, match=sentence):
        saved_views.save_view(person("viewer"), "default", name, parameters, CONSOLE_ACTOR, is_shared=False)
    assert not SavedView.objects.exists()


def test_page_saves_shows_and_deletes(client: Client, person: MakeUser) -> None:
    """The menu marks the view that the page shows; names are text."""
    client.force_login(person("viewer"))
    form = {"do": "save", "name": "<b>night</b>", "parameters": "q=state:stranded&group=cause&sort=-name"}
    assert (
        client.post("/agent-views/", form)["Location"] == "/agents/?q=state:stranded&group=cause&sort=-name"
    )
    response = client.get("/agents/?state=stranded&group=cause&sort=-name")
    view = SavedView.objects.get()
    assert response.context["current_view"] == view
    assert "&lt;b&gt;night&lt;/b&gt;" in response.content.decode()
    assert client.get("/agents/").context["current_view"] is None
    response = client.post("/agent-views/", {"do": "change", "id": view.pk, "name": "day", "is_shared": "on"})
    assert (response.status_code, "role operator" in response.content.decode()) == (400, True)
    client.post("/agent-views/", {"do": "change", "id": view.pk, "name": "day"})
    assert "day" in client.get("/agent-views/").content.decode()
    client.post("/agent-views/", {"do": "delete", "id": view.pk})
    assert not SavedView.objects.exists()
    assert client.post("/agent-views/", {"do": "delete", "id": view.pk}).status_code == 400
