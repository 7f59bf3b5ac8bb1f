from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fleet.monitoring.columns import NO_INSTANCE
from fleet.monitoring.events import InstancesChanged, LayoutChanged, StateDelta
from fleet.monitoring.evidence import Timing
from fleet.monitoring.pollers.conclude import CommittedRound, compute_round, conclude
from fleet.monitoring.publish import message_of
from fleet.monitoring.state.outbox import CLUSTER_INDEX, unpack_round_changes
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import Reason, State
from tests.fakes.evidence import PolledCluster, apply_delta

NOW = 1_700_000_000.0
TIMING = Timing(round_interval=1.0)


def conclude_round(writer: Writer, number: int) -> CommittedRound:
    """Conclude poll `number`, one second after the previous one."""
    committed_round = conclude(writer, "default", number, now=NOW + number, timing=TIMING, clock=float)
    assert committed_round is not None
    return committed_round


def test_agents_of_a_silent_proxy_are_stranded_after_two_polls(writer: Writer) -> None:
    """With the proxy as the cause; other agents stay healthy."""
    cluster_polls = PolledCluster(writer)
    cluster_polls.create_record()
    tunnels = [[0, 2], [1, 3]]
    cluster_polls.record_poll(tunnels, now=NOW + 1, agents=4)
    first = conclude_round(writer, 1)
    assert first.header.counts[State.HEALTHY] == 4
    assert {type(event) for event in first.events} == {StateDelta, LayoutChanged, InstancesChanged}
    for number in (2, 3):
        cluster_polls.record_poll(tunnels, now=NOW + number, agents=4, silent=[1])
        committed_round = conclude_round(writer, number)
    record = writer.load("default")
    assert record.verdicts["state"].tolist() == [State.HEALTHY, State.STRANDED, State.HEALTHY, State.STRANDED]
    assert record.verdicts["cause"].tolist() == [NO_INSTANCE, 2, NO_INSTANCE, 2]
    delta, hint = committed_round.events
    assert isinstance(delta, StateDelta)
    assert isinstance(hint, InstancesChanged)
    # The auth has index 0: the agents stay where they were last.
    assert delta.changes == ((1, State.STRANDED, 2, 0, 2), (3, State.STRANDED, 2, 0, 2))
    outbox = [unpack_round_changes(blob) for blob in writer.read_outbox("default", 10)]
    newest = outbox[-1]
    assert newest.agent_changes["old"].tolist() == [State.HEALTHY] * 2
    assert (newest.round, newest.concluded_at) == (3, NOW + 3)
    assert (newest.agent_changes["reason_and_recovery"] & 0x1F).tolist() == [Reason.PROXY_UNHEALTHY] * 2
    assert newest.instance_changes[["instance", "old", "new"]].tolist() == [
        (2, InstanceState.OK, InstanceState.SILENT)
    ]
    assert {old for _, old, *_ in outbox[0].instance_changes.tolist()} == {InstanceState.UNKNOWN}


def test_cluster_transitions_when_every_instance_fails_and_recovers(writer: Writer) -> None:
    """The cluster and the backend have transitions of their own."""
    cluster_polls = PolledCluster(writer)
    cluster_polls.create_record()
    for number in range(1, 6):
        silent = [-1, 0, 1] if number in (3, 4) else []
        cluster_polls.record_poll([[0], [1]], now=NOW + number, agents=2, silent=silent)
        conclude_round(writer, number)
    turns = [
        transition
        for blob in writer.read_outbox("default", 10)
        for transition in unpack_round_changes(blob).instance_changes.tolist()
    ]
    assert [(old, new) for index, old, new, *_ in turns if index == CLUSTER_INDEX] == [
        (InstanceState.UNKNOWN, InstanceState.OK),
        (InstanceState.OK, InstanceState.SILENT),
        (InstanceState.SILENT, InstanceState.OK),
    ]


def test_unchanged_poll_has_no_events(writer: Writer) -> None:
    """No event, no transition, no new sequence number."""
    cluster_polls = PolledCluster(writer)
    cluster_polls.create_record()
    for number in (1, 2):
        cluster_polls.record_poll([[0], [1]], now=NOW + number, agents=2)
        committed_round = conclude_round(writer, number)
    assert committed_round.events == ()
    assert committed_round.header.seq == 1
    assert len(writer.read_outbox("default", 10)) == 1


def test_disagreement_is_counted_and_stored_once(writer: Writer) -> None:
    """The database stores the resulting verdict, not every poll."""
    cluster_polls = PolledCluster(writer)
    cluster_polls.create_record()
    for number in range(1, TIMING.min_disagreement_rounds + 1):
        cluster_polls.record_poll([[0], [1]], now=NOW + number, agents=2, claimed_count=2)
        committed_round = conclude_round(writer, number)
    assert committed_round.header.counts[State.DEGRADED] == 2
    outbox = [unpack_round_changes(blob) for blob in writer.read_outbox("default", 100)]
    assert [
        (changes.round, len(changes.agent_changes), len(changes.agents_to_save)) for changes in outbox
    ] == [
        (1, 2, 2),
        (TIMING.min_disagreement_rounds, 2, 0),
    ]


def test_healthy_agents_are_not_asked_while_the_list_is_read(writer: Writer) -> None:
    """Each of them costs as much time as many entries of the list."""
    cluster_polls = PolledCluster(writer)
    cluster_polls.create_record()
    cluster_polls.record_poll([[0], [1]], now=NOW, agents=2)
    record = writer.load("default")
    listing = replace(record, presence_feed=replace(record.presence_feed, is_listing=True))
    agents_to_query, agents_while_listing = (
        compute_round(state, 5, NOW + 1, TIMING).conclusion.agents_to_query for state in (record, listing)
    )
    assert [agents.tolist() for agents in agents_to_query.values()] == [[0], [1]]
    assert not agents_while_listing


def test_poll_is_concluded_once(writer: Writer) -> None:
    """The second call does nothing."""
    cluster_polls = PolledCluster(writer)
    cluster_polls.create_record()
    cluster_polls.record_poll([[0], [1]], now=NOW, agents=2)
    conclude_round(writer, 5)
    assert conclude(writer, "default", 5, now=NOW + 5, timing=TIMING, clock=float) is None
    assert conclude(writer, "default", 4, now=NOW + 4, timing=TIMING, clock=float) is None


def test_failed_self_probe_makes_everything_unknown(writer: Writer) -> None:
    """No agent is stranded then."""
    cluster_polls = PolledCluster(writer)
    cluster_polls.create_record()
    cluster_polls.record_poll([[0], [1]], now=NOW, agents=2)
    writer.write_instances("default", cluster_polls.epoch, probed_at=NOW - 60)
    committed_round = conclude_round(writer, 1)
    assert committed_round.header.counts[State.UNKNOWN] == 2
    # The network of the console may have failed, so the history has no transition.
    transitions = [
        transition
        for blob in writer.read_outbox("default", 10)
        for transition in unpack_round_changes(blob).instance_changes.tolist()
    ]
    assert not transitions


@pytest.mark.parametrize("seed", range(5))
def test_snapshot_with_events_equals_the_fresh_snapshot(writer: Writer, reader: Reader, seed: int) -> None:
    """For polls in which tunnels move, proxies become silent and agents join.

    A client that missed an event detects the gap and reads a new snapshot.
    """
    chance = random.Random(seed)
    cluster_polls = PolledCluster(writer, proxies=3)
    cluster_polls.create_record()
    mirror = reader.snapshot("default", NOW)
    states, seq, epoch = mirror.states, mirror.seq, mirror.epoch
    missed_count = resync_count = 0
    agents = 5
    for number in range(1, 25):
        agents += chance.random() < 0.3
        silent = [2] if number % 8 >= 5 else []
        cluster_polls.record_poll(
            random_tunnels(chance, agents), now=NOW + number, agents=agents, silent=silent
        )
        for event in conclude_round(writer, number).events:
            message = message_of(event)
            if message["type"] != "delta":
                continue
            if chance.random() < 0.2:
                missed_count += 1
                continue
            if (message["epoch"], message["seq"]) != (epoch, seq + 1):
                fresh = reader.snapshot("default", NOW + number)
                states, seq, epoch = fresh.states, fresh.seq, fresh.epoch
                resync_count += 1
                continue
            states, seq = apply_delta(states, message["changes"]), message["seq"]
        fresh = reader.snapshot("default", NOW + number)
        if fresh.seq == seq:
            assert states == fresh.states
            assert len(states) == reader.stream_header("default", NOW + number).agent_count
    assert missed_count
    assert resync_count


def random_tunnels(chance: random.Random, agents: int) -> Sequence[Sequence[int]]:
    """Return random tunnels of the agents to three proxies; some agents have none."""
    tunnels: list[list[int]] = [[], [], []]
    for agent in range(agents):
        if chance.random() < 0.9:
            tunnels[agent % 3 if chance.random() < 0.8 else chance.randrange(3)].append(agent)
    return tunnels


def test_lost_record_starts_another_epoch(writer: Writer, reader: Reader) -> None:
    """Its first event is a gap for clients of the old epoch."""
    cluster_polls = PolledCluster(writer)
    cluster_polls.create_record()
    cluster_polls.record_poll([[0], [1]], now=NOW + 1, agents=2)
    conclude_round(writer, 1)
    old = reader.snapshot("default", NOW + 1)
    writer.redis.delete(*writer.keys("default").record_keys)
    cluster_polls.create_record()
    cluster_polls.record_poll([[0], [1]], now=NOW + 2, agents=2)
    [delta, *_] = conclude_round(writer, 2).events
    assert isinstance(delta, StateDelta)
    assert delta.epoch != old.epoch
    assert reader.snapshot("default", NOW + 2).epoch == delta.epoch
