from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.utils import timezone

from fleet.audit import CONSOLE_ACTOR
from fleet.models.changes import AuditEntry
from fleet.users import create_user

pytestmark = pytest.mark.django_db
_PASSWORD = "correct horse battery"


def test_user_has_role_limits_and_an_audit_entry() -> None:
    user = create_user(
        "ada", _PASSWORD, "operator", CONSOLE_ACTOR, now=timezone.now(), clusters=("eu", "eu", "us")
    )
    assert user.check_password(_PASSWORD)
    assert list(user.groups.values_list("name", flat=True)) == ["operator"]
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.subject, entry.after) == (
        "user.create",
        "ada",
        {"roles": ["operator"], "clusters": ["eu", "us"], "active": True},
    )


@pytest.mark.parametrize(
    ("username", "password", "field"), [("ada", "ada", "password"), ("a b", _PASSWORD, "username")]
)
def test_invalid_values_create_nobody(username: str, password: str, field: str) -> None:
    with pytest.raises(ValidationError) as error_info:
        create_user(username, password, "operator", CONSOLE_ACTOR, now=timezone.now())
    assert list(error_info.value.message_dict) == [field]
    assert not User.objects.exists()
    assert not AuditEntry.objects.exists()
