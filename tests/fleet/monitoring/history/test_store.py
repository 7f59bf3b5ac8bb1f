from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from django.db import connection
from django.db.models import QuerySet
from redis import Redis

from fleet.models import Agent, AgentChange, Cluster, FleetMinute, Instance, InstanceChange, Keyframe
from fleet.models.history import NO_CAUSE_KEY
from fleet.monitoring.columns import HAD_TUNNEL, NO_INSTANCE, RETIRED
from fleet.monitoring.history.store import flush_outbox, load_record_seed
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.outbox import (
    AGENT_CHANGE,
    BACKEND_INDEX,
    CLUSTER_INDEX,
    GROUP_COUNT,
    INSTANCE_CHANGE,
    RoundChanges,
    pack_round_changes,
)
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import NO_CAUSE, Reason, State
from tests.fakes.record import AS_OF, fill

pytestmark = pytest.mark.django_db

STATES = [State.HEALTHY, State.STRANDED, State.HEALTHY]


@pytest.fixture
def writer(valkey_url: str, prefix: str) -> Writer:
    """Create the cluster and return a writer."""
    Cluster.objects.create(id="default", name="Default")
    return Writer(connect(valkey_url), prefix)


def push_changes(
    writer: Writer, number: int, changes: Sequence[tuple[int, int, State, State, Reason]]
) -> None:
    """Push these changes and the memory of all agents into the outbox."""
    rows = np.array(
        [
            (agent, 0.0, cause, 0, NO_INSTANCE, old, new, reason, 0, NO_INSTANCE, 1, 0.0)
            for agent, cause, old, new, reason in changes
        ],
        AGENT_CHANGE,
    )
    changes_of_round = RoundChanges(
        round=number,
        concluded_at=AS_OF + number,
        agent_changes=rows,
        agents_to_save=np.arange(3, dtype=np.uint32),
    )
    writer.redis.rpush(writer.keys("default").outbox, pack_round_changes(changes_of_round))


def test_flush_writes_agents_instances_and_transitions(writer: Writer) -> None:
    """Agents with home proxies, instances with names, and one transition per change."""
    fill(writer, STATES)
    push_changes(writer, 1, [(1, 2, State.HEALTHY, State.STRANDED, Reason.PROXY_UNHEALTHY)])
    push_changes(writer, 2, [(1, NO_CAUSE, State.STRANDED, State.HEALTHY, Reason.NONE)])
    assert flush_outbox(writer, "default") == 2
    assert flush_outbox(writer, "default") == 0
    assert [(a.agent_id, a.position, a.home_proxy) for a in Agent.objects.all()] == [
        ("agent-1-id", 0, "proxy-1-id"),
        ("agent-2-id", 1, "proxy-2-id"),
        ("agent-3-id", 2, "proxy-1-id"),
    ]
    assert list(Instance.objects.values_list("name", flat=True)) == ["auth-1", "auth-2", "proxy-1", "proxy-2"]
    newest, first = AgentChange.objects.all()
    proxy = Instance.objects.get(instance_id="proxy-1-id")
    assert (first.agent.agent_id, first.old, first.new, first.reason, first.cause, first.at) == (
        *("agent-2-id", State.HEALTHY, State.STRANDED, Reason.PROXY_UNHEALTHY, proxy.pk, AS_OF + 1),
    )
    assert (newest.new, newest.cause, newest.at) == (State.HEALTHY, NO_CAUSE_KEY, AS_OF + 2)


def push_instance_changes(
    writer: Writer, number: int, *turns: tuple[int, InstanceState, InstanceState]
) -> None:
    """Push these instance transitions into the outbox."""
    rows = np.array([(*turn, 0, False) for turn in turns], INSTANCE_CHANGE)
    changes_of_round = RoundChanges(number, AS_OF + number, instance_changes=rows)
    writer.redis.rpush(writer.keys("default").outbox, pack_round_changes(changes_of_round))


def test_flush_writes_instance_transitions(writer: Writer) -> None:
    """The backend and the cluster have names of their own; a repeated flush writes nothing."""
    fill(writer, STATES)
    for _ in range(2):
        push_instance_changes(
            writer,
            7,
            (2, InstanceState.OK, InstanceState.SILENT),
            (BACKEND_INDEX, InstanceState.UNKNOWN, InstanceState.OK),
            (CLUSTER_INDEX, InstanceState.OK, InstanceState.SILENT),
        )
        assert flush_outbox(writer, "default") == 1
    rows = InstanceChange.objects.order_by("pk").values_list("instance", "old", "new", "round")
    assert list(rows) == [
        ("proxy-1-id", "ok", "silent", 7),
        ("backend/default", "unknown", "ok", 7),
        ("cluster/default", "ok", "silent", 7),
    ]
    assert InstanceChange.objects.latest("at").at == AS_OF + 7


def test_flush_after_a_crash_writes_no_row_twice(writer: Writer) -> None:
    """A worker that died before removing the entry flushes it again."""
    fill(writer, STATES)
    change = (1, 2, State.HEALTHY, State.STRANDED, Reason.PROXY_UNHEALTHY)
    push_changes(writer, 1, [change])
    flush_outbox(writer, "default")
    push_changes(writer, 1, [change])
    assert flush_outbox(writer, "default") == 1
    assert AgentChange.objects.count() == 1
    assert Agent.objects.count() == 3


def test_record_is_restored_after_redis_was_lost(writer: Writer) -> None:
    """Agents keep positions, home proxies, last proxies and their retired flag."""
    fill(writer, STATES)
    push_changes(writer, 1, [])
    flush_outbox(writer, "default")
    Agent.objects.filter(agent_id="agent-3-id").update(is_retired=True)
    before = writer.load("default")
    redis: Redis = writer.redis
    redis.flushdb()
    epoch = writer.create("default", load_record_seed("default"))
    after = writer.load("default")
    assert epoch != before.epoch
    assert (after.ids, after.names) == (before.ids, before.names)
    assert [facts.id for facts in after.instances.values()] == [
        facts.id for facts in before.instances.values()
    ]
    assert after.memory["home_proxy"].tolist() == before.memory["home_proxy"].tolist()
    assert after.memory["last_proxies"].tolist() == before.memory["last_proxies"].tolist()
    assert after.memory["flags"].tolist() == [HAD_TUNNEL, HAD_TUNNEL, HAD_TUNNEL | RETIRED]
    assert after.header.row_count == 0


def test_record_seed_closes_gaps(writer: Writer) -> None:
    """Positions are made contiguous."""
    for position in (0, 2, 5):
        Agent.objects.create(cluster_id="default", agent_id=f"a{position}", name="x", position=position)
    assert [identity for identity, _ in load_record_seed("default").agents] == ["a0", "a2", "a5"]
    assert list(Agent.objects.values_list("position", flat=True)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("rows", "index"),
    [
        (AgentChange.objects.filter(agent=1), "sqlite_autoindex_fleet_agentchange_1"),
        (InstanceChange.objects.filter(cluster="default", instance="a"), "instance_change_by_instance"),
    ],
)
@pytest.mark.skipif(
    connection.vendor != "sqlite", reason="PostgreSQL plans by statistics, of which a test has none"
)
def test_timeline_query_uses_an_index(rows: QuerySet[AgentChange | InstanceChange], index: str) -> None:
    """Without a scan or a sort of all rows."""
    plan = rows[:50].explain()
    assert index in plan
    assert "TEMP B-TREE" not in plan


def test_flush_writes_moves_minutes_and_a_keyframe(writer: Writer) -> None:
    """The first minute of a new installation has the first keyframe; a move is a change with the same state."""
    fill(writer, STATES)
    rows = np.array([(1, 0.0, NO_CAUSE, 0, 3, State.HEALTHY, State.HEALTHY, 0, 2, 9, 1, 0.0)], AGENT_CHANGE)
    changes = RoundChanges(
        1,
        AS_OF,
        agent_changes=rows,
        proxies=np.array([2, 3], np.uint16),
        agents_to_save=np.arange(3, dtype=np.uint32),
        state_counts=np.arange(len(State), dtype=np.uint32),
        group_counts=np.zeros(0, GROUP_COUNT),
    )
    writer.redis.rpush(writer.keys("default").outbox, pack_round_changes(changes))
    flush_outbox(writer, "default")
    move = AgentChange.objects.get()
    keys = dict(Instance.objects.values_list("name", "pk"))
    assert (move.old, move.new, move.auth) == (State.HEALTHY, State.HEALTHY, keys["auth-1"])
    assert np.frombuffer(move.proxies or b"", "<u4").tolist() == [keys["proxy-2"], keys["proxy-1"]]
    assert FleetMinute.objects.get().stranded_peak == State.STRANDED
    assert Keyframe.objects.get().at == AS_OF
