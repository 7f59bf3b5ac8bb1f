"""Every page that the palette lists exists."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import resolve

from dashboards.palette.destinations import list_actions, list_pages
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("prefix", ["", "/c/default"])
def test_addresses_lead_to_pages(client: Client, person: MakeUser, prefix: str) -> None:
    """In the default cluster and in others."""
    admin = person("admin")
    entries = [*list_pages(admin, "default", prefix), *list_actions(admin, "default", prefix)]
    paths = [entry.url.partition("?")[0] for entry in entries if not entry.theme]
    assert len(paths) > 15
    for path in paths:
        assert resolve(path).func is not None
    client.force_login(admin)
    assert client.get("/api/v1/docs").status_code == 200
