from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core import signing
from django.core.exceptions import ValidationError
from django.utils import timezone

from fleet import first_run
from fleet.first_run import SetUpAlreadyError, create_administrator, create_setup_token, is_setup_token
from fleet.models.access import Permission, has_permission
from fleet.models.changes import AuditEntry

pytestmark = pytest.mark.django_db
_PASSWORD = "correct horse battery"


def test_link_creates_one_administrator() -> None:
    """With all permissions, and an entry in the audit log; then the link no longer works."""
    token = create_setup_token()
    assert is_setup_token(token)
    user = create_administrator("ada", _PASSWORD, now=timezone.now())
    assert user.check_password(_PASSWORD)
    assert all(has_permission(user, permission) for permission in Permission)
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.subject, entry.actor_name) == ("user.create", "ada", "setup link")
    assert not is_setup_token(token)
    with pytest.raises(SetUpAlreadyError):
        create_administrator("bob", _PASSWORD, now=timezone.now())
    assert User.objects.count() == 1


def test_weak_password_or_impossible_name_creates_nobody() -> None:
    for username, password in (("ada", "12345678"), ("a b", _PASSWORD), ("ada", "ada")):
        with pytest.raises(ValidationError):
            create_administrator(username, password, now=timezone.now())
    assert not User.objects.exists()
    assert not AuditEntry.objects.exists()


def test_link_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """And others are no link: changed ones, and texts that were signed for something else."""
    token = create_setup_token()
    for text in (token[:-1], f"{token}x", "", "x", signing.dumps("first administrator", salt="other")):
        assert not is_setup_token(text)
    monkeypatch.setattr(first_run, "LINK_LIFETIME", timedelta(seconds=-1))
    assert not is_setup_token(token)
