"""Tokens that are made and revoked, with what the log says of it."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from fleet import tokens
from fleet.audit import shell_actor_of
from fleet.models.access import Permission
from fleet.models.changes import AuditEntry
from tests.fleet.changes.conftest import NOW, by


@pytest.mark.django_db
def test_token_is_logged_with_its_owner_where_another_acts() -> None:
    """A person's own token needs no name; of a shell, the log says whose token it is."""
    owner = User.objects.create_user("vera")
    own, secret = tokens.issue_token(
        owner, "wall", [Permission.VIEW_FLEET], by(owner), lifetime=None, now=NOW
    )
    tokens.revoke_token(own, shell_actor_of("token"), NOW)
    made, ended = AuditEntry.objects.order_by("pk")
    assert (made.action, made.outcome, made.subject) == ("token.make", "done", str(own))
    assert made.after == {"scopes": ["view_fleet"]}
    assert secret not in str(made.after)
    assert (ended.action, ended.subject) == ("token.revoke", f"{own} of vera")
    assert own.revoked_at == NOW
