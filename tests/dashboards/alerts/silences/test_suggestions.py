from __future__ import annotations

import time

import pytest

from dashboards.alerts.silences.suggestions import MAX_SUGGESTIONS, find_suggestions
from fleet.alerts.defaults import ensure_alert_defaults
from fleet.models.alerting import AgentSet
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.models.inventory import Instance
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


def _values(field: str, text: str) -> list[str]:
    return [value for value, _ in find_suggestions(field, text, "default", time.time())]


def test_agents_are_suggested_by_name(fake_reader: FakeReader) -> None:
    """Of thousands, the best twenty: the exact name first."""
    fake_reader.states[:] = [State.HEALTHY] * 3000
    values = _values("agent", "AGENT-1")
    assert len(values) == MAX_SUGGESTIONS
    assert values[:3] == ["agent-1", "agent-10", "agent-11"]
    assert _values("agent", "gent-2999") == ["agent-2999"]
    assert _values("agent", "nothing") == []


def test_causes_are_instances_and_open_incidents(fake_reader: FakeReader) -> None:
    """By name, never by id; names with wildcards are escaped."""
    cluster = ensure_default_cluster()
    Instance.objects.create(cluster=cluster, instance_id="90569a4c", kind="auth", name="auth-[1]", position=0)
    incident = Incident.objects.create(
        cluster=cluster, key="region/eu", cause_kind="region", cause_id="eu", cause_name="region eu", generation=1,
        state="firing", severity=2, opened_at=1.0,
    )  # fmt: skip
    assert find_suggestions("cause", "", "default", time.time()) == [
        ("auth-[[]1]", "auth"),
        ("region eu", f"incident {incident.pk}"),
    ]


def test_other_fields_have_their_vocabulary(fake_reader: FakeReader) -> None:
    """Agent sets, kinds, severities and rules; none for an unknown field."""
    ensure_alert_defaults()
    AgentSet.objects.create(cluster=ensure_default_cluster(), pattern="web-*", name="lab")
    assert _values("agent_set", "la") == ["lab"]
    assert _values("severity", "") == ["critical", "warning", "info"]
    assert "proxy-group" in _values("kind", "prox")
    assert "Agents stranded" in _values("rule", "stranded")
    assert _values("colour", "") == []
