"""The page that marks an instance as degraded, over a real record."""

from __future__ import annotations

import pytest
from celery import current_app
from django.test import Client

from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import ensure_default_cluster
from fleet.monitoring.state.writer import Writer
from tests.dashboards.conftest import MakeUser, reauthenticate

pytestmark = pytest.mark.django_db
PATH = "/instances/proxy-1-id/degrade/"


@pytest.fixture
def operator(client: Client, person: MakeUser, record: Writer, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A browser of an operator; workers get no tasks."""
    ensure_default_cluster()
    monkeypatch.setattr(current_app, "send_task", lambda *_, **__: None)
    client.force_login(person("operator"))
    reauthenticate(client)
    return client


def test_mark_and_clear(operator: Client) -> None:
    """Each is a change with an audit entry; the duration is that of the form."""
    assert "Mark <bdi>proxy-1</bdi> as degraded" in operator.get(PATH).content.decode()
    assert f'href="{PATH}"' in operator.get("/instances/proxy-1-id/").content.decode()
    response = operator.post(PATH, {"action": "mark", "reason": "slow disk", "minutes": "60"})
    change = Change.objects.get()
    assert response["Location"] == f"/changes/{change.pk}/"
    assert change.after == {
        "instance": "proxy-1-id", "name": "proxy-1", "is_degraded": True, "seconds": 3600.0
    }  # fmt: skip
    assert AuditEntry.objects.get().action == "instance.degrade"
    assert operator.post(PATH, {"action": "clear", "reason": "disk replaced"}).status_code == 302
    assert Change.objects.first().after["is_degraded"] is False  # type: ignore[union-attr, index] # two changes


@pytest.mark.parametrize(
    "fields",
    [{"reason": ""}, {"reason": "a\x01bc"}, {"reason": "slow disk", "minutes": "7"}, {"action": "x"}],
)
def test_incomplete_form_changes_nothing(operator: Client, fields: dict[str, str]) -> None:
    """The page comes back."""
    assert operator.post(PATH, {"action": "mark", "reason": "slow disk", **fields}).status_code == 200
    assert not Change.objects.exists()


def test_viewer_is_refused(operator: Client, person: MakeUser) -> None:
    """Neither the link nor the page is for viewers; an unknown instance is not found."""
    assert operator.get("/instances/nobody/degrade/").status_code == 404
    operator.force_login(person("viewer"))
    assert operator.get(PATH).status_code == 403
    assert PATH not in operator.get("/instances/proxy-1-id/").content.decode()
