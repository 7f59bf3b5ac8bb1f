"""`manage.py user`."""

from __future__ import annotations

import io
import json
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from fleet.models.access import Permission, has_permission
from fleet.models.changes import AuditEntry
from fleet.models.clusters import ensure_default_cluster

pytestmark = pytest.mark.django_db


def _run_command(*arguments: str) -> str:
    out = StringIO()
    call_command("user", *arguments, stdout=out)
    return out.getvalue().strip()


def test_create_prints_a_password_that_signs_in() -> None:
    """Only the password is printed, and the role's permissions apply to the named cluster only."""
    password = _run_command("create", "olga", "--role", "operator", "--cluster", "eu", "--cluster", "eu")
    olga = User.objects.get(username="olga")
    assert olga.check_password(password)
    assert has_permission(olga, Permission.ACT_ON_FLEET, "eu")
    assert not has_permission(olga, Permission.ACT_ON_FLEET, "us")
    assert not has_permission(olga, Permission.CHANGE_CONFIG)


def test_create_reads_the_password_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The password is not printed and is not on a command line."""
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse battery\n"))
    assert (
        _run_command("create", "vera", "--role", "viewer", "--password-stdin")
        == "vera created with role viewer"
    )
    assert User.objects.get(username="vera").check_password("correct horse battery")


def test_role_is_replaced_and_disabled_user_keeps_it() -> None:
    """A disabled user has no permissions until the user is enabled again."""
    _run_command("create", "vera", "--role", "viewer")
    assert _run_command("role", "vera", "admin") == "vera has role admin"
    assert has_permission(User.objects.get(), Permission.MANAGE_ACCESS)
    _run_command("disable", "vera")
    rows = list(AuditEntry.objects.order_by("pk"))
    assert [(row.action, row.subject, row.outcome) for row in rows] == [
        (f"user.{verb}", "vera", "succeeded") for verb in ("create", "role", "disable")
    ]
    assert rows[1].before["roles"] == ["viewer"]
    assert rows[1].after["roles"] == ["admin"]
    assert all(row.actor_name.startswith("manage.py user, by ") for row in rows)
    assert not has_permission(User.objects.get(), Permission.VIEW_FLEET)
    (row,) = json.loads(_run_command("list", "--json"))
    assert (row["username"], row["roles"], row["active"]) == ("vera", ["admin"], False)
    assert _run_command("list") == "vera  admin  all clusters  (disabled)"
    _run_command("enable", "vera")
    assert has_permission(User.objects.get(), Permission.MANAGE_ACCESS)


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "taken", "--role", "viewer"),
        ("create", "not a name", "--role", "viewer"),
        ("role", "nobody", "viewer"),
        ("disable", "nobody"),
    ],
)
def test_invalid_arguments_are_refused_with_code_2(arguments: tuple[str, ...]) -> None:
    """The error is one line, and no user is created."""
    _run_command("create", "taken", "--role", "viewer")
    with pytest.raises(CommandError) as refusal:
        _run_command(*arguments)
    assert refusal.value.returncode == 2
    assert "\n" not in str(refusal.value)
    assert User.objects.count() == 1


def test_weak_password_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The validators of the sign-in page are used here too."""
    monkeypatch.setattr("sys.stdin", io.StringIO("1234\n"))
    with pytest.raises(CommandError, match="too short"):
        _run_command("create", "vera", "--role", "viewer", "--password-stdin")
    assert not User.objects.exists()


def test_sessions_of_a_disabled_user_end() -> None:
    """A user who was disabled and enabled must sign in again; sessions of other users stay."""
    _run_command("create", "vera", "--role", "viewer")
    _run_command("create", "olaf", "--role", "viewer")
    vera, olaf = Client(), Client()
    vera.force_login(User.objects.get(username="vera"))
    olaf.force_login(User.objects.get(username="olaf"))
    _run_command("disable", "vera")
    _run_command("enable", "vera")
    assert vera.get("/accounts/password/change/").status_code == 302
    assert olaf.get("/accounts/password/change/").status_code == 200


def test_invite_prints_a_link_and_renews_it() -> None:
    """The page behind the last link sets the password; a new user needs a role."""
    with pytest.raises(CommandError, match="--role"):
        _run_command("invite", "ada")
    link = _run_command("invite", "ada", "--role", "viewer")
    renewed_link = _run_command("invite", "ada")
    paths = [text.partition("8000")[2] for text in (link, renewed_link)]
    assert [Client().get(path).status_code for path in paths] == [404, 200]
    assert json.loads(_run_command("show", "ada", "--json"))["invited"] is True
    User.objects.create_user("vera", password="correct horse battery")
    with pytest.raises(CommandError, match="has a password already"):
        _run_command("invite", "vera")


def test_access_of_a_user_is_limited_and_ended() -> None:
    """A shell refuses nothing: it may limit the last administrator."""
    _run_command("create", "vera", "--role", "admin")
    ensure_default_cluster()
    Client().force_login(User.objects.get())
    assert _run_command("limits", "vera", "default") == "vera sees default"
    with pytest.raises(CommandError, match="there is no cluster nowhere"):
        _run_command("limits", "vera", "nowhere")
    assert _run_command("limits", "vera") == "vera sees all clusters"
    assert json.loads(_run_command("show", "vera", "--json"))["sessions"] == 1
    assert _run_command("sessions", "vera") == "1 sessions of vera ended"
    assert _run_command("tokens", "vera") == "0 API tokens of vera revoked"
    assert _run_command("second-factor", "vera") == "0 second factors of vera removed"
    assert "roles: admin" in _run_command("show", "vera")
