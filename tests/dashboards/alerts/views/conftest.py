"""Browsers of config admins, for the tests of alert pages."""

from __future__ import annotations

import pytest
from django.test import Client

from fleet.models.clusters import ensure_default_cluster
from tests.dashboards.conftest import MakeUser, reauthenticate
from tests.fakes.reader import FakeReader


@pytest.fixture
def config_admin(client: Client, person: MakeUser, fake_reader: FakeReader) -> Client:
    """A browser in which a config admin is signed in."""
    ensure_default_cluster()
    client.force_login(person("config admin"))
    reauthenticate(client)
    return client


@pytest.fixture
def limited_admin(client: Client, make_limited_user: MakeUser, fake_reader: FakeReader) -> Client:
    """A browser in which a config admin is signed in who is limited to the cluster `other`."""
    client.force_login(make_limited_user("config admin"))
    reauthenticate(client)
    return client
