"""Saved views of the list of agents by the API."""

from __future__ import annotations

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from fleet.models.access import Permission
from fleet.models.clusters import ensure_default_cluster
from fleet.models.saved_views import SavedView
from fleet.models.tokens import create_token
from tests.dashboards.changes.api.test_networking import CallApi, call_api
from tests.dashboards.conftest import MakeUser

__all__ = ["call_api"]
pytestmark = pytest.mark.django_db
PATH = "/api/v1/agent-views"


def test_view_is_saved_changed_and_deleted(call_api: CallApi) -> None:
    """Its path is that of the page; unknown fields and ids are errors."""
    ensure_default_cluster()
    view = call_api("POST", PATH, {"name": "night", "q": "state:stranded", "group": "cause"}).json()
    assert (view["path"], view["is_shared"]) == ("/agents/?q=state:stranded&group=cause", False)
    assert [row["id"] for row in call_api("GET", PATH).json()["views"]] == [view["id"]]
    new_view = call_api("POST", f"{PATH}/{view['id']}", {"name": "day", "is_shared": True}).json()
    assert (new_view["name"], new_view["is_shared"], new_view["q"]) == ("day", True, "state:stranded")
    assert call_api("POST", PATH, {"name": "x", "q": "state:x"}).status_code == 400
    assert call_api("POST", PATH, {"name": "x", "filter": "y"}).status_code == 400
    assert call_api("POST", f"{PATH}/{10**30}/delete", {}).status_code == 404
    assert call_api("POST", f"{PATH}/{view['id']}/delete", {}).json()["name"] == "day"
    assert not SavedView.objects.exists()


def test_token_changes_no_more_than_its_scopes_allow(client: Client, person: MakeUser) -> None:
    """A token that may read saves nothing; one that may act changes no view of others, although its user may."""
    admin = person("admin")
    view = SavedView.objects.create(
        cluster=ensure_default_cluster(), owner=person("operator"), name="theirs", is_shared=True
    )

    def post(path: str, body: dict[str, str], *scopes: Permission) -> HttpResponse:
        _, secret = create_token(admin, "t", list(scopes), lifetime=None, now=timezone.now())
        headers = {"authorization": f"Bearer {secret}"}
        return client.post(path, body, content_type="application/json", headers=headers)

    reader, actor = (Permission.VIEW_FLEET,), (Permission.VIEW_FLEET, Permission.ACT_ON_FLEET)
    assert post(PATH, {"name": "mine"}, *reader).status_code == 403
    assert post(PATH, {"name": "mine"}, *actor).status_code == 200
    refusal = post(f"{PATH}/{view.pk}/delete", {}, *actor)
    assert (refusal.status_code, "scope manage_access" in refusal.json()["detail"]) == (403, True)
    assert post(f"{PATH}/{view.pk}/delete", {}, *Permission).status_code == 200
