from __future__ import annotations

import pytest
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from dashboards.system import health as system
from fleet.models.access import Permission
from fleet.models.tokens import create_token
from fleet.monitoring.state.writer import Writer
from tests.dashboards.conftest import MakeUser
from tests.fakes.locked import database_locked, database_read_only


@pytest.mark.django_db(transaction=True)
def test_readyz_while_the_database_is_locked(
    client: Client, record: Writer, person: MakeUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading by token goes on, and the probe says what does not; afterwards it is ready again."""
    monkeypatch.setattr(system, "_PROBE_LOCK_TIMEOUT", 0.05)
    _, secret = create_token(
        person("viewer"), "t", [Permission.VIEW_FLEET], lifetime=None, now=timezone.now()
    )
    with database_locked():
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["failed_checks"]) == (503, ["database"])
        headers = {"Authorization": f"Bearer {secret}"}
        assert client.get("/api/v1/fleet/summary", headers=headers).status_code == 200
    cache.clear()
    assert client.get("/readyz").status_code == 200


@pytest.mark.django_db
def test_readyz_while_the_disk_is_full(client: Client, record: Writer) -> None:
    """A database that can be read only is not ready."""
    with database_read_only():
        assert client.get("/readyz").json()["failed_checks"] == ["database"]


@pytest.mark.django_db
def test_probe_row_is_no_session(client: Client, record: Writer) -> None:
    """Repeated requests make one row, and sign nobody in."""
    for _ in range(2):
        assert client.get("/readyz").status_code == 200
        cache.clear()
    assert Session.objects.count() == 1
    client.cookies["sessionid"] = Session.objects.get().session_key
    assert client.get("/").status_code == 302
