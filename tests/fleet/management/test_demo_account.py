"""The demo's account is created once, kept, and readable by its owner only."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.utils import timezone

from fleet.management import demo_account
from fleet.models.access import Permission, has_permission
from fleet.models.tokens import ApiToken, find_token

pytestmark = pytest.mark.django_db
_NOW = datetime(2026, 1, 2, tzinfo=UTC)
_URL = "http://127.0.0.1:1/"


def test_account_has_every_permission(tmp_path: Path) -> None:
    """The user name, the password and the token are valid."""
    account = demo_account.ensure_account(tmp_path, _URL, _NOW)

    user = authenticate(username=account.username, password=account.password)
    token = find_token(account.token, timezone.now())
    assert isinstance(user, User)
    assert token is not None
    assert token.user == user
    assert all(has_permission(user, permission) and token.allows(permission) for permission in Permission)


def test_account_file_is_private_and_complete(tmp_path: Path) -> None:
    """The file's mode is 0600, and it has the URL, the user name, the password and the token."""
    account = demo_account.ensure_account(tmp_path, _URL, _NOW)

    account_file = tmp_path / "demo.json"
    assert stat.S_IMODE(account_file.stat().st_mode) == 0o600
    assert json.loads(account_file.read_text()) == {
        "url": _URL,
        "username": "demo",
        "password": account.password,
        "token": account.token,
    }


def test_second_run_keeps_password_and_token(tmp_path: Path) -> None:
    """Sessions and scripts of the last run keep working; only the URL changes."""
    first = demo_account.ensure_account(tmp_path, _URL, _NOW)
    password_hash = User.objects.get().password

    second = demo_account.ensure_account(tmp_path, "http://127.0.0.1:2/", _NOW)

    assert (second.password, second.token) == (first.password, first.token)
    assert second.url == "http://127.0.0.1:2/"
    assert User.objects.get().password == password_hash


def test_invalid_account_file_leads_to_a_new_password(tmp_path: Path) -> None:
    """The old password cannot be known any more."""
    first = demo_account.ensure_account(tmp_path, _URL, _NOW)
    (tmp_path / "demo.json").write_text("{")

    second = demo_account.ensure_account(tmp_path, _URL, _NOW)

    assert second.password != first.password
    assert authenticate(username="demo", password=second.password) is not None


def test_revoked_token_is_replaced(tmp_path: Path) -> None:
    """A revoked token does not become valid again."""
    first = demo_account.ensure_account(tmp_path, _URL, _NOW)
    ApiToken.objects.get().revoke(_NOW)

    second = demo_account.ensure_account(tmp_path, _URL, _NOW + timedelta(seconds=1))

    assert second.token != first.token


def test_new_database_keeps_the_password(tmp_path: Path) -> None:
    """The user is created again with the password of the account file."""
    first = demo_account.ensure_account(tmp_path, _URL, _NOW)
    User.objects.all().delete()

    assert demo_account.ensure_account(tmp_path, _URL, _NOW).password == first.password


def test_account_is_active_until_its_user_is_disabled(tmp_path: Path) -> None:
    """`refloat serve` in the home of a demo prints no setup link, so it says who can sign in."""
    assert not demo_account.is_active(tmp_path)

    demo_account.ensure_account(tmp_path, _URL, _NOW)
    assert demo_account.is_active(tmp_path)
    assert not demo_account.is_active(tmp_path / "other")

    User.objects.update(is_active=False)
    assert not demo_account.is_active(tmp_path)
