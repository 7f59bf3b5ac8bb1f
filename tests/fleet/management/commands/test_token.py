from __future__ import annotations

import json
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone

from fleet.models.access import set_role
from fleet.models.changes import AuditEntry
from fleet.models.tokens import ApiToken, find_token

pytestmark = pytest.mark.django_db


def _run_command(*arguments: str) -> str:
    out = StringIO()
    call_command("token", *arguments, stdout=out)
    return out.getvalue().strip()


@pytest.fixture(autouse=True)
def viewer() -> User:
    user = User.objects.create_user("vera")
    set_role(user, "viewer")
    return user


def test_create_prints_a_token_that_works_until_revoked() -> None:
    """Only the token is printed, so that scripts can read it; `list` shows its prefix, and `revoke` ends it."""
    secret = _run_command("create", "vera", "--name", "prometheus", "--scope", "view_metrics", "--days", "1")
    token = find_token(secret, timezone.now())
    assert token is not None
    assert token.scopes == ["view_metrics"]
    assert token.expires_at is not None
    (row,) = json.loads(_run_command("list", "--json"))
    assert (row["prefix"], row["user"], row["valid"]) == (token.prefix, "vera", True)
    assert secret not in _run_command("list")
    assert _run_command("list", "--user", "nobody") == ""
    _run_command("revoke", token.prefix)
    assert find_token(secret, timezone.now()) is None
    rows = list(AuditEntry.objects.order_by("pk"))
    assert [row.action for row in rows] == ["token.create", "token.revoke"]
    assert rows[0].after == {"scopes": ["view_metrics"]}
    assert rows[0].actor_name.startswith("manage.py token, by ")


def test_token_with_zero_days_never_expires() -> None:
    """The token has no expiry."""
    _run_command("create", "vera", "--name", "wall", "--days", "0")
    assert ApiToken.objects.get().expires_at is None


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "nobody", "--name", "x"),
        ("create", "vera", "--name", "x", "--scope", "manage_access"),
        ("create", "vera", "--name", "x", "--days", "-1"),
        ("revoke", "00000000"),
    ],
)
def test_invalid_arguments_are_refused_with_code_2(arguments: tuple[str, ...]) -> None:
    """No token is created."""
    with pytest.raises(CommandError) as caught:
        _run_command(*arguments)
    assert caught.value.returncode == 2
    assert not ApiToken.objects.exists()


def test_disabled_user_gets_no_token(viewer: User) -> None:
    """The error names what is missing: the user has a role."""
    viewer.is_active = False
    viewer.save()
    with pytest.raises(CommandError, match=r"vera is disabled\. Enable the user with `user enable vera`"):
        _run_command("create", "vera", "--name", "x")
