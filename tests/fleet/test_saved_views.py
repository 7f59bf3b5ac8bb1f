"""Saved views: who sees, shares, changes and deletes them, with audit entries."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from fleet import saved_views
from fleet.audit import CONSOLE_ACTOR
from fleet.models.access import set_role
from fleet.models.changes import AuditEntry
from fleet.models.clusters import ensure_default_cluster
from fleet.models.saved_views import SavedView
from fleet.saved_views import SavedViewError, SavedViewForbiddenError, ViewParameters

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _cluster() -> None:
    ensure_default_cluster()


def _create_user(role: str) -> User:
    user = User.objects.create_user(role.replace(" ", "-"))
    set_role(user, role)
    return user


def _save(user: User, name: str, *, is_shared: bool = False, q: str = "state:stranded") -> SavedView:
    return saved_views.save_view(
        user,
        "default",
        name,
        ViewParameters(q=q),
        CONSOLE_ACTOR,
        require_valid=lambda _: None,
        is_shared=is_shared,
    )


def test_private_views_are_seen_by_their_owner_only() -> None:
    """Shared ones by everybody; a viewer saves private ones, and shares none."""
    viewer, operator = _create_user("viewer"), _create_user("operator")
    _save(viewer, "mine")
    _save(operator, "private")
    _save(operator, "night", is_shared=True)
    assert [view.name for view in saved_views.read_views(viewer, "default")] == ["mine", "night"]
    with pytest.raises(SavedViewForbiddenError, match="role operator"):
        _save(viewer, "ours", is_shared=True)
    refusal = AuditEntry.objects.latest("pk")
    assert (refusal.action, refusal.outcome) == ("saved-view.create", "refused")
    assert not SavedView.objects.filter(name="ours").exists()


def test_only_owner_and_administrators_change_a_view() -> None:
    owner, colleague, admin = _create_user("operator"), _create_user("config admin"), _create_user("admin")
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


def test_number_of_views_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view with the same name is replaced, which is no new one; another name must be free."""
    monkeypatch.setattr(saved_views, "MAX_VIEWS", 2)
    user = _create_user("viewer")
    _save(user, "a")
    view = _save(user, "b")
    assert _save(user, "a", q="web").q == "web"
    with pytest.raises(SavedViewError, match="no more are allowed"):
        _save(user, "c")
    with pytest.raises(SavedViewError, match="already"):
        saved_views.change_view(user, view, CONSOLE_ACTOR, name="a")
