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


def _run(*words: str) -> str:
    out = StringIO()
    call_command("token", *words, stdout=out)
    return out.getvalue().strip()


@pytest.fixture(autouse=True)
def viewer() -> User:
    user = User.objects.create_user("vera")
    set_role(user, "viewer")
    return user


def test_create_prints_a_token_that_works_until_revoked() -> None:
    """Only the secret is printed, so that a script can take it; `list` names it, `revoke` ends it."""
    secret = _run("create", "vera", "--name", "prometheus", "--scope", "view_metrics", "--days", "1")
    token = find_token(secret, timezone.now())
    assert token is not None
    assert token.scopes == ["view_metrics"]
    assert token.expires_at is not None
    (row,) = json.loads(_run("list", "--json"))
    assert (row["prefix"], row["user"], row["valid"]) == (token.prefix, "vera", True)
    assert secret not in _run("list")
    assert _run("list", "--user", "nobody") == ""
    _run("revoke", token.prefix)
    assert find_token(secret, timezone.now()) is None
    rows = list(AuditEntry.objects.order_by("pk"))
    assert [row.action for row in rows] == ["token.make", "token.revoke"]
    assert rows[0].after == {"scopes": ["view_metrics"]}
    assert rows[0].who.startswith("manage.py token, by ")


def test_create_without_end() -> None:
    """`--days 0` never expires."""
    _run("create", "vera", "--name", "wall", "--days", "0")
    assert ApiToken.objects.get().expires_at is None


@pytest.mark.parametrize(
    "words",
    [
        ("create", "nobody", "--name", "x"),
        ("create", "vera", "--name", "x", "--scope", "manage_access"),
        ("create", "vera", "--name", "x", "--days", "-1"),
        ("revoke", "00000000"),
    ],
)
def test_wrong_words_are_one_line(words: tuple[str, ...]) -> None:
    """A sentence and exit code 2; nothing is made."""
    with pytest.raises(CommandError) as refused:
        _run(*words)
    assert refused.value.returncode == 2
    assert not ApiToken.objects.exists()
