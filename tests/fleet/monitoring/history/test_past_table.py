"""A past moment from the history equals what the record had then."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fleet.models import AgentChange, Cluster, FleetMinute, Instance, InstanceChange, Keyframe
from fleet.monitoring.classify import instance_state, prepare_frame
from fleet.monitoring.columns import PLACE
from fleet.monitoring.evidence import Timing
from fleet.monitoring.history import keyframes
from fleet.monitoring.history.past_columns import empty_columns
from fleet.monitoring.history.past_table import (
    NotRecordedError,
    facts_at,
    read_first_moment,
    read_past_table,
)
from fleet.monitoring.history.store import flush_outbox
from fleet.monitoring.pollers.conclude import conclude
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.tables import agent_view_of, explanation_of
from fleet.monitoring.state.writer import Writer
from fleet.monitoring.views import FleetTable
from fleet.protocol.destination.health import Health
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import State
from tests.fakes.evidence import PolledCluster

pytestmark = pytest.mark.django_db

NOW = 1_700_000_000.0
TIMING = Timing(round_interval=5.0)
AGENTS, AUTHS, PROXIES = 12, 2, 3


@pytest.fixture
def writer(valkey_url: str, prefix: str) -> Writer:
    """Create the cluster and return a writer."""
    Cluster.objects.create(id="default", name="Default")
    return Writer(connect(valkey_url), prefix)


class RecordedFleet:
    """A fleet whose rounds are written to the history, with the table of each round."""

    def __init__(self, writer: Writer, prefix: str) -> None:
        self._polls = PolledCluster(writer, auths=AUTHS, proxies=PROXIES)
        self._polls.create_record()
        self._writer = writer
        self._reader = Reader(writer.redis, prefix)
        self.tables: list[FleetTable] = []

    @property
    def present(self) -> FleetTable:
        """Return the newest table."""
        return self.tables[-1]

    def poll(self, tunnels: list[list[int]], silent: list[int], *, agents: int = AGENTS) -> None:
        """Poll the fleet five seconds later, conclude the round, and write its history."""
        number = len(self.tables) + 1
        now = NOW + 5 * number
        self._polls.record_poll(tunnels, now=now, agents=agents, silent=silent)
        assert conclude(self._writer, "default", number, now=now, timing=TIMING, clock=float) is not None
        self.tables.append(self._reader.table("default", now))
        flush_outbox(self._writer, "default")


def assert_equal(past: FleetTable, then: FleetTable) -> None:
    """Every agent and every instance is as it was; predictions to the millisecond."""
    assert (past.ids, past.names) == (then.ids, then.names)
    for name in ("state", "cause", "reason_and_recovery"):
        assert past.verdicts[name].tolist() == then.verdicts[name].tolist(), name
    for name in ("since", "recovers_at", "strands_at"):
        np.testing.assert_allclose(past.verdicts[name], then.verdicts[name], atol=0.002)
    for name in PLACE.names or ():
        assert past.places[name].tolist() == then.places[name].tolist(), name
    assert past.memory["home_proxy"].tolist() == then.memory["home_proxy"].tolist()
    tunnels = [
        set(zip(table.tunnel_agents.tolist(), table.tunnel_proxies.tolist(), strict=True))
        for table in (past, then)
    ]
    assert tunnels[0] == tunnels[1]
    assert past.epoch == then.epoch
    assert past.instances.keys() == then.instances.keys()
    for index, view in past.instances.items():
        expected = then.instances[index]
        assert [
            *(view.facts.name, view.state, dict(view.counts), view.agent_count, view.sentence, view.cause),
            *(view.health, view.health_sentence, view.drain_request),
        ] == [
            *(expected.facts.name, expected.state, dict(expected.counts), expected.agent_count),
            *(expected.sentence, expected.cause, expected.health, expected.health_sentence),
            expected.drain_request,
        ]
    assert sentences_of(past) == sentences_of(then)
    frames = [prepare_frame(table.fleet, table.as_of or 0) for table in (past, then)]
    assert len({(frame.backend_down, frame.cluster_unreachable) for frame in frames}) == 1


def sentences_of(table: FleetTable) -> list[str]:
    """Return the sentence of each agent."""
    frame = prepare_frame(table.fleet, table.as_of or 0)
    return [agent_view_of(table, index, frame).verdict.sentence for index in range(len(table.ids))]


def test_every_moment_equals_the_round_before_it(writer: Writer, prefix: str) -> None:
    """Agents move, have several tunnels or none, and instances fail, alone and together."""
    fleet, chance = RecordedFleet(writer, prefix), random.Random(3)
    for number in range(20):
        agents = AGENTS if number > 3 else AGENTS - 4
        proxies_of_agents = [
            chance.sample(range(PROXIES), chance.choice((0, 1, 1, 1, 2))) for _ in range(agents)
        ]
        tunnels = [
            [agent for agent, proxies in enumerate(proxies_of_agents) if proxy in proxies]
            for proxy in range(PROXIES)
        ]
        silent = [
            index - AUTHS for index in range(AUTHS + PROXIES) if chance.random() < 0.2 or 12 < number < 17
        ]
        fleet.poll(tunnels, silent, agents=agents)
    states = {State(int(state)) for table in fleet.tables for state in table.verdicts["state"]}
    assert states >= {State.UNKNOWN, State.HEALTHY, State.STRANDED, State.AT_RISK, State.EXCESS}
    assert any(prepare_frame(table.fleet, table.as_of or 0).cluster_unreachable for table in fleet.tables)
    for table in fleet.tables:
        assert table.as_of is not None
        assert_equal(read_past_table("default", table.as_of, fleet.present), table)
        assert_equal(read_past_table("default", table.as_of + 4.9, fleet.present), table)


def test_a_past_agent_has_the_sentence_of_its_time_and_no_heartbeat(writer: Writer, prefix: str) -> None:
    """The sentence from the kept evidence; a change of an earlier version has only its reason."""
    fleet = RecordedFleet(writer, prefix)
    for silent in ([], [0], [0]):
        fleet.poll([[0], [1], [2]], silent, agents=3)
    past = read_past_table("default", NOW + 15, fleet.present)
    assert past.attributes is fleet.present.attributes
    views = [agent_view_of(past, index, prepare_frame(past.fleet, NOW + 15)) for index in range(2)]
    assert past.is_past
    assert [view.verdict.sentence for view in views] == sentences_of(fleet.present)[:2]
    assert views[0].verdict.cause == "proxy-0-id"
    assert (views[0].heartbeat_at, views[0].auth, views[0].proxies) == (
        None,
        "auth-0-id",
        ("proxy-0-id",),  # the last report
    )
    assert explanation_of(past, 0, prepare_frame(past.fleet, NOW + 15)).evidence.heartbeat is None
    AgentChange.objects.update(evidence=None)
    Keyframe.objects.update(content=keyframes.pack(empty_columns(NOW)))
    assert sentences_of(read_past_table("default", NOW + 15, fleet.present))[0] == (
        "Recorded as stranded; reason: proxy failing."
    )


def test_moments_before_the_history_and_without_polls(writer: Writer, prefix: str) -> None:
    """The first moment is named; where no round was concluded, every agent is unknown."""
    fleet = RecordedFleet(writer, prefix)
    fleet.poll([[0], [1], []], [], agents=2)
    with pytest.raises(NotRecordedError) as caught:
        read_past_table("default", NOW, fleet.present)
    assert caught.value.first_at == read_first_moment("default") == NOW + 5
    assert read_first_moment("other") is None
    assert not read_past_table("default", NOW + 60, fleet.present).stale
    gap = read_past_table("default", NOW + 600, fleet.present)
    assert gap.stale
    assert set(gap.verdicts["state"].tolist()) == {0}
    FleetMinute.objects.all().delete()
    assert read_past_table("default", NOW + 60, fleet.present).stale


@pytest.mark.parametrize("state", InstanceState)
@pytest.mark.parametrize("health", Health)
def test_facts_have_the_recorded_state(state: InstanceState, health: Health) -> None:
    """By the rules of the present, also if the instance is unknown to the present."""
    row = Instance(cluster_id="default", instance_id="p", kind="proxy", name="proxy-1", position=4)
    change = InstanceChange(
        cluster_id="default",
        instance="p",
        old="ok",
        new=state.slug,
        health=health.value,
        is_draining=True,
        at=NOW,
    )
    facts = facts_at(row, change, None, NOW + 60, since=NOW, is_cluster_unreachable=False)
    assert instance_state(facts, NOW + 60, TIMING) is state
    assert facts.watch.drain_request is not None
    assert facts.watch.active.signal.health is health
    unknown = facts_at(row, None, None, NOW, since=NOW, is_cluster_unreachable=False)
    assert instance_state(unknown, NOW, TIMING) is InstanceState.UNKNOWN
