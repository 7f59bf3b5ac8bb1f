from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from fleet.monitoring.columns import NO_INSTANCE
from fleet.monitoring.events import InstancesChanged, LayoutChanged, StateDelta
from fleet.monitoring.evidence import Timing
from fleet.monitoring.pollers.conclude import CommittedRound, conclude
from fleet.monitoring.publish import message_of
from fleet.monitoring.state.outbox import CLUSTER, unpack_round_changes
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import Reason, State
from tests.fakes.evidence import Polled, apply

NOW = 1_700_000_000.0
TIMING = Timing(round_interval=1.0)


def finish(writer: Writer, number: int) -> CommittedRound:
    """Conclude round `number`, one second after the one before it."""
    done = conclude(writer, "default", number, now=NOW + number, timing=TIMING, clock=float)
    assert done is not None
    return done


def test_round_with_one_proxy_silent(writer: Writer) -> None:
    """After two failed attempts its agents are stranded, with the cause; the others stay healthy."""
    polled = Polled(writer)
    polled.begin()
    tunnels = [[0, 2], [1, 3]]
    polled.see(tunnels, now=NOW + 1, agents=4)
    first = finish(writer, 1)
    assert first.header.counts[State.HEALTHY] == 4
    assert {type(event) for event in first.events} == {StateDelta, LayoutChanged, InstancesChanged}
    for number in (2, 3):
        polled.see(tunnels, now=NOW + number, agents=4, silent=[1])
        done = finish(writer, number)
    record = writer.load("default")
    assert record.verdicts["state"].tolist() == [State.HEALTHY, State.STRANDED, State.HEALTHY, State.STRANDED]
    assert record.verdicts["cause"].tolist() == [NO_INSTANCE, 2, NO_INSTANCE, 2]
    delta, hint = done.events
    assert isinstance(delta, StateDelta)
    assert isinstance(hint, InstancesChanged)
    assert delta.changes == ((1, State.STRANDED), (3, State.STRANDED))
    owed = [unpack_round_changes(blob) for blob in writer.read_outbox("default", 10)]
    newest = owed[-1]
    assert newest.transitions["old"].tolist() == [State.HEALTHY] * 2
    assert (newest.round, newest.at) == (3, NOW + 3)
    assert (newest.transitions["packed"] & 0x1F).tolist() == [Reason.PROXY_UNHEALTHY] * 2
    assert newest.instances.tolist() == [(2, InstanceState.OK, InstanceState.SILENT)]
    assert {old for _, old, _ in owed[0].instances.tolist()} == {InstanceState.UNKNOWN}


def test_every_target_fails_and_one_answers_again(writer: Writer) -> None:
    """The cluster has turns of its own, and so has what the auths rest on."""
    polled = Polled(writer)
    polled.begin()
    for number in range(1, 6):
        silent = [-1, 0, 1] if number in (3, 4) else []
        polled.see([[0], [1]], now=NOW + number, agents=2, silent=silent)
        finish(writer, number)
    turns = [
        turn
        for blob in writer.read_outbox("default", 10)
        for turn in unpack_round_changes(blob).instances.tolist()
    ]
    assert [(old, new) for index, old, new in turns if index == CLUSTER] == [
        (InstanceState.UNKNOWN, InstanceState.OK),
        (InstanceState.OK, InstanceState.SILENT),
        (InstanceState.SILENT, InstanceState.OK),
    ]


def test_round_in_which_nothing_changed(writer: Writer) -> None:
    """No event, no transition, no new sequence number: only the age is renewed."""
    polled = Polled(writer)
    polled.begin()
    for number in (1, 2):
        polled.see([[0], [1]], now=NOW + number, agents=2)
        done = finish(writer, number)
    assert done.events == ()
    assert done.header.seq == 1
    assert len(writer.read_outbox("default", 10)) == 1


def test_rounds_in_which_an_agent_and_its_proxies_disagree(writer: Writer) -> None:
    """They are counted in the record; the database hears of the verdict that follows, not of every round."""
    polled = Polled(writer)
    polled.begin()
    for number in range(1, TIMING.disagreement_rounds + 1):
        polled.see([[0], [1]], now=NOW + number, agents=2, claimed=2)
        done = finish(writer, number)
    assert done.header.counts[State.DEGRADED] == 2
    owed = [unpack_round_changes(blob) for blob in writer.read_outbox("default", 100)]
    assert [(one.round, len(one.transitions), len(one.changed_agents)) for one in owed] == [
        (1, 2, 2),
        (TIMING.disagreement_rounds, 2, 0),
    ]


def test_round_concluded_twice(writer: Writer) -> None:
    """The second one does nothing."""
    polled = Polled(writer)
    polled.begin()
    polled.see([[0], [1]], now=NOW, agents=2)
    finish(writer, 5)
    assert conclude(writer, "default", 5, now=NOW + 5, timing=TIMING, clock=float) is None
    assert conclude(writer, "default", 4, now=NOW + 4, timing=TIMING, clock=float) is None


def test_self_probe_that_fails_for_long(writer: Writer) -> None:
    """We are blind: everything is unknown, and nothing reads stranded."""
    polled = Polled(writer)
    polled.begin()
    polled.see([[0], [1]], now=NOW, agents=2)
    writer.write_instances("default", polled.epoch, probed_at=NOW - 60)
    done = finish(writer, 1)
    assert done.header.counts[State.UNKNOWN] == 2
    # What fails may be our own network: the history says that we do not know.
    turned = [
        turn
        for blob in writer.read_outbox("default", 10)
        for turn in unpack_round_changes(blob).instances.tolist()
    ]
    assert not turned


@pytest.mark.parametrize("seed", range(5))
def test_old_snapshot_and_events_make_the_fresh_snapshot(writer: Writer, reader: Reader, seed: int) -> None:
    """The law of the page, over rounds in which tunnels move, proxies fall silent and agents join.

    A client that missed an event sees the gap, starts over, and is right again.
    """
    chance = random.Random(seed)
    polled = Polled(writer, proxies=3)
    polled.begin()
    mirror = reader.snapshot("default", NOW)
    states, seq, epoch = mirror.states, mirror.seq, mirror.epoch
    missed = resyncs = 0
    agents = 5
    for number in range(1, 25):
        agents += chance.random() < 0.3
        silent = [2] if number % 8 >= 5 else []
        polled.see(placed(chance, agents), now=NOW + number, agents=agents, silent=silent)
        for event in finish(writer, number).events:
            message = message_of(event)
            if message["type"] != "delta":
                continue
            if chance.random() < 0.2:
                missed += 1
                continue
            if (message["epoch"], message["seq"]) != (epoch, seq + 1):
                fresh = reader.snapshot("default", NOW + number)
                states, seq, epoch = fresh.states, fresh.seq, fresh.epoch
                resyncs += 1
                continue
            states, seq = apply(states, message["changes"]), message["seq"]
        fresh = reader.snapshot("default", NOW + number)
        if fresh.seq == seq:
            assert states == fresh.states
            assert len(states) == reader.header("default", NOW + number).agents
    assert missed
    assert resyncs


def placed(chance: random.Random, agents: int) -> Sequence[Sequence[int]]:
    """Tunnels of the agents on three proxies; some have none."""
    tunnels: list[list[int]] = [[], [], []]
    for agent in range(agents):
        if chance.random() < 0.9:
            tunnels[agent % 3 if chance.random() < 0.8 else chance.randrange(3)].append(agent)
    return tunnels


def test_record_lost_between_rounds(writer: Writer, reader: Reader) -> None:
    """Another epoch begins: the first event of it is a gap for everybody who watched the old one."""
    polled = Polled(writer)
    polled.begin()
    polled.see([[0], [1]], now=NOW + 1, agents=2)
    finish(writer, 1)
    old = reader.snapshot("default", NOW + 1)
    writer.redis.delete(*writer.keys("default").record)
    polled.begin()
    polled.see([[0], [1]], now=NOW + 2, agents=2)
    [delta, *_] = finish(writer, 2).events
    assert isinstance(delta, StateDelta)
    assert delta.epoch != old.epoch
    assert reader.snapshot("default", NOW + 2).epoch == delta.epoch
