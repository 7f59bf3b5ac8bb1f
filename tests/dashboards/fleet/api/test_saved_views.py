"""Saved views of the list of agents by the API."""

from __future__ import annotations

import pytest

from fleet.models.clusters import ensure_default_cluster
from fleet.models.saved_views import SavedView
from tests.dashboards.changes.api.test_networking import CallApi, call_api

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
