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

pytestmark = pytest.mark.django_db


def _run(*words: str) -> str:
    out = StringIO()
    call_command("user", *words, stdout=out)
    return out.getvalue().strip()


def test_create_prints_a_password_that_signs_in() -> None:
    """Only the password is printed, and the role allows what it should, in the named cluster alone."""
    password = _run("create", "olga", "--role", "operator", "--cluster", "eu", "--cluster", "eu")
    olga = User.objects.get(username="olga")
    assert olga.check_password(password)
    assert has_permission(olga, Permission.ACT_ON_FLEET, "eu")
    assert not has_permission(olga, Permission.ACT_ON_FLEET, "us")
    assert not has_permission(olga, Permission.CHANGE_CONFIG)


def test_create_with_a_password_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not printed, and never on a command line."""
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse battery\n"))
    assert _run("create", "vera", "--role", "viewer", "--password-stdin") == "vera created with role viewer"
    assert User.objects.get(username="vera").check_password("correct horse battery")


def test_role_off_and_on() -> None:
    """A role replaces the one before; who is off may nothing, and keeps the role for later."""
    _run("create", "vera", "--role", "viewer")
    assert _run("role", "vera", "admin") == "vera has role admin"
    assert has_permission(User.objects.get(), Permission.MANAGE_ACCESS)
    _run("disable", "vera")
    rows = list(AuditEntry.objects.order_by("pk"))
    assert [(row.action, row.subject, row.outcome) for row in rows] == [
        (f"user.{what}", "vera", "done") for what in ("create", "role", "off")
    ]
    assert rows[1].before["roles"] == ["viewer"]
    assert rows[1].after["roles"] == ["admin"]
    assert all(row.who.startswith("manage.py user, by ") for row in rows)
    assert not has_permission(User.objects.get(), Permission.VIEW_FLEET)
    (row,) = json.loads(_run("list", "--json"))
    assert (row["username"], row["roles"], row["active"]) == ("vera", ["admin"], False)
    assert _run("list") == "vera  admin  all clusters  (disabled)"
    _run("enable", "vera")
    assert has_permission(User.objects.get(), Permission.MANAGE_ACCESS)


@pytest.mark.parametrize(
    "words",
    [
        ("create", "taken", "--role", "viewer"),
        ("create", "not a name", "--role", "viewer"),
        ("role", "nobody", "viewer"),
        ("disable", "nobody"),
    ],
)
def test_wrong_words_are_one_line(words: tuple[str, ...]) -> None:
    """What is wrong, in one sentence, and exit code 2; nothing is made."""
    _run("create", "taken", "--role", "viewer")
    with pytest.raises(CommandError) as refusal:
        _run(*words)
    assert refusal.value.returncode == 2
    assert "\n" not in str(refusal.value)
    assert User.objects.count() == 1


def test_create_with_a_weak_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """The validators of the sign-in page hold here too."""
    monkeypatch.setattr("sys.stdin", io.StringIO("1234\n"))
    with pytest.raises(CommandError, match="too short"):
        _run("create", "vera", "--role", "viewer", "--password-stdin")
    assert not User.objects.exists()


def test_sessions_do_not_come_back_with_the_account() -> None:
    """Off and on again: whoever was signed in signs in anew; other people's sessions stay."""
    _run("create", "vera", "--role", "viewer")
    _run("create", "olaf", "--role", "viewer")
    vera, olaf = Client(), Client()
    vera.force_login(User.objects.get(username="vera"))
    olaf.force_login(User.objects.get(username="olaf"))
    _run("disable", "vera")
    _run("enable", "vera")
    assert vera.get("/accounts/password/change/").status_code == 302
    assert olaf.get("/accounts/password/change/").status_code == 200
