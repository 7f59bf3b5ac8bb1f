from __future__ import annotations

import time

import numpy as np
import pytest
from django.test import Client

from fleet.alerts.evidence.copies import save_evidence
from fleet.alerts.evidence.evidence import copy_evidence
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident, IncidentEvidence
from fleet.vocabulary.verdicts import State, VerdictSentences
from tests.dashboards.alerts.api.conftest import post
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


def test_body_that_is_not_json_is_refused(client: Client, operator: dict[str, str]) -> None:
    """The answer says so."""
    answer = post(client, "silences", "{x", operator)
    assert (answer.status_code, answer.json()["detail"]) == (400, "The request body is not valid JSON.")


def test_incidents_are_listed_by_state_and_acknowledged(client: Client, operator: dict[str, str]) -> None:
    """Open ones unless asked otherwise; by the token's user."""
    row = Incident.objects.create(
        cluster=ensure_default_cluster(), key="proxy/p", cause_kind="proxy", cause_id="p", cause_name="proxy-1",
        generation=1, state="firing", severity=2, opened_at=time.time() - 60, affected_count=207, peak_count=207,
        summary="207 agents stranded.",
    )  # fmt: skip
    listing = client.get("/api/v1/incidents", headers=operator).json()
    assert [entry["summary"] for entry in listing["incidents"]] == ["207 agents stranded (proxy-1)"]
    assert listing["incidents"][0]["next_notification"]["reason"].startswith("group wait of 30 s")
    assert client.get("/api/v1/incidents?state=resolved", headers=operator).json()["incidents"] == []
    acked = post(client, f"incidents/{row.pk}/acknowledge", {}, operator).json()
    assert acked["acknowledged_by"] == "operator"
    Incident.objects.update(
        notification_count=1, notified_at=time.time(), notified_severity=2, notified_affected_count=207
    )
    next_notification = client.get("/api/v1/incidents", headers=operator).json()["incidents"][0][
        "next_notification"
    ]
    assert next_notification == {
        "at": None,
        "reason": "the incident is acknowledged, so only its resolution and flapping are notified",
        "channels": [],
        "resolved_channels": [],
        "recipients": "",
    }
    assert post(client, "clusters/default/incidents/999/acknowledge", {}, operator).status_code == 404


def test_incident_has_its_timeline(client: Client, operator: dict[str, str]) -> None:
    """The newest entry first, with who acted."""
    row = Incident.objects.create(
        cluster=ensure_default_cluster(), key="proxy/p", cause_kind="proxy", cause_id="p", cause_name="proxy-1",
        generation=1, state="firing", severity=1, opened_at=1.0, summary="3 agents stranded.",
    )  # fmt: skip
    text = "The severity decreased from critical to warning: 3 agents stranded."
    row.events.create(at=1_800_000_000.0, kind="severity", text=text)
    post(client, f"incidents/{row.pk}/acknowledge", {}, operator)
    row.events.filter(kind="acknowledged").update(at=1_800_000_060.0)
    incident = client.get(f"/api/v1/incidents/{row.pk}", headers=operator).json()
    assert incident["timeline"] == [
        {
            "at": "2027-01-15T08:01:00Z", "kind": "acknowledged", "actor": "operator",
            "text": "operator acknowledged the incident.",
        },
        {"at": "2027-01-15T08:00:00Z", "kind": "severity", "actor": "", "text": text},
    ]  # fmt: skip


def test_incident_has_the_evidence_of_its_peak(client: Client, operator: dict[str, str]) -> None:
    """The agents page by page, what they have in common, and how many there were; 404 without a copy."""
    row = Incident.objects.create(
        cluster=ensure_default_cluster(), key="proxy/p", cause_kind="proxy", cause_id="p", cause_name="proxy-1",
        generation=1, state="resolved", severity=2, opened_at=time.time() - 60, resolved_at=time.time(), peak_count=5,
        summary="5 agents were stranded.",
    )  # fmt: skip
    url = f"/api/v1/incidents/{row.pk}"
    assert client.get(url, headers=operator).json()["evidence"] is None
    assert client.get(f"{url}/evidence", headers=operator).status_code == 404
    table = FakeReader([State.STRANDED] * 5, as_of=1_800_000_000.0).table("default", 1_800_000_000.0)
    save_evidence(
        [
            (
                row,
                copy_evidence(
                    table,
                    np.arange(5),
                    lambda indices: [VerdictSentences("proxy-1 is not responding.") for _ in indices],
                ),
            )
        ]
    )
    incident = client.get(url, headers=operator).json()
    assert (incident["summary"], incident["state"]) == ("5 agents were stranded (proxy-1)", "resolved")
    assert incident["evidence"] == {
        "taken_at": "2027-01-15T08:00:00Z",
        "affected_count": 5,
        "stranded_count": 5,
    }
    page = client.get(f"{url}/evidence?limit=2", headers=operator).json()
    assert [agent["name"] for agent in page["agents"]] == ["agent-0", "agent-1"]
    assert page["agents"][0]["explanation"] == "proxy-1 is not responding."
    assert page["agents"][0]["home_proxy"] == {"id": "proxy-id-1", "name": "proxy-1"}
    assert (page["affected_count"], page["listed_count"], page["next_offset"]) == (5, 5, 2)
    assert page["pairs"][0] == {
        "home_proxy": "proxy-1",
        "auth": "auth-1",
        "affected_count": 3,
        "agent_count": 3,
    }
    assert page["common_attributes"][1]["parts"][0] == {"name": "proxy-1", "count": 3, "share": 60}
    last = client.get(f"{url}/evidence?limit=2&offset=4", headers=operator).json()
    assert ([agent["name"] for agent in last["agents"]], last["next_offset"]) == (["agent-4"], None)
    assert client.get(f"{url}/evidence?offset=900", headers=operator).json()["agents"] == []
    IncidentEvidence.objects.update(content=b"damaged")
    assert client.get(f"{url}/evidence", headers=operator).status_code == 409
    assert client.get("/api/v1/incidents/999", headers=operator).status_code == 404
