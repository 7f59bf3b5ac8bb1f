"""Steps of reconnect campaigns, against agents that do as they are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User

from fleet import lease
from fleet.changes import ChangeRefusedError, WrongStateError, engine, kinds
from fleet.changes.campaigns import campaigns
from fleet.models.actions import CampaignAgent
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.changes import ChangeState
from tests.fakes.movers import Movers
from tests.fleet.changes.conftest import NOW, Campaign, by

BEGIN = NOW.timestamp()


def test_everybody_moves_once(cluster: Cluster, alice: User) -> None:
    """Canaries first, then at its rate; each is asked once and never has less than one tunnel."""
    one = Campaign(cluster, alice, Movers.of(200), rate=1200, canaries=3)
    one.confirm()
    one.step()
    assert campaigns.counts_of(one.change).in_progress_count == 3
    assert one.until_over().state == ChangeState.VERIFIED
    counts = campaigns.counts_of(one.change)
    assert (counts.ok, counts.total_count) == (200, 200)
    assert set(one.movers.asked.values()) == {1}
    assert one.movers.fewest == 1
    row = CampaignAgent.objects.filter(change=one.change).first()
    assert row is not None
    assert row.new_proxy
    assert row.new_proxy != row.leaves
    assert one.change.outcome["ok"] == 200


def test_rate_and_room_are_kept(cluster: Cluster, alice: User) -> None:
    """No more in a second than the rate says, no more under way at one proxy than allowed."""
    movers = Movers.of(60, stubborn={f"agent-{n}" for n in range(60)})
    one = Campaign(cluster, alice, movers, rate=600, canaries=0, per_proxy=4, patience=3600)
    one.confirm()
    one.step(2)
    assert campaigns.counts_of(one.change).in_progress_count == 10
    one.step(5)
    assert campaigns.counts_of(one.change).in_progress_count == 12
    assert "in progress per proxy" in campaigns.describe_progress(one.change, one.now)["waits_for"]


def test_pause_and_resume(cluster: Cluster, alice: User) -> None:
    """Nobody is asked while it is paused; who was asked is seen to move; no burst afterwards."""
    one = Campaign(cluster, alice, Movers.of(100), rate=600, canaries=0)
    one.confirm()
    one.step(3)
    engine.pause(one.change, by(alice), one.at)
    asked = one.movers.asked.total()
    one.step(30)
    assert one.movers.asked.total() == asked
    counts = campaigns.counts_of(one.change)
    assert (counts.ok, counts.in_progress_count) == (asked, 0)
    kinds.run_action(one.change, "resume", by(alice), one.at)
    one.step()
    assert one.movers.asked.total() - asked <= 20
    assert one.until_over().state == ChangeState.VERIFIED


def test_abort_at_the_threshold(cluster: Cluster, alice: User) -> None:
    """Too many that do not move end it; the totals add up, and nobody else is asked."""
    movers = Movers.of(200, stubborn={f"agent-{n}" for n in range(0, 200, 4)})
    one = Campaign(cluster, alice, movers, rate=1200, canaries=0, patience=5, max_failed=10)
    one.confirm()
    assert one.until_over().state == ChangeState.FAILED
    assert "agents failed" in one.change.detail
    counts = campaigns.counts_of(one.change)
    assert counts.remaining_count == 0
    assert counts.ok + counts.failed + counts.skipped == 200
    asked = movers.asked.total()
    one.step(5)
    assert movers.asked.total() == asked < 200


def test_abort_when_more_are_stranded(cluster: Cluster, alice: User) -> None:
    """Whatever strands them: a campaign is no help then."""
    one = Campaign(cluster, alice, Movers.of(100), rate=60, canaries=0, max_stranded=5)
    one.confirm()
    one.step(3)
    one.movers.stranded = {f"agent-{n}" for n in range(90, 95)}
    assert one.until_over(5).state == ChangeState.FAILED
    assert "stranded" in one.change.detail


def test_canary_that_does_not_move_pauses(cluster: Cluster, alice: User) -> None:
    """Before anybody else is asked."""
    movers = Movers.of(50, stubborn={"agent-0"})
    one = Campaign(cluster, alice, movers, canaries=3, patience=5, max_failed=100)
    one.confirm()
    assert one.until_over(30).state == ChangeState.PAUSED
    assert movers.asked.total() == 3
    assert "canary" in one.change.detail


def test_who_would_have_less_is_skipped(cluster: Cluster, alice: User) -> None:
    """With that reason: nowhere to go, no tunnel, too few tunnels, retired."""
    movers = Movers(
        {"here": {0}, "lost": set(), "old": {0}, "both": {0, 1}}, proxies=3, retired={"old"}, old={2}
    )
    one = Campaign(cluster, alice, movers, canaries=0)
    one.confirm()
    one.until_over()
    rows = {row.agent_id: row for row in one.change.campaign_agents.all()}
    assert rows["here"].state == "ok"
    assert "no tunnel" in rows["lost"].reason
    assert "retired" in rows["old"].reason
    assert "no other healthy proxy" in rows["both"].reason
    assert movers.asked["both"] == 0


def test_nowhere_to_go_is_refused_before_it_begins(cluster: Cluster, alice: User) -> None:
    """With one proxy that is well nobody can move."""
    with pytest.raises(ChangeRefusedError, match="no other healthy proxy"):
        Campaign(cluster, alice, Movers({"a": {0}}, proxies=2, sick={1}))
    blind = Movers.of(3)
    blind.stale = True
    with pytest.raises(ChangeRefusedError, match="no current data"):
        Campaign(cluster, alice, blind)


def test_who_answers_that_it_stays_is_skipped(cluster: Cluster, alice: User) -> None:
    """It knows of no other proxy, whatever the record says: no failure, and the next canary has its turn."""
    movers = Movers.of(30, nowhere={"agent-0", "agent-7"})
    one = Campaign(cluster, alice, movers, rate=6000, canaries=2, patience=30, max_failed=0)
    one.confirm()
    assert one.until_over().state == ChangeState.VERIFIED
    counts = campaigns.counts_of(one.change)
    assert (counts.ok, counts.failed, counts.skipped) == (28, 0, 2)
    assert {why for _, why, _ in campaigns.count_by_skip_reason(one.change)} == {
        "the agent kept its tunnel: it knows no other unexpired proxy"
    }
    assert one.now - BEGIN < 30
    assert set(movers.asked.values()) == {1}


def test_where_it_could_go_sickens_before_it_is_asked(cluster: Cluster, alice: User) -> None:
    """It was chosen, and is to be asked after its jitter: looked at again, it is skipped."""
    movers = Movers.of(6, proxies=2)
    one = Campaign(cluster, alice, movers, rate=6000, canaries=0, jitter=10)
    one.confirm()
    one.step(2)
    assert campaigns.counts_of(one.change).due == 6
    movers.sick = {1}
    assert one.until_over().state == ChangeState.VERIFIED
    there = [row for row in one.change.campaign_agents.all() if int(row.agent_id[-1]) % 2 == 0]
    assert {row.state for row in there} == {"skipped"}
    assert all("no other healthy proxy" in row.reason for row in there)
    assert not any(movers.asked[row.agent_id] for row in there)


def test_pause_puts_back_who_was_chosen(cluster: Cluster, alice: User) -> None:
    """Nobody is under way for ever: who was not asked yet waits again, and has its turn after the pause."""
    one = Campaign(cluster, alice, Movers.of(30), rate=6000, canaries=0, jitter=10)
    one.confirm()
    one.step(2)
    assert campaigns.counts_of(one.change).due
    engine.pause(one.change, by(alice), one.at)
    one.step()
    counts = campaigns.counts_of(one.change)
    assert (counts.waiting, counts.in_progress_count, counts.total_count) == (30, 0, 30)
    assert not one.movers.asked
    kinds.run_action(one.change, "resume", by(alice), one.at)
    assert one.until_over().state == ChangeState.VERIFIED
    assert campaigns.counts_of(one.change).ok == 30


def test_window_of_the_day_is_kept(cluster: Cluster, alice: User) -> None:
    """Nobody is asked before it or after it, be they chosen in it; the next day it goes on."""
    begins = int(BEGIN // 60) % 1440 + 1
    window = {"window_from": begins % 1440, "window_to": (begins + 1) % 1440}
    one = Campaign(cluster, alice, Movers.of(150), rate=60, canaries=0, jitter=10, **window)
    one.confirm()
    opens = (BEGIN // 60 + 1) * 60
    while one.now < opens - 1:
        one.step()
    assert one.change.state == ChangeState.RUNNING
    assert "UTC" in one.change.progress["waits_for"]
    assert not one.movers.asked
    while one.now < opens + 59:
        one.step()
    asked = sum(one.movers.asked.values())
    assert 30 <= asked <= 60
    one.step(120)
    counts = campaigns.counts_of(one.change)
    assert (sum(one.movers.asked.values()), counts.ok, counts.waiting) == (asked, asked, 150 - asked)
    one.now = opens + 86_400
    one.step(50)
    assert sum(one.movers.asked.values()) > asked
    assert max(one.movers.asked.values()) == 1


def test_resume_after_a_canary_goes_on(cluster: Cluster, alice: User) -> None:
    """Somebody looked at it: it does not pause for the same canary again."""
    movers = Movers.of(40, stubborn={"agent-0"})
    one = Campaign(cluster, alice, movers, canaries=3, rate=6000, patience=5, max_failed=50)
    one.confirm()
    assert one.until_over(30).state == ChangeState.PAUSED
    kinds.run_action(one.change, "resume", by(alice), one.at)
    assert one.until_over().state == ChangeState.VERIFIED
    counts = campaigns.counts_of(one.change)
    assert (counts.ok, counts.failed) == (39, 1)


def test_few_agents_that_all_fail_are_no_success(cluster: Cluster, alice: User) -> None:
    """Also where others are skipped, so that there are never twenty results."""
    agents = {f"agent-{n}": {0} for n in range(3)} | {f"lost-{n}": set[int]() for n in range(30)}
    one = Campaign(cluster, alice, Movers(agents, stubborn=set(agents)), canaries=0, rate=6000, patience=5)
    one.confirm()
    assert one.until_over().state == ChangeState.FAILED
    assert "3 of 3" in one.change.detail


def test_waiting_its_turn_is_logged_once(cluster: Cluster, alice: User) -> None:
    """Workers try every second; the log is for people."""
    first = Campaign(cluster, alice, Movers.of(50), rate=60, canaries=0)
    second = Campaign(cluster, alice, Movers.of(50), rate=60, canaries=0)
    first.confirm()
    first.step()
    second.confirm()
    second.step(10)
    assert AuditEntry.objects.filter(action="reconnect.start", change_id=second.change.pk).count() == 1


def test_worker_that_was_away_long_fails_nobody(cluster: Cluster, alice: User, monkeypatch: Any) -> None:
    """Its step died between the rows and the call: their patience begins when their proxy is told."""
    one = Campaign(cluster, alice, Movers.of(30), rate=6000, canaries=0, patience=5)
    one.confirm()
    one.step()
    real = one.movers.advise

    def dies(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(one.movers, "advise", dies)
    with pytest.raises(KeyboardInterrupt):
        one.step()
    lease.revoke(one.change)
    engine.pause(one.change, by(alice), one.at)
    monkeypatch.setattr(one.movers, "advise", real)
    one.step(seconds=60)
    one.step(3)
    counts = campaigns.counts_of(one.change)
    assert (counts.failed, counts.in_progress_count) == (0, 0)
    assert set(one.movers.asked.values()) == {1}
    assert (counts.ok, one.change.state) == (30, ChangeState.VERIFIED)


def test_step_that_died_is_made_again(cluster: Cluster, alice: User, monkeypatch: Any) -> None:
    """Rows were written, the worker died before or after its call: nobody is asked twice, or left out."""
    one = Campaign(cluster, alice, Movers.of(30), rate=6000, canaries=0)
    one.confirm()
    one.step()
    real = one.movers.advise

    def dies_after(*args: Any) -> Any:
        real(*args)
        raise KeyboardInterrupt

    def dies_before(*args: Any) -> Any:
        raise KeyboardInterrupt

    for dies in (dies_before, dies_after):
        monkeypatch.setattr(one.movers, "advise", dies)
        with pytest.raises(KeyboardInterrupt):
            one.step()
        lease.revoke(one.change)
    monkeypatch.setattr(one.movers, "advise", real)
    assert one.until_over().state == ChangeState.VERIFIED
    assert set(one.movers.asked.values()) == {1}
    assert campaigns.counts_of(one.change).ok == 30


def test_step_that_was_paused_past_its_lease_writes_nothing(
    cluster: Cluster, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process takes over and makes steps while the first one reads a record in which all is blind."""
    one = Campaign(cluster, alice, Movers.of(30), rate=6000, canaries=0)
    one.confirm()
    one.step()
    read = one.movers.table
    rows: list[object] = []

    def pause(now: float) -> FleetTable:
        monkeypatch.setattr(one.movers, "table", read)
        lease.revoke(one.change)
        one.step(3)
        rows.extend([*one.change.campaign_agents.order_by("pk").values(), one.change.progress])
        return replace(read(now), stale=True)

    monkeypatch.setattr(one.movers, "table", pause)
    one.step()
    assert [*one.change.campaign_agents.order_by("pk").values(), one.change.progress] == rows


def test_stop_watches_who_was_asked(cluster: Cluster, alice: User) -> None:
    """Nobody new; it ends when those under way have moved."""
    one = Campaign(cluster, alice, Movers.of(100), rate=600, canaries=0)
    one.confirm()
    one.step(2)
    kinds.run_action(one.change, "stop", by(alice), one.at)
    assert one.until_over(10).state == ChangeState.CANCELLED
    counts = campaigns.counts_of(one.change)
    assert counts.ok == one.movers.asked.total() == 10
    assert counts.skipped == 90
    with pytest.raises(ChangeRefusedError, match="only a running or paused campaign"):
        kinds.run_action(one.change, "stop", by(alice), one.at)
    rows = AuditEntry.objects.filter(action="reconnect.stop").order_by("pk")
    assert [(row.who, row.outcome) for row in rows] == [("alice", "done"), ("alice", "refused")]


def test_stop_of_a_campaign_that_ended_meanwhile_changes_nothing(cluster: Cluster, alice: User) -> None:
    """The copy in memory still says that it runs: its agents and the lease of the next change stay as they are."""
    one = Campaign(cluster, alice, Movers.of(30), rate=600, canaries=0)
    one.confirm()
    one.step(2)
    seen_before = Change.objects.get()
    engine.pause(one.change, by(alice), one.at)
    before = campaigns.counts_of(one.change)
    with pytest.raises(WrongStateError):
        kinds.run_action(seen_before, "stop", by(alice), one.at)
    assert campaigns.counts_of(one.change) == before
    assert "stopped_by" not in Change.objects.get().parameters


def test_abort_ends_it_now(cluster: Cluster, alice: User) -> None:
    """Also while a step is under way: what that step still writes is refused."""
    one = Campaign(cluster, alice, Movers.of(100), rate=600, canaries=0)
    one.confirm()
    one.step(2)
    held = lease.take(cluster.pk, lease.CHANGES, "worker", one.at, one.change)
    ended = kinds.run_action(one.change, "abort", by(alice), one.at)
    assert ended.state == ChangeState.CANCELLED
    assert campaigns.counts_of(ended).remaining_count == 0
    with pytest.raises(lease.LeaseLostError), lease.fenced_transaction(held):
        raise AssertionError("the lease is not ours any more")


def test_blind_pollers_hold_it_up(cluster: Cluster, alice: User) -> None:
    """Nobody is asked while nobody can be seen to move."""
    one = Campaign(cluster, alice, Movers.of(50), rate=600, canaries=0)
    one.confirm()
    one.step(2)
    asked = one.movers.asked.total()
    one.movers.stale = True
    one.step(10)
    assert one.movers.asked.total() == asked
    assert "waiting for current data" in campaigns.describe_progress(one.change, one.now)["waits_for"]
    one.movers.stale = False
    assert one.until_over().state == ChangeState.VERIFIED


def test_unreachable_proxy_fails_its_agents(cluster: Cluster, alice: User) -> None:
    """They are asked again step by step, and have failed after their patience."""
    movers = Movers.of(9, unreachable={0})
    one = Campaign(cluster, alice, movers, rate=6000, canaries=0, patience=5, max_failed=100)
    one.confirm()
    one.until_over()
    counts = campaigns.counts_of(one.change)
    assert (counts.ok, counts.failed) == (6, 3)


def test_one_change_at_a_time(cluster: Cluster, alice: User) -> None:
    """The second waits and says who has the cluster."""
    first = Campaign(cluster, alice, Movers.of(50), rate=60, canaries=0)
    second = Campaign(cluster, alice, Movers.of(50), rate=60, canaries=0)
    for one in (first, second):
        one.confirm()
        one.step()
    assert second.change.state == ChangeState.CONFIRMED
    assert "changes run one at a time" in second.change.detail
    kinds.run_action(first.change, "abort", by(alice), first.at)
    second.step()
    assert second.change.state == ChangeState.RUNNING
