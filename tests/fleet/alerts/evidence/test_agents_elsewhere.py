from __future__ import annotations

import pytest

from fleet.models.alerting import Delivery
from fleet.models.incidents import Incident
from fleet.vocabulary.instances import InstanceState
from tests.fakes.evaluator_scenario import EvaluatorScenario

pytestmark = pytest.mark.django_db


def test_resolved_notification_says_what_strands_the_agents_now() -> None:
    """The first cause has recovered, but a second proxy holds the same agents."""
    scenario = EvaluatorScenario()
    scenario.run(60, stranded_count=8)
    reader = scenario.reader
    reader.cause_index, reader.proxy_state = 3, InstanceState.OK
    for _ in range(100):
        scenario.now = reader.as_of = scenario.now + 5
        scenario.evaluator.evaluate_cluster("default", scenario.now)
    first, second = (Incident.objects.get(cause_name=name) for name in ("proxy-1", "proxy-2"))
    assert (first.state, second.state) == ("resolved", "firing")
    payload = Delivery.objects.get(incident=first, kind="resolved").payload
    clause = f"its 8 agents are stranded because of proxy-2 now (incident {second.pk})"
    assert payload["incident"]["moved_agents"] == clause
    assert payload["subject"].endswith(f", peak 8 agents - {clause}")
    assert f"Recovery: {clause}.\n" in payload["text"]
    assert "recovered at" not in payload["text"]
    assert "Agents at the peak: " in payload["text"]
    # With agents of its own, an incident says nothing about others.
    assert Delivery.objects.get(incident=second, kind="firing").payload["incident"]["moved_agents"] == ""
