from __future__ import annotations

import time

import pytest
from django.test import Client

from fleet.domain.verdicts import State
from fleet.models.access import Permission
from fleet.models.changes import AuditEntry
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident, IncidentEvent
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


@pytest.fixture
def incident(fake_reader: FakeReader) -> Incident:
    """Agents without a common cause, which is what the fake's stranded agents are."""
    now = time.time()
    fake_reader.states[0] = State.STRANDED
    return Incident.objects.create(
        cluster=ensure_default_cluster(), key="agents/none", cause_kind="agents", cause_id="none",
        cause_name="agents without a common cause", generation=1, state="firing", severity=2, opened_at=now - 90,
        fired_at=now - 60, affected=3, peak=207, names=["agent-2"], sentence="207 agents stranded.",
        trend=[[now - 90, 10], [now - 60, 207], [now - 30, 3]], notices=1, notified_at=now - 60, notified_severity=2,
        marks={"Agents stranded": [now - 90, 1.0, 2, 2, 207, "207 agents stranded.", True, False]},
    )  # fmt: skip


def test_list_shows_open_incidents_and_when_somebody_looked(
    client: Client, person: MakeUser, incident: Incident
) -> None:
    """With a link to each."""
    client.force_login(person("viewer"))
    page = client.get("/incidents/").content.decode()
    assert f"/incidents/{incident.pk}/" in page
    assert "Nobody has looked yet" in page
    assert client.get("/incidents/badge.json").json() == {"open": {"critical": 1, "warning": 0, "info": 0}}


def test_incident_page_says_what_is_needed_at_night(
    client: Client, person: MakeUser, incident: Incident
) -> None:
    """Count, cause, what they have in common, agents, what comes next and why."""
    client.force_login(person("operator"))
    page = client.get(f"/incidents/{incident.pk}/").content.decode()
    for words in (
        "207 agents stranded",
        "What they have in common",
        "Home proxy",
        "agent-2",
        "In the half hour before",
    ):
        assert words in page
    assert "because it is said again while it lasts" in page
    assert "to nobody: its route has no channel" in page
    assert "Acknowledge" in page


def test_operator_acknowledges_notes_and_silences(
    client: Client, person: MakeUser, incident: Incident
) -> None:
    """Under their own name, on the timeline."""
    client.force_login(person("operator"))
    url = f"/incidents/{incident.pk}/"
    for form in (
        {"do": "acknowledge"},
        {"do": "note", "text": "<b>switch</b>"},
        {"do": "silence", "reason": "known"},
    ):
        assert client.post(url, form).status_code == 302
    incident.refresh_from_db()
    assert incident.acked_by == "operator"
    page = client.get(url).content.decode()
    assert "&lt;b&gt;switch" in page
    kinds = list(IncidentEvent.objects.order_by("pk").values_list("kind", "who"))
    assert kinds == [("acknowledged", "operator"), ("note", "operator"), ("silenced", "operator")]


def test_viewer_sees_no_button_and_may_not_post(client: Client, person: MakeUser, incident: Incident) -> None:
    """Hidden, and refused."""
    client.force_login(person("viewer"))
    url = f"/incidents/{incident.pk}/"
    assert 'value="acknowledge"' not in client.get(url).content.decode()
    assert client.post(url, {"do": "acknowledge"}).status_code == 403
    assert not IncidentEvent.objects.exists()
    assert Permission.ACT_ON_FLEET


def test_page_lives_while_the_record_cannot_be_read(
    client: Client, person: MakeUser, incident: Incident, fake_reader: FakeReader
) -> None:
    """That is when it is needed most."""
    fake_reader.down = True
    client.force_login(person("viewer"))
    assert client.get(f"/incidents/{incident.pk}/").status_code == 200
    assert client.get("/incidents/999/").status_code == 404
    assert not AuditEntry.objects.exists()
