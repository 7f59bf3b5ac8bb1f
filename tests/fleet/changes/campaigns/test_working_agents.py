"""Who is shown as working: while a campaign has them under way, and not a step longer."""

from __future__ import annotations

import logging

import pytest
from django.contrib.auth.models import User

from fleet import lease
from fleet.changes import engine, kinds
from fleet.changes.campaigns import campaigns, working_agents
from fleet.changes.campaigns.run import CampaignRunner
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.monitoring.evidence import Timing
from fleet.monitoring.pollers.conclude import conclude
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.outbox import unpack_round_changes
from fleet.monitoring.state.reader import Reader
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.verdicts import State
from tests.fakes.evidence import Polled
from tests.fakes.movers import Movers
from tests.fleet.changes.conftest import NOW, Campaign, by

PATIENCE = 30


@pytest.fixture
def writer(valkey_url: str, prefix: str) -> Writer:
    """A writer with a prefix of its own."""
    return Writer(connect(valkey_url), prefix)


@pytest.fixture
def reader(valkey_url: str, prefix: str) -> Reader:
    """A reader of what `writer` writes."""
    return Reader(connect(valkey_url), prefix)


def begun(cluster: Cluster, alice: User, movers: Movers, steps: int = 2, **pace: int) -> Campaign:
    """A campaign whose agents have been asked, unless there are many."""
    one = Campaign(
        cluster,
        alice,
        movers,
        **{"rate": 6000, "canaries": 0, "patience": PATIENCE, "max_failed": 100, **pace},
    )
    one.confirm()
    one.step(steps)
    return one


def sweep(one: Campaign) -> None:
    """What `step_actions` does for campaigns that are over."""
    for change in working_agents.find_marked_ended(Change.objects.all()):
        CampaignRunner().step(change, one.context)
    one.change.refresh_from_db()


def stubborn(count: int = 3) -> Movers:
    """Agents that stay where they are."""
    return Movers.of(count, stubborn={f"agent-{n}" for n in range(count)})


def test_asked_agents_are_working_until_their_patience_ends(cluster: Cluster, alice: User) -> None:
    """From the moment each is asked, for as long as the campaign waits for it; who waits its turn is not."""
    one = begun(cluster, alice, stubborn(30), per_proxy=4)
    asked = dict(one.change.campaign_agents.filter(state="asked").values_list("agent_id", "asked_at"))
    assert len(asked) == 12
    assert one.movers.working == {agent: at + PATIENCE for agent, at in asked.items()}


def test_every_outcome_takes_it_away(cluster: Cluster, alice: User) -> None:
    """Moved, failed, and skipped after it was asked: each in the next step, while others go on."""
    movers = Movers.of(4, stubborn={"agent-1", "agent-3"}, nowhere={"agent-2"})
    one = begun(cluster, alice, movers)
    assert set(movers.working) == {"agent-0", "agent-1", "agent-2", "agent-3"}
    one.step()
    assert set(movers.working) == {"agent-1", "agent-2", "agent-3"}
    one.step(3)
    assert set(movers.working) == {"agent-1", "agent-3"}
    movers.agents["agent-3"] = {1}
    one.step()
    assert set(movers.working) == {"agent-1"}
    one.step(PATIENCE)
    sweep(one)
    assert movers.working == {}
    assert not working_agents.find_marked_ended(Change.objects.all()).exists()
    counts = campaigns.counts_of(one.change)
    assert (counts.ok, counts.failed, counts.skipped) == (2, 1, 1)


def test_agent_that_was_asked_is_marked_before(cluster: Cluster, alice: User) -> None:
    """A round that sees it elsewhere knows why: whoever is asked was marked by then."""
    movers = Movers.of(40)
    real, unmarked = movers.advise, list[str]()

    def watched(proxy: str, advisory: str, reason: str, agents: list[str], auth: str) -> object:
        unmarked.extend(set(agents) - movers.working.keys())
        return real(proxy, advisory, reason, agents, auth)

    movers.advise = watched  # type: ignore[assignment,method-assign] # the same, looked at
    one = begun(cluster, alice, movers)
    assert one.until_over().state == ChangeState.VERIFIED
    assert not unmarked
    assert len(movers.worked) == 40


def test_abort_takes_it_from_all(cluster: Cluster, alice: User) -> None:
    """Also where the record is away just then: whoever comes a second later does it."""
    one = begun(cluster, alice, stubborn())
    kinds.run_action(one.change, "abort", by(alice), one.at)
    assert len(one.movers.working) == 3
    one.movers.away = True
    sweep(one)
    assert working_agents.find_marked_ended(Change.objects.all()).exists()
    one.movers.away = False
    sweep(one)
    assert one.movers.working == {}
    assert not working_agents.find_marked_ended(Change.objects.all()).exists()


def test_clear_while_somebody_has_the_cluster(cluster: Cluster, alice: User) -> None:
    """It waits for the next second."""
    one = begun(cluster, alice, stubborn())
    kinds.run_action(one.change, "abort", by(alice), one.at)
    held = lease.take(cluster.pk, lease.CHANGES, "another", one.at)
    sweep(one)
    assert len(one.movers.working) == 3
    lease.release(held)
    sweep(one)
    assert one.movers.working == {}


def test_stop_and_pause_keep_who_is_under_way(cluster: Cluster, alice: User) -> None:
    """They are watched still, and are working until it is known what became of them."""
    one = begun(cluster, alice, stubborn(30), per_proxy=4)
    engine.pause(one.change, by(alice), one.at)
    one.step()
    assert len(one.movers.working) == 12
    kinds.run_action(one.change, "stop", by(alice), one.at)
    one.step()
    assert len(one.movers.working) == 12
    one.step(PATIENCE)
    sweep(one)
    assert one.change.state == ChangeState.CANCELLED
    assert one.movers.working == {}


def test_campaign_that_follows_keeps_its_own(cluster: Cluster, alice: User) -> None:
    """The marks of one that was aborted go; those of the next stay."""
    first = begun(cluster, alice, stubborn())
    second = Campaign(cluster, alice, first.movers, canaries=0, rate=6000)
    second.confirm()
    kinds.run_action(first.change, "abort", by(alice), first.at)
    second.now = first.now
    second.step(2)
    mine = dict(first.movers.working)
    assert mine == {f"agent-{n}": second.now + 60 for n in range(3)}
    sweep(first)
    assert first.movers.working == mine


def test_record_away_stops_no_campaign(
    cluster: Cluster, alice: User, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is shown as working, which the log says once; when it is back, who is under way is."""
    movers = Movers.of(60, away=True)
    movers.stubborn = {"agent-59"}
    with caplog.at_level(logging.WARNING, "fleet.changes.campaigns.working_agents"):
        one = begun(cluster, alice, movers, steps=8)
    assert [record.message.count("could not mark agents as reconnecting") for record in caplog.records] == [1]
    assert campaigns.counts_of(one.change).ok == 59
    movers.away = False
    one.step()
    assert set(movers.working) == {"agent-59"}


def test_working_is_no_failure_and_stranded_is(cluster: Cluster, alice: User) -> None:
    """Agents that are shown as working do not abort it; one that is stranded while it is under way does."""
    one = begun(cluster, alice, Movers.of(60), max_failed=0, max_stranded=1)
    table = one.movers.table(one.now)
    assert (table.verdicts["state"] == State.WORKING).sum() == len(one.movers.working) > 0
    assert one.until_over().state == ChangeState.VERIFIED
    other = begun(cluster, alice, stubborn(), max_stranded=1)
    other.movers.stranded = {"agent-1"}
    assert "agent-1" in other.movers.working
    assert other.step().state == ChangeState.FAILED
    assert "1 more agents are stranded" in other.change.detail


def test_rounds_say_working_and_then_healthy(
    cluster: Cluster, alice: User, writer: Writer, reader: Reader
) -> None:
    """In a real record: the summary counts them, the history has both turns, a round that writes it anew keeps it."""
    movers = Movers(
        {"agent-0-id": {0}, "agent-1-id": {1}, "agent-2-id": {0}}, proxies=2, stubborn={"agent-2-id"}
    )
    polled = Polled(writer)
    polled.begin()

    def finish(now: float) -> list[State]:
        tunnels = [[n for n in range(3) if proxy in movers.agents[f"agent-{n}-id"]] for proxy in range(2)]
        polled.see(tunnels, now=now, agents=3)
        timing = Timing(round_interval=1.0)
        assert conclude(writer, cluster.pk, int(now), now=now, timing=timing, clock=float) is not None
        return [State(state) for state in writer.load(cluster.pk).verdicts["state"]]

    begin = NOW.timestamp()
    assert finish(begin) == [State.HEALTHY] * 3
    one = Campaign(cluster, alice, movers, canaries=0, rate=6000, patience=PATIENCE)
    one.confirm()
    one.marks = writer
    one.step(2)
    assert finish(one.now + 0.5) == [State.WORKING] * 3
    assert reader.summary(cluster.pk, one.now + 0.6).counts[State.WORKING] == 3
    assert writer.load(cluster.pk).memory["working_until"].tolist() == [one.now + PATIENCE] * 3
    one.step()
    assert finish(one.now + 0.5) == [State.HEALTHY, State.HEALTHY, State.WORKING]
    kinds.run_action(one.change, "abort", by(alice), one.at)
    for change in working_agents.find_marked_ended(Change.objects.all()):
        CampaignRunner().step(change, one.context)
    assert finish(one.now + 1.5) == [State.HEALTHY] * 3
    turns = [
        (agent, State(old), State(new))
        for blob in writer.read_outbox(cluster.pk, 10)
        for agent, _, old, new, _ in unpack_round_changes(blob).transitions.tolist()
    ]
    for agent in range(3):
        assert [new for who, _, new in turns if who == agent] == [State.HEALTHY, State.WORKING, State.HEALTHY]
