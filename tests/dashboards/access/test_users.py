from __future__ import annotations

from datetime import timedelta

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Permission as PermissionRow
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from fleet.models.access import ClusterLimit, Permission, set_role
from fleet.models.changes import AuditEntry
from fleet.models.clusters import ensure_default_cluster
from fleet.models.tokens import create_token
from fleet.users import INVITATION_LIFETIME
from tests.dashboards.conftest import MakeUser, reauthenticate

pytestmark = pytest.mark.django_db
_PASSWORD = "correct horse battery"


@pytest.fixture
def admin(client: Client, person: MakeUser) -> Client:
    """A browser in which an administrator has just signed in."""
    ensure_default_cluster()
    client.force_login(person("admin"))
    reauthenticate(client)
    return client


@pytest.fixture
def grace(db: None) -> User:
    """An operator who is signed in elsewhere, with a second factor and a token."""
    user = User.objects.create_user("grace", password=_PASSWORD)
    set_role(user, "operator")
    Client().force_login(user)
    Authenticator.objects.create(user=user, type=Authenticator.Type.TOTP, data={"secret": "x"})
    create_token(user, "ci", [Permission.VIEW_FLEET], lifetime=None, now=timezone.now())
    return user


def _post(client: Client, username: str, **fields: object) -> str:
    """Send a form of the page of a user, and return the message that follows."""
    page = client.post(f"/users/{username}/", fields, follow=True)
    return " ".join(str(message) for message in page.context["messages"])


def test_list_has_what_an_administrator_asks(admin: Client, grace: User) -> None:
    """Role, limits, second factor, sessions, tokens and state of each."""
    User.objects.create_user("gone", password=_PASSWORD, is_active=False)
    rows = {row.username: row for row in admin.get("/users/").context["rows"]}
    row = rows["grace"]
    assert (row.role, row.clusters, row.second_factors) == ("operator", (), ("authenticator app",))
    assert (row.session_count, row.token_count, row.state) == (1, 1, "active")
    assert (rows["gone"].state, rows["gone"].role) == ("disabled", "")
    page = admin.get("/users/grace/")
    assert len(page.context["sessions"]) == 1
    assert "ci" in page.content.decode()


def test_invitation_works_once(admin: Client) -> None:
    """The link is shown once; the person sets a password with it, and is signed in."""
    page = admin.post("/users/", {"username": "ada", "role": "viewer", "clusters": ["default"]})
    link = page.context["link"]
    assert link in page.content.decode()
    path = link.removeprefix("http://testserver")
    row = next(row for row in page.context["rows"] if row.username == "ada")
    assert (row.state, row.clusters) == ("invited", ("default",))
    guest = Client()
    assert "ada" in guest.get(path).content.decode()
    passwords = {"password": _PASSWORD, "password_again": _PASSWORD}
    problem = guest.post(path, passwords | {"password_again": "other"}).context["form"].errors
    assert problem == {"password_again": ["The passwords differ."]}
    assert "password" in guest.post(path, {"password": "1", "password_again": "1"}).context["form"].errors
    assert guest.post(path, passwords)["Location"] == "/"
    assert guest.get("/tokens/").status_code == 200
    assert Client().get(path).status_code == 404
    actions = list(AuditEntry.objects.order_by("pk").values_list("action", "subject"))
    assert actions[-2:] == [("user.invite", "ada"), ("user.accept-invitation", "ada")]


def test_renewed_or_old_invitation_is_not_found(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    link = admin.post("/users/", {"username": "ada", "role": "viewer"}).context["link"]
    renewed_link = admin.post("/users/ada/", {"do": "invite"}).context["link"]
    assert Client().get(link).status_code == 404
    assert Client().get(renewed_link).status_code == 200
    monkeypatch.setattr("fleet.users.INVITATION_LIFETIME", timedelta(seconds=-1))
    assert timedelta(hours=24) == INVITATION_LIFETIME
    assert Client().get(renewed_link).status_code == 404
    assert Client().get("/invitation/x/").status_code == 404


def test_disabled_user_cannot_accept(admin: Client) -> None:
    link = admin.post("/users/", {"username": "ada", "role": "viewer"}).context["link"]
    _post(admin, "ada", do="disable")
    assert Client().get(link).status_code == 404


def test_name_that_is_taken(admin: Client, grace: User) -> None:
    """Said on the page; nothing is created."""
    page = admin.post("/users/", {"username": "grace", "role": "admin"})
    assert "already exists" in page.context["form"].errors["username"][0]
    assert not page.context["link"]


def test_changes_have_entries_with_both_values(admin: Client, grace: User) -> None:
    assert _post(admin, "grace", do="role", role="viewer") == "grace has the role viewer."
    assert _post(admin, "grace", do="limits", clusters="default") == "grace sees default."
    assert "grace is disabled" in _post(admin, "grace", do="disable")
    assert "grace is enabled" in _post(admin, "grace", do="enable")
    entries = {entry.action: entry for entry in AuditEntry.objects.filter(subject="grace")}
    assert (entries["user.role"].before["roles"], entries["user.role"].after["roles"]) == (
        ["operator"],
        ["viewer"],
    )
    assert entries["user.limits"].after["clusters"] == ["default"]
    assert entries["user.disable"].after["active"] is False
    assert set(ClusterLimit.objects.values_list("user__username", "cluster")) == {("grace", "default")}


def test_access_ends_at_once(admin: Client, grace: User) -> None:
    """Sessions, tokens and the second factor, each by its button."""
    assert _post(admin, "grace", do="end-sessions") == "1 session of grace ended."
    assert _post(admin, "grace", do="revoke-tokens") == "1 API token of grace revoked."
    assert "password alone" in _post(admin, "grace", do="reset-second-factor")
    row = admin.get("/users/grace/").context["row"]
    assert (row.session_count, row.token_count, row.second_factors) == (0, 0, ())
    entry = AuditEntry.objects.get(action="user.reset-second-factor")
    assert (entry.before, entry.after) == ({"second_factors": ["totp"]}, {"second_factors": []})


@pytest.mark.parametrize(
    "fields", [{"do": "disable"}, {"do": "role", "role": "viewer"}, {"do": "limits", "clusters": "default"}]
)
def test_nobody_locks_themselves_out(admin: Client, fields: dict[str, str]) -> None:
    """With an entry that it was refused."""
    assert "ask another administrator" in _post(admin, "admin", **fields)
    page = admin.get("/users/admin/")
    assert 'value="disable"' not in page.content.decode()
    row = page.context["row"]
    assert (row.state, row.role, row.clusters) == ("active", "admin", ())
    assert AuditEntry.objects.latest("pk").outcome == "refused"


def test_last_administrator_stays(admin: Client) -> None:
    """Somebody with the permission, but without the role, cannot disable the only one who has it."""
    set_role(User.objects.create_user("other", password=_PASSWORD), "admin")
    own_user = User.objects.get(username="admin")
    set_role(own_user, "viewer")
    own_user.user_permissions.add(*PermissionRow.objects.filter(content_type__app_label="fleet"))
    assert "last administrator" in _post(admin, "other", do="disable")
    assert User.objects.get(username="other").is_active


def test_administrator_of_some_clusters_manages_nobody(client: Client, make_limited_user: MakeUser) -> None:
    client.force_login(make_limited_user("admin"))
    reauthenticate(client)
    assert client.get("/users/").status_code == 403
    assert client.post("/users/", {"username": "x", "role": "admin"}).status_code == 403


def test_hostile_names_are_text(admin: Client) -> None:
    User.objects.create(username="<b>x</b>" + "y" * 140, email="<i>@example.com")
    text = admin.get("/users/").content.decode()
    assert "<b>x</b>" not in text
    assert admin.get("/users/%3Cb%3Ex%3C/b%3E" + "y" * 140 + "/").status_code == 200
    assert admin.get("/users/no%00body/").status_code == 404
    assert admin.get("/users/nobody/").status_code == 404
