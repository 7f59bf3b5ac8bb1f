"""The page that adds agents to agent sets, over a real record."""

from __future__ import annotations

import pytest
from django.test import Client

from fleet.models.alerting import AgentSet
from fleet.models.changes import AuditEntry
from fleet.models.clusters import ensure_default_cluster
from fleet.monitoring.state.writer import Writer
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db
PATH = "/agent-sets/"


def test_selected_agents_are_added_and_removed(client: Client, person: MakeUser, record: Writer) -> None:
    """A refused name keeps what was typed; agents that a pattern matches remain, as the message says."""
    ensure_default_cluster()
    client.force_login(person("config admin"))
    ids, names = record.agent_ids_and_names("default")
    form = {"agent": ids[:2], "count": "2", "agent_set": "not a slug", "action": "add"}
    assert "Add 2 agents" in client.get(PATH, {"agent": ids[:2]}).content.decode()
    assert "Add 2 agents" in client.post(PATH, {"agents": "\n".join(ids[:2]), "show": "1"}).content.decode()
    assert not AuditEntry.objects.exists()
    assert 'value="not a slug"' in client.post(PATH, form).content.decode()
    assert not AgentSet.objects.exists()
    response = client.post(PATH, form | {"agent_set": "critical"})
    assert response.headers["Location"] == "/agents/"
    assert list(AgentSet.objects.values_list("name", "pattern")) == [("critical", name) for name in names[:2]]
    AgentSet.objects.create(cluster_id="default", name="critical", pattern="agent-*")
    response = client.post(PATH, form | {"agent_set": "critical", "action": "remove"}, follow=True)
    assert AgentSet.objects.get().pattern == "agent-*"
    texts = [str(message) for message in response.context["messages"]]
    assert texts[-1].startswith("2 agents removed from the agent set critical. 2 agents remain in the set")
    assert AuditEntry.objects.get(action="agent-set.delete").after == {"agents": list(names[:2])}


def test_other_number_of_matches_is_not_changed(client: Client, person: MakeUser, record: Writer) -> None:
    """The page that showed the number is confirmed, not the filter."""
    ensure_default_cluster()
    client.force_login(person("config admin"))
    form = {"q": "agent", "count": "1", "agent_set": "critical", "action": "add"}
    assert "Review the number and confirm again." in client.post(PATH, form).content.decode()
    assert not AgentSet.objects.exists()
    assert "No agent is selected" in client.get(PATH, {"q": "nobody-has-this-name"}).content.decode()


def test_operator_sees_no_action_and_is_refused(client: Client, person: MakeUser, record: Writer) -> None:
    """Agent sets are part of the configuration."""
    ensure_default_cluster()
    client.force_login(person("operator"))
    assert "Agent set…" not in client.get("/agents/").content.decode()
    assert client.get(PATH).status_code == 403
    client.force_login(person("config admin"))
    assert "Agent set…" in client.get("/agents/").content.decode()
