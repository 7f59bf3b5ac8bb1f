"""Steps of rollouts, against instances in memory."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from fleet import lease
from fleet.changes import engine, kinds
from fleet.changes.base_runner import StepContext
from fleet.changes.policies import desired, planning
from fleet.changes.policies.run import RolloutRunner
from fleet.models.actions import RolloutStep
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.monitoring.views import InstanceView
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.rollouts import RolloutStepState
from tests.fakes.policy_nodes import PolicyNode, PolicyNodes
from tests.fakes.steps import SightOfMoment, context_of
from tests.fleet.changes.conftest import NOW, by

TTL = {"auth": {AUTH_TTL_VARIABLE: "30s"}}


class Rollout:
    """One rollout of a TTL, with a clock of its own."""

    def __init__(
        self,
        cluster: Cluster,
        user: User,
        *nodes: PolicyNode,
        wanted: dict[str, dict[str, str]] = TTL,
        undoes: int | None = None,
        **terms: int,
    ) -> None:
        self.nodes, self.now, self.user = PolicyNodes(*nodes), NOW.timestamp(), user
        self.most = 0
        change = planning.plan_change(
            cluster.pk,
            wanted,
            self.nodes.record(self.now),
            undone_change_id=undoes,
            revision=desired.revision_of(desired.desired_values_of(cluster.pk)),
            rollout_settings={"drain": 2, "settle": 3, "patience": 20, **terms},
            should_roll_out=True,
            actor=by(user),
            now=NOW,
        )
        self.change: Change = engine.confirm(change, by(user), reason="to try", typed_name="", now=NOW)

    def step(self, times: int = 1) -> Change:
        for _ in range(times):
            self.now += 1
            RolloutRunner().step(self.change, self.context)
            under_way = sum(row.state in ("draining", "restarting", "checking") for row in self.rows)
            self.most = max(self.most, under_way)
        self.change.refresh_from_db()
        return self.change

    @property
    def context(self) -> StepContext:
        return context_of(lambda: self.now, reader=SightOfMoment(views=self.nodes.views), dialer=self.nodes)

    def until_over(self) -> Change:
        for _ in range(200):
            if self.step().state not in (ChangeState.CONFIRMED, ChangeState.RUNNING):
                return self.change
        raise AssertionError(f"it did not end: {[(row.name, row.state, row.detail) for row in self.rows]}")

    @property
    def rows(self) -> list[RolloutStep]:
        return list(self.change.rollout_steps.all())


def auths_of_a_fleet(count: int = 3) -> list[PolicyNode]:
    return [PolicyNode(f"auth-{n}") for n in range(1, count + 1)]


def test_one_at_a_time(cluster: Cluster, alice: User) -> None:
    """Each accepts, drains, restarts and is well before the next; what is wanted is kept."""
    auths = auths_of_a_fleet()
    one = Rollout(cluster, alice, *auths, PolicyNode("proxy-1", "proxy"))
    assert one.until_over().state == ChangeState.VERIFIED
    assert one.most == 1
    assert all(auth.did == ["accept", "drain", "restart"] for auth in auths)
    assert all(auth.accepted == {AUTH_TTL_VARIABLE: "30s"} and auth.run == 2 for auth in auths)
    assert desired.desired_values_of(cluster.pk) == {"auth": {AUTH_TTL_VARIABLE: "30s"}}
    assert one.change.outcome["done"] == 3
    ended = [row.ended_at for row in one.rows]
    assert ended == sorted(ended)


def test_several_at_a_time(cluster: Cluster, alice: User) -> None:
    """As many as it says."""
    one = Rollout(cluster, alice, *auths_of_a_fleet(5), at_once=2)
    one.until_over()
    assert one.most == 2


def test_failure_pauses_and_it_can_be_resumed(cluster: Cluster, alice: User) -> None:
    """The others are left alone; resumed, the one that failed has another turn."""
    auths = auths_of_a_fleet()
    auths[1].comes_back = False
    one = Rollout(cluster, alice, *auths)
    assert one.until_over().state == ChangeState.PAUSED
    assert "auth-2" in one.change.detail
    assert auths[2].run == 1
    one.step(5)
    assert auths[2].run == 1
    auths[1].comes_back = True
    auths[1].down, auths[1].serving = False, True
    kinds.run_action(one.change, "resume", by(alice), NOW)
    assert one.until_over().state == ChangeState.VERIFIED
    assert [row.state for row in one.rows] == [
        RolloutStepState.OK,
        RolloutStepState.SKIPPED,
        RolloutStepState.OK,
    ]


def test_sick_neighbour_holds_it_up(cluster: Cluster, alice: User) -> None:
    """Nobody restarts beside an auth that is not well."""
    auths = auths_of_a_fleet()
    one = Rollout(cluster, alice, *auths)
    auths[2].state = InstanceState.UNHEALTHY
    one.step(5)
    assert [auth.run for auth in auths] == [1, 1, 1]
    assert "waiting for auth-3 to become healthy" in one.change.progress["waits_for"]
    auths[2].state = InstanceState.OK
    assert one.until_over().state == ChangeState.VERIFIED


def test_sick_instance_whose_turn_it_is_is_mended(cluster: Cluster, alice: User) -> None:
    """The policy may be what it needs."""
    auths = auths_of_a_fleet(2)
    auths[0].state = InstanceState.UNHEALTHY
    one = Rollout(cluster, alice, *auths)
    one.step(2)
    assert auths[0].did == ["accept", "drain"]


def test_command_line_that_decides_is_said(cluster: Cluster, alice: User) -> None:
    """It would restart for nothing."""
    auths = auths_of_a_fleet(1)
    auths[0].flags = {AUTH_TTL_VARIABLE: "10s"}
    auths[0].restart()
    one = Rollout(cluster, alice, *auths)
    assert one.until_over().state == ChangeState.PAUSED
    assert "a flag of the instance overrides" in one.change.detail


def test_step_that_died_restarts_nobody_twice(
    cluster: Cluster, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker died right after the restart was asked for: the next step sees another run."""
    auths = auths_of_a_fleet(2)
    one = Rollout(cluster, alice, *auths)
    real = one.nodes.restart

    def dies(*args: object) -> None:
        real(*args)  # type: ignore[arg-type] # handed on
        raise KeyboardInterrupt

    monkeypatch.setattr(one.nodes, "restart", dies)
    with pytest.raises(KeyboardInterrupt):
        one.step(10)
    lease.revoke(one.change)
    monkeypatch.setattr(one.nodes, "restart", real)
    assert one.until_over().state == ChangeState.VERIFIED
    assert [auth.run for auth in auths] == [2, 2]


def test_step_that_was_paused_past_its_lease_writes_nothing(
    cluster: Cluster, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process takes over and makes steps while the first one reads how the instances are."""
    auths = auths_of_a_fleet()
    one = Rollout(cluster, alice, *auths)
    for auth in auths:
        auth.state = InstanceState.UNKNOWN
    read = one.nodes.views
    progress: dict[str, Any] = {}

    def pause() -> tuple[InstanceView, ...]:
        monkeypatch.setattr(one.nodes, "views", read)
        lease.revoke(one.change)
        progress.update(one.step(2).progress)
        return read()

    monkeypatch.setattr(one.nodes, "views", pause)
    one.step()
    assert progress["stepped_at"] == one.now
    assert one.change.progress == progress


def test_desired_state_that_changed_meanwhile_fails_it(cluster: Cluster, alice: User) -> None:
    """Nothing is overwritten, nobody restarts."""
    auths = auths_of_a_fleet(1)
    one = Rollout(cluster, alice, *auths)
    other = planning.plan_change(
        cluster.pk,
        {"auth": {AUTH_TTL_VARIABLE: "1m"}},
        one.nodes.record(one.now),
        revision=desired.revision_of({}),
        rollout_settings={},
        should_roll_out=False,
        actor=by(alice),
        now=NOW,
    )
    desired.store_desired_values(other)
    assert one.until_over().state == ChangeState.FAILED
    assert auths[0].run == 1


def test_unset_is_over_when_it_is_in_force_no_more(cluster: Cluster, alice: User) -> None:
    """Each must run with what it has beneath; that value is said; what was undone is undone."""
    auths = [PolicyNode("auth-1"), PolicyNode("auth-2", environment={AUTH_TTL_VARIABLE: "7m"})]
    first = Rollout(cluster, alice, *auths)
    first.until_over()
    back = Rollout(cluster, alice, *auths, wanted={}, undoes=first.change.pk)
    assert back.until_over().state == ChangeState.VERIFIED
    assert [row.detail for row in back.rows] == [
        "Auth announce TTL: 10m (default)",
        "Auth announce TTL: 7m (env)",
    ]
    assert [auth.accepted for auth in auths] == [{}, {}]
    first.change.refresh_from_db()
    assert first.change.state == ChangeState.UNDONE


def test_unset_that_stays_in_force_pauses(
    cluster: Cluster, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that starts again with what it should have forgotten has not done what was asked."""
    auth = PolicyNode("auth-1")
    Rollout(cluster, alice, auth).until_over()
    monkeypatch.setattr(auth, "_start", lambda: None)  # as if it read the old file
    back = Rollout(cluster, alice, auth, wanted={})
    assert back.until_over().state == ChangeState.PAUSED
    assert f"{AUTH_TTL_VARIABLE} is still 30s" in back.change.detail


def test_deregistered_meanwhile_is_skipped(cluster: Cluster, alice: User) -> None:
    """There is nothing to restart, and the others go on."""
    auths = auths_of_a_fleet()
    one = Rollout(cluster, alice, *auths)
    auths[1].state = InstanceState.GONE
    assert one.until_over().state == ChangeState.VERIFIED
    assert [(row.state, row.detail) for row in one.rows][1] == (
        "skipped",
        "the instance was deregistered in the meantime",
    )
    assert auths[1].run == 1


def test_blind_pollers_hold_it_up(cluster: Cluster, alice: User) -> None:
    """Of the neighbours nothing is known: nobody restarts beside them."""
    auths = auths_of_a_fleet()
    one = Rollout(cluster, alice, *auths)
    for auth in auths:
        auth.state = InstanceState.UNKNOWN
    one.step(5)
    assert [auth.run for auth in auths] == [1, 1, 1]
    assert "waiting for" in one.change.progress["waits_for"]
