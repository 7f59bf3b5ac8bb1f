"""Labels of agents become agent sets, with the settings that name them: `fleet/migrations/0034_agent_sets.py`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleet.alerts.matchers import parse_matchers
from fleet.models import Agent
from fleet.models.alerting import AgentSet, AlertRule, Silence
from fleet.models.changes import AuditEntry
from fleet.models.incidents import Incident
from fleet.vocabulary.actions import AuditAction
from tests.fleet.migrations.rows import Apps, create_row, newest_migration

pytestmark = pytest.mark.django_db(transaction=True)

_OLD = "0028_fired_rule_names"
_MATCHERS = {
    "label=lab agent=web-*": "agent_set=lab 'agent=web-*'",
    "agent=label": "agent=label",
    "label!='two words'": "'agent_set!=two words'",
    "cause=label=1": "cause=label=1",
}


def test_labels_become_agent_sets(migrate: Callable[[str], Apps]) -> None:
    """Patterns, rules, incidents, matchers and the audit log keep their values; and back and forward again."""
    apps = migrate(_OLD)
    cluster, _ = apps.get_model("fleet", "Cluster").objects.get_or_create(id="default")
    create_row(apps, "AgentLabel", cluster=cluster, pattern="web-*", label="critical")
    agent = create_row(apps, "Agent", cluster=cluster, agent_id="a", name="n", position=0)
    rules = apps.get_model("fleet", "AlertRule").objects
    rule = rules.create(name="Labelled", kind="stranded", severity=2, label="critical")
    cause = {"cause_kind": "proxy", "cause_id": "p", "cause_name": "p"}
    spell = {"generation": 1, "state": "firing", "severity": 2, "opened_at": 1.0}
    incident = create_row(
        *(apps, "Incident"), cluster=cluster, key="proxy/p", labels=["critical"], **cause, **spell
    )
    silences = {
        create_row(
            *(apps, "Silence"), cluster=cluster.pk, matchers=text, reason="r", starts_at=1.0,
            ends_at=2.0,
        ).pk: migrated
        for text, migrated in _MATCHERS.items()
    }  # fmt: skip
    create_row(
        *(apps, "AuditEntry"),
        actor_name="w",
        actor_kind="person",
        action="agent-label.create",
        outcome="succeeded",
    )

    for _ in range(2):
        migrate(newest_migration())
        assert AgentSet.objects.values_list("cluster_id", "pattern", "name").get() == (
            "default",
            "web-*",
            "critical",
        )
        assert AlertRule.objects.get(pk=rule.pk).agent_set == "critical"
        assert Incident.objects.get(pk=incident.pk).agent_sets == ["critical"]
        stored = dict(Silence.objects.values_list("pk", "matchers"))
        assert stored == silences
        assert [parse_matchers(text) for text in stored.values() if "agent_set" in text]
        assert AuditEntry.objects.get().action == AuditAction.AGENT_SET_CREATE
        assert (Agent.objects.get(pk=agent.pk).version, Agent.objects.get(pk=agent.pk).labels) == ("", {})

        apps = migrate(_OLD)
        assert apps.get_model("fleet", "AgentLabel").objects.get().label == "critical"
        assert apps.get_model("fleet", "AlertRule").objects.get(pk=rule.pk).label == "critical"
        assert apps.get_model("fleet", "Incident").objects.get(pk=incident.pk).labels == ["critical"]
        restored = apps.get_model("fleet", "Silence").objects.values_list("matchers", flat=True)
        assert {*restored} == {text.replace("agent_set", "label") for text in silences.values()}
        assert apps.get_model("fleet", "AuditEntry").objects.get().action == "agent-label.create"
