"""The demo's account is made once, kept, and readable by its owner alone."""

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


def test_account_can_sign_in_and_do_everything(tmp_path: Path) -> None:
    """User, password and token all work, with every permission."""
    account = demo_account.ensure_account(tmp_path, _URL, _NOW)

    user = authenticate(username=account.username, password=account.password)
    token = find_token(account.token, timezone.now())
    assert isinstance(user, User)
    assert token is not None
    assert token.user == user
    assert all(has_permission(user, permission) and token.allows(permission) for permission in Permission)


def test_file_is_private_and_says_all(tmp_path: Path) -> None:
    """0600, with url, username, password, token."""
    account = demo_account.ensure_account(tmp_path, _URL, _NOW)

    written = tmp_path / "demo.json"
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert json.loads(written.read_text()) == {
        "url": _URL,
        "username": "demo",
        "password": account.password,
        "token": account.token,
    }


def test_second_run_keeps_password_and_token(tmp_path: Path) -> None:
    """Bookmarks, sessions and scripts of the last run go on working; only the address is new."""
    first = demo_account.ensure_account(tmp_path, _URL, _NOW)
    hashed = User.objects.get().password

    second = demo_account.ensure_account(tmp_path, "http://127.0.0.1:2/", _NOW)

    assert (second.password, second.token) == (first.password, first.token)
    assert second.url == "http://127.0.0.1:2/"
    assert User.objects.get().password == hashed


def test_lost_file_gives_a_new_password(tmp_path: Path) -> None:
    """Nobody can know the old one any more."""
    first = demo_account.ensure_account(tmp_path, _URL, _NOW)
    (tmp_path / "demo.json").write_text("{")

    second = demo_account.ensure_account(tmp_path, _URL, _NOW)

    assert second.password != first.password
    assert authenticate(username="demo", password=second.password) is not None


def test_revoked_token_is_replaced(tmp_path: Path) -> None:
    """Whoever revoked it does not get it back."""
    first = demo_account.ensure_account(tmp_path, _URL, _NOW)
    ApiToken.objects.get().revoke(_NOW)

    second = demo_account.ensure_account(tmp_path, _URL, _NOW + timedelta(seconds=1))

    assert second.token != first.token


def test_database_anew_keeps_the_password(tmp_path: Path) -> None:
    """A database that was thrown away gets the user with the password that was printed before."""
    first = demo_account.ensure_account(tmp_path, _URL, _NOW)
    User.objects.all().delete()

    assert demo_account.ensure_account(tmp_path, _URL, _NOW).password == first.password
