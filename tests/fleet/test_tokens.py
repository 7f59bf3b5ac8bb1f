"""Creation and revocation of tokens in the audit log."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from fleet import tokens
from fleet.audit import shell_actor_of
from fleet.models.access import Permission
from fleet.models.changes import AuditEntry
from tests.fleet.changes.conftest import NOW, actor_of


@pytest.mark.django_db
def test_token_actions_are_logged_with_the_owner() -> None:
    """The owner is named if another actor revokes the token."""
    owner = User.objects.create_user("vera")
    token, secret = tokens.issue_token(
        owner, "wall", [Permission.VIEW_FLEET], actor_of(owner), lifetime=None, now=NOW
    )
    tokens.revoke_token(token, shell_actor_of("token"), NOW)
    create_entry, revoke_entry = AuditEntry.objects.order_by("pk")
    assert (create_entry.action, create_entry.outcome, create_entry.subject) == (
        "token.create",
        "succeeded",
        str(token),
    )
    assert create_entry.after == {"scopes": ["view_fleet"]}
    assert secret not in str(create_entry.after)
    assert (revoke_entry.action, revoke_entry.subject) == ("token.revoke", f"{token} of vera")
    assert token.revoked_at == NOW
