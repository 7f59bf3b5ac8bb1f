"""The token of an operator, for the tests of the API of alerting."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from fleet.models.access import Permission
from fleet.models.tokens import create_token
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader


@pytest.fixture
def operator(person: MakeUser, fake_reader: FakeReader) -> dict[str, str]:
    """Headers of an operator's token."""
    scopes = [Permission.VIEW_FLEET, Permission.ACT_ON_FLEET]
    _, secret = create_token(person("operator"), "t", scopes, lifetime=timedelta(days=1), now=timezone.now())
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture
def config_admin(person: MakeUser, fake_reader: FakeReader) -> dict[str, str]:
    """Headers of a token of somebody who may change the config."""
    scopes = [Permission.VIEW_FLEET, Permission.CHANGE_CONFIG]
    user = person("config admin")
    _, secret = create_token(user, "t", scopes, lifetime=timedelta(days=1), now=timezone.now())
    return {"Authorization": f"Bearer {secret}"}


def get(client: Client, path: str, headers: dict[str, str]) -> Any:
    """Read a path of the API."""
    return client.get(f"/api/v1/{path}", headers=headers)


def post(client: Client, path: str, body: Any, headers: dict[str, str]) -> Any:
    """Send JSON to a path of the API."""
    return client.post(f"/api/v1/{path}", body, content_type="application/json", headers=headers)
