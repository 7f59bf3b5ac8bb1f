from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from dashboards.access.token_rows import token_row_of
from fleet.models.access import Permission
from fleet.models.tokens import create_token
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db


def test_row_has_readable_scopes_and_no_secret(person: MakeUser) -> None:
    """An expired token is not valid any more."""
    now = timezone.now()
    token, secret = create_token(
        person("admin"), "ci", [Permission.VIEW_FLEET], lifetime=timedelta(hours=1), now=now
    )
    row = token_row_of(token, now)
    assert (row.name, row.scopes, row.is_valid, row.prefix) == ("ci", "view fleet", True, token.prefix)
    assert secret not in str(row)
    assert not token_row_of(token, now + timedelta(hours=2)).is_valid
