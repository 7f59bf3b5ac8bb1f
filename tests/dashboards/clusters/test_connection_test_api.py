from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from fleet.models.access import Permission
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.tokens import create_token
from tests.dashboards.conftest import MakeUser

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("live_redis")]


@pytest.fixture
def headers(person: MakeUser) -> dict[str, str]:
    """Headers of an admin's token with every scope."""
    _, secret = create_token(
        person("admin"), "t", [*Permission], lifetime=timedelta(days=1), now=timezone.now()
    )
    return {"Authorization": f"Bearer {secret}"}


def test_connection_test_is_requested_and_read(client: Client, headers: dict[str, str]) -> None:
    """None at first; a cluster without addresses has nothing to test."""
    ensure_default_cluster()
    Cluster.objects.update(auths=[])
    path = "/api/v1/clusters/default/test"
    assert client.get(path, headers=headers).json() == {"cluster": "default", "test": None}
    assert client.post(path, headers=headers).status_code == 409
    Cluster.objects.update(auths=["auth-1:3025"])
    response = client.post(path, headers=headers)
    assert response.status_code == 200, response.content
    test = response.json()["test"]
    assert (test["is_running"], test["steps"], test["pending_steps"][0]) == (True, [], "resolve")
    assert client.get(path, headers=headers).json()["test"]["id"] == test["id"]
