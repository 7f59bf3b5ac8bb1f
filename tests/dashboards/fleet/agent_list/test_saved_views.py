"""Saved views: who sees, shares, changes and deletes them, by page and API, with audit entries."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.test import Client

from dashboards.fleet.agent_list import saved_views
from dashboards.fleet.agent_list.saved_views import SavedViewError, SavedViewForbiddenError, ViewParameters
from fleet.audit import CONSOLE_ACTOR
from fleet.models.changes import AuditEntry
from fleet.models.clusters import ensure_default_cluster
from fleet.models.saved_views import SavedView
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


def _save(user: User, name: str, *, is_shared: bool = False, q: str = "state:stranded") -> SavedView:
    parameters = ViewParameters(q=q)
    return saved_views.save_view(user, "default", name, parameters, CONSOLE_ACTOR, is_shared=is_shared)


def test_private_views_are_seen_by_their_owner_only(person: MakeUser) -> None:
    """Shared ones by everybody; a viewer saves private ones, and shares none."""
    viewer, operator = person("viewer"), person("operator")
    _save(viewer, "mine")
    _save(operator, "private")
    _save(operator, "night", is_shared=True)
    assert [view.name for view in saved_views.read_views(viewer, "default")] == ["mine", "night"]
    with pytest.raises(SavedViewForbiddenError, match="role operator"):
        _save(viewer, "ours", is_shared=True)
    refusal = AuditEntry.objects.latest("pk")
    assert (refusal.action, refusal.outcome) == ("saved-view.create", "refused")
    assert not SavedView.objects.filter(name="ours").exists()


def test_only_owner_and_administrators_change_a_view(person: MakeUser) -> None:
    owner, colleague, admin = person("operator"), person("config admin"), person("admin")
    view = _save(owner, "night", is_shared=True)
    with pytest.raises(SavedViewForbiddenError, match="administrators"):
        saved_views.delete_view(colleague, view, CONSOLE_ACTOR)
    with pytest.raises(SavedViewForbiddenError):
        saved_views.change_view(colleague, view, CONSOLE_ACTOR, name="day")
    saved_views.change_view(owner, view, CONSOLE_ACTOR, name="day")
    entry = AuditEntry.objects.latest("pk")
    assert (entry.action, entry.before["name"], entry.after["name"]) == ("saved-view.update", "night", "day")
    saved_views.delete_view(admin, view, CONSOLE_ACTOR)
    assert AuditEntry.objects.latest("pk").action == "saved-view.delete"


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


def test_number_of_views_is_limited(person: MakeUser, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view with the same name is replaced, which is no new one; another name must be free."""
    monkeypatch.setattr(saved_views, "MAX_VIEWS", 2)
    user = person("viewer")
    _save(user, "a")
    view = _save(user, "b")
    assert _save(user, "a", q="web").q == "web"
    with pytest.raises(SavedViewError, match="no more are allowed"):
        _save(user, "c")
    with pytest.raises(SavedViewError, match="already"):
        saved_views.change_view(user, view, CONSOLE_ACTOR, name="a")


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
