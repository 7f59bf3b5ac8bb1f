from __future__ import annotations

import numpy as np
import pytest

from fleet.models.clusters import ensure_default_cluster
from fleet.models.history import FleetMinute, Keyframe
from fleet.models.inventory import Agent, Instance
from fleet.monitoring.columns import NO_INSTANCE
from fleet.monitoring.history import keyframes
from fleet.monitoring.history.past_columns import COLUMN_NAMES, empty_columns
from fleet.monitoring.history.store import flush_outbox
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.outbox import RoundChanges, pack_round_changes
from fleet.monitoring.state.writer import RecordSeed, Writer
from fleet.vocabulary.verdicts import State
from tests.fakes.record import AS_OF, conclude, fill

DAY = 86400.0


@pytest.fixture
def writer(valkey_url: str, prefix: str) -> Writer:
    """Create the cluster and return a writer."""
    ensure_default_cluster()
    return Writer(connect(valkey_url), prefix)


def _save_inventory(writer: Writer) -> None:
    """Write the rows of agents and instances, as a flush does."""
    changes = RoundChanges(1, AS_OF, agents_to_save=np.arange(9, dtype=np.uint32))
    writer.redis.rpush(writer.keys("default").outbox, pack_round_changes(changes))
    flush_outbox(writer, "default")


def test_empty_fleet_survives_packing() -> None:
    """A cluster without agents has keyframes too."""
    columns = keyframes.unpack(keyframes.pack(empty_columns(5.0)), 5.0)
    assert columns.at == 5.0
    assert [len(getattr(columns, name)) for name in COLUMN_NAMES] == [0] * len(COLUMN_NAMES)


@pytest.mark.django_db
def test_keyframe_has_the_states_and_places_of_the_record(writer: Writer) -> None:
    """By keys of the database: those of the agents are not in the order of the record."""
    for agent in ("agent-3-id", "agent-1-id"):
        Agent.objects.create(cluster_id="default", agent_id=agent, name=agent, position=9)
    fill(writer, [State.HEALTHY, State.STRANDED, State.HEALTHY], cause=NO_INSTANCE, connected_to_all=1)
    _save_inventory(writer)
    assert keyframes.save_if_due(writer, "default", AS_OF)
    columns = keyframes.read_newest("default", AS_OF)
    assert columns is not None
    keys = dict(Agent.objects.values_list("agent_id", "pk"))
    ids = ["agent-3-id", "agent-1-id", "agent-2-id"]
    assert columns.agents.tolist() == [keys[agent] for agent in ids]
    assert columns.states.tolist() == [State.HEALTHY, State.HEALTHY, State.STRANDED]
    assert columns.since.tolist() == [AS_OF] * 3
    instances = dict(Instance.objects.values_list("name", "pk"))
    assert columns.auths.tolist() == [instances["auth-1"]] * 3
    assert columns.proxies.tolist() == [instances[f"proxy-{number}"] for number in (1, 1, 2)]
    assert columns.tunnel_counts.tolist() == [1, 2, 1]
    # The proxy on whose block the agent stands comes first.
    assert columns.tunnel_proxies.tolist() == [instances[f"proxy-{number}"] for number in (1, 1, 2, 2)]


@pytest.mark.django_db
def test_keyframe_is_due_after_a_day_or_many_changes(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before; many are at least as many as there are agents."""
    states = [State.HEALTHY] * 3
    fill(writer, states)
    _save_inventory(writer)
    Keyframe.objects.all().delete()
    assert keyframes.save_if_due(writer, "default", AS_OF)
    assert not keyframes.save_if_due(writer, "default", AS_OF + DAY - 1)
    conclude(writer, states, as_of=AS_OF + DAY)
    assert keyframes.save_if_due(writer, "default", AS_OF + DAY)
    monkeypatch.setattr(keyframes, "_CHANGE_LIMIT", 2)
    minute = FleetMinute.objects.create(
        cluster_id="default",
        at=AS_OF + DAY,
        state_counts=b"",
        stranded_peak=0,
        at_risk_peak=0,
        change_count=2,
        groups=b"",
    )
    conclude(writer, states, as_of=AS_OF + DAY + 90)
    assert not keyframes.save_if_due(writer, "default", AS_OF + DAY + 90)
    FleetMinute.objects.filter(pk=minute.pk).update(change_count=3)
    assert keyframes.save_if_due(writer, "default", AS_OF + DAY + 90)
    assert [row.at for row in Keyframe.objects.all()] == [AS_OF + DAY + 90, AS_OF + DAY, AS_OF]


@pytest.mark.django_db
def test_record_without_a_round_has_no_keyframe(writer: Writer) -> None:
    """There is nothing to keep yet."""
    writer.create("default", RecordSeed())
    assert not keyframes.save_if_due(writer, "default", AS_OF)
    assert keyframes.read_newest("default", AS_OF) is None
