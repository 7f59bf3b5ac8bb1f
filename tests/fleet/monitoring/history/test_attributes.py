from __future__ import annotations

import pytest

from fleet.models import Agent, Cluster
from fleet.monitoring.agent_attributes import AgentAttributes
from fleet.monitoring.history.attributes import save_attributes
from fleet.monitoring.history.store import load_record_seed
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.writer import RecordSeed, Writer
from tests.fakes.record import write_attributes

pytestmark = pytest.mark.django_db
LABELS = (("env", "prod"), ("site", "oslo"))


@pytest.fixture
def writer(valkey_url: str, prefix: str) -> Writer:
    """Create the cluster and return a writer."""
    Cluster.objects.create(id="default", name="Default")
    return Writer(connect(valkey_url), prefix)


def test_changed_versions_and_labels_are_saved_once(writer: Writer) -> None:
    """Agents that changed nothing are not written again."""
    epoch = writer.create("default", RecordSeed())
    write_attributes(writer, epoch, AgentAttributes("1.0", LABELS), AgentAttributes("1.0"))
    assert save_attributes(writer, "default") == 1
    assert save_attributes(writer, "default") == 0
    assert [(agent.name, agent.version, agent.labels) for agent in Agent.objects.all()] == [
        ("agent-0", "1.0", {"env": "prod", "site": "oslo"}),
        ("agent-1", "1.0", {}),
    ]

    Agent.objects.filter(agent_id="id-0").update(is_retired=True, version="changed by hand", home_proxy="p")
    write_attributes(writer, epoch, AgentAttributes("1.0", LABELS), AgentAttributes("2.0"))
    save_attributes(writer, "default")
    rows = {agent.agent_id: agent for agent in Agent.objects.all()}
    assert (rows["id-1"].version, rows["id-0"].version) == ("2.0", "changed by hand")
    assert (rows["id-0"].is_retired, rows["id-0"].home_proxy) == (True, "p")


def test_new_record_has_the_saved_versions_and_labels(writer: Writer) -> None:
    """The record was lost, and the database still has them."""
    epoch = writer.create("default", RecordSeed())
    write_attributes(writer, epoch, AgentAttributes("1.0", LABELS), AgentAttributes())
    save_attributes(writer, "default")
    Agent.objects.get_or_create(cluster_id="default", agent_id="id-1", name="agent-1", position=1)
    writer.redis.delete(*writer.keys("default").record_keys)

    writer.create("default", load_record_seed("default"))
    table = writer.load("default").attributes
    assert (table.version_of(0), table.labels_of(0)) == ("1.0", dict(LABELS))
    assert (table.version_of(1), table.labels_of(1)) == ("", {})
