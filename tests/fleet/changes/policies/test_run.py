"""Steps of rollouts over instances in memory."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from fleet import lease
from fleet.changes import engine, kinds
from fleet.changes.base_runner import StepContext
from fleet.changes.policies import desired_state, planner
from fleet.changes.policies.run import RolloutRunner
from fleet.models.actions import RolloutStep
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.models.history import Keyframe
from fleet.monitoring.history import keyframes
from fleet.monitoring.history.past_columns import empty_columns
from fleet.monitoring.views import InstanceView
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.transport.admin import AdminError
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.rollouts import RolloutStepState
from fleet.vocabulary.verdicts import State
from tests.fakes.history_rows import create_agent_change
from tests.fakes.policy_nodes import PolicyNode, PolicyNodes
from tests.fakes.step_contexts import InMemoryReader, create_step_context
from tests.fleet.changes.conftest import NOW, actor_of

TTL = {"auth": {AUTH_TTL_VARIABLE: "30s"}}


class Rollout:
    """A rollout of a TTL with a simulated clock."""

    def __init__(
        self,
        cluster: Cluster,
        user: User,
        *nodes: PolicyNode,
        desired_values: dict[str, dict[str, str]] = TTL,
        undone_change_id: int | None = None,
        **settings: int,
    ) -> None:
        self.nodes, self.now, self.user = PolicyNodes(*nodes), NOW.timestamp(), user
        self.peak_in_progress = 0
        change = planner.plan_change(
            cluster.pk,
            desired_values,
            self.nodes.record(self.now),
            undone_change_id=undone_change_id,
            revision=desired_state.revision_of(desired_state.desired_values_of(cluster.pk)),
            rollout_settings={"drain_seconds": 2, "soak_seconds": 3, "timeout_seconds": 20, **settings},
            should_roll_out=True,
            actor=actor_of(user),
            now=NOW,
        )
        self.change: Change = engine.confirm(change, actor_of(user), reason="to try", typed_name="", now=NOW)

    def step(self, times: int = 1) -> Change:
        for _ in range(times):
            self.now += 1
            RolloutRunner().step(self.change, self.context)
            in_progress_count = sum(row.state in ("draining", "restarting", "verifying") for row in self.rows)
            self.peak_in_progress = max(self.peak_in_progress, in_progress_count)
        self.change.refresh_from_db()
        return self.change

    @property
    def context(self) -> StepContext:
        return create_step_context(
            lambda: self.now, reader=InMemoryReader(make_views=self.nodes.views), dialer=self.nodes
        )

    def run_until_ended(self) -> Change:
        for _ in range(200):
            if self.step().state not in (ChangeState.CONFIRMED, ChangeState.RUNNING):
                return self.change
        raise AssertionError(
            f"the rollout did not end: {[(row.name, row.state, row.detail) for row in self.rows]}"
        )

    @property
    def rows(self) -> list[RolloutStep]:
        return list(self.change.rollout_steps.all())


def make_auths(count: int = 3) -> list[PolicyNode]:
    return [PolicyNode(f"auth-{n}") for n in range(1, count + 1)]


def test_instances_restart_one_at_a_time(cluster: Cluster, alice: User) -> None:
    """Each accepts, drains, restarts and is healthy before the next one; desired values are stored."""
    auths = make_auths()
    rollout = Rollout(cluster, alice, *auths, PolicyNode("proxy-1", "proxy"))
    assert rollout.run_until_ended().state == ChangeState.VERIFIED
    assert rollout.peak_in_progress == 1
    assert all(auth.requests == ["send_policies", "drain", "restart"] for auth in auths)
    assert all(auth.accepted_values == {AUTH_TTL_VARIABLE: "30s"} and auth.run == 2 for auth in auths)
    assert desired_state.desired_values_of(cluster.pk) == {"auth": {AUTH_TTL_VARIABLE: "30s"}}
    assert rollout.change.outcome["finished_count"] == 3
    assert rollout.change.outcome["actual_loads"] == {"auth-1": 0, "auth-2": 0, "auth-3": 0}
    assert rollout.change.detail == "3 instances restarted"
    end_times = [row.ended_at for row in rollout.rows]
    assert end_times == sorted(end_times)


def test_reconnects_of_the_rollout_are_recorded(cluster: Cluster, alice: User) -> None:
    """The moves between auths since its start, in the history of agents; unknown before the history."""
    rollout = Rollout(cluster, alice, *make_auths())
    rollout.step()
    start = NOW.timestamp()
    Keyframe.objects.create(cluster=cluster, at=start - 9, content=keyframes.pack(empty_columns(start - 9)))
    for seconds, auth in ((-5, "auth-1"), (2, "auth-2"), (3, "auth-3"), (4, "auth-3")):
        create_agent_change(
            "a", start + seconds, State.HEALTHY, State.HEALTHY, auth=auth, proxies=[f"p{seconds}"]
        )
    assert rollout.run_until_ended().outcome["reconnect_count"] == 2
    assert rollout.change.detail == "3 instances restarted; agents reconnected 2 times"


def test_concurrency_limits_parallel_restarts(cluster: Cluster, alice: User) -> None:
    """With a concurrency of two."""
    rollout = Rollout(cluster, alice, *make_auths(5), concurrency=2)
    rollout.run_until_ended()
    assert rollout.peak_in_progress == 2


def test_failed_restart_pauses_the_rollout_until_it_is_resumed(cluster: Cluster, alice: User) -> None:
    """The other instances do not restart; the failed one is retried."""
    auths = make_auths()
    auths[1].comes_back = False
    rollout = Rollout(cluster, alice, *auths)
    assert rollout.run_until_ended().state == ChangeState.PAUSED
    assert "auth-2" in rollout.change.detail
    assert auths[2].run == 1
    rollout.step(5)
    assert auths[2].run == 1
    auths[1].comes_back = True
    auths[1].is_down, auths[1].serving = False, True
    kinds.run_action(rollout.change, "resume", actor_of(alice), NOW)
    assert rollout.run_until_ended().state == ChangeState.VERIFIED
    assert [row.state for row in rollout.rows] == [
        RolloutStepState.SUCCEEDED,
        RolloutStepState.SKIPPED,
        RolloutStepState.SUCCEEDED,
    ]


def test_rollout_waits_for_a_sick_instance(cluster: Cluster, alice: User) -> None:
    """No instance restarts while another one is sick."""
    auths = make_auths()
    rollout = Rollout(cluster, alice, *auths)
    auths[2].state = InstanceState.UNHEALTHY
    rollout.step(5)
    assert [auth.run for auth in auths] == [1, 1, 1]
    assert "waiting for auth-3 to become healthy" in rollout.change.progress["waiting_for"]
    auths[2].state = InstanceState.OK
    assert rollout.run_until_ended().state == ChangeState.VERIFIED


def test_sick_instance_itself_is_restarted(cluster: Cluster, alice: User) -> None:
    """The policy may fix it."""
    auths = make_auths(2)
    auths[0].state = InstanceState.UNHEALTHY
    rollout = Rollout(cluster, alice, *auths)
    rollout.step(2)
    assert auths[0].requests == ["send_policies", "drain"]


def test_flag_that_overrides_the_policy_pauses_the_rollout(cluster: Cluster, alice: User) -> None:
    """A restart would have no effect."""
    auths = make_auths(1)
    auths[0].flags = {AUTH_TTL_VARIABLE: "10s"}
    auths[0].restart()
    rollout = Rollout(cluster, alice, *auths)
    assert rollout.run_until_ended().state == ChangeState.PAUSED
    assert "a flag of the instance overrides" in rollout.change.detail


def test_interrupted_step_restarts_no_instance_twice(
    cluster: Cluster, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker died right after the restart request: the next step sees a new run."""
    auths = make_auths(2)
    rollout = Rollout(cluster, alice, *auths)
    restart = rollout.nodes.restart

    def restart_and_die(*args: object) -> None:
        restart(*args)  # type: ignore[arg-type] # handed on
        raise KeyboardInterrupt

    monkeypatch.setattr(rollout.nodes, "restart", restart_and_die)
    with pytest.raises(KeyboardInterrupt):
        rollout.step(10)
    lease.revoke(rollout.change)
    monkeypatch.setattr(rollout.nodes, "restart", restart)
    assert rollout.run_until_ended().state == ChangeState.VERIFIED
    assert [auth.run for auth in auths] == [2, 2]


def test_step_paused_past_its_lease_writes_nothing(
    cluster: Cluster, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process takes over while the first one reads the instances."""
    auths = make_auths()
    rollout = Rollout(cluster, alice, *auths)
    for auth in auths:
        auth.state = InstanceState.UNKNOWN
    read_views = rollout.nodes.views
    progress: dict[str, Any] = {}

    def read_after_pause() -> tuple[InstanceView, ...]:
        monkeypatch.setattr(rollout.nodes, "views", read_views)
        lease.revoke(rollout.change)
        progress.update(rollout.step(2).progress)
        return read_views()

    monkeypatch.setattr(rollout.nodes, "views", read_after_pause)
    rollout.step()
    assert progress["stepped_at"] == rollout.now
    assert rollout.change.progress == progress


def test_rollout_fails_if_the_desired_values_changed_meanwhile(cluster: Cluster, alice: User) -> None:
    """Nothing is overwritten, and no instance restarts."""
    auths = make_auths(1)
    rollout = Rollout(cluster, alice, *auths)
    competing_change = planner.plan_change(
        cluster.pk,
        {"auth": {AUTH_TTL_VARIABLE: "1m"}},
        rollout.nodes.record(rollout.now),
        revision=desired_state.revision_of({}),
        rollout_settings={},
        should_roll_out=False,
        actor=actor_of(alice),
        now=NOW,
    )
    desired_state.store_desired_values(competing_change)
    assert rollout.run_until_ended().state == ChangeState.FAILED
    assert auths[0].run == 1


def test_unset_policy_is_verified_with_the_fallback_value(cluster: Cluster, alice: User) -> None:
    """The detail contains that value; the first change is marked as undone."""
    auths = [PolicyNode("auth-1"), PolicyNode("auth-2", environment={AUTH_TTL_VARIABLE: "7m"})]
    first = Rollout(cluster, alice, *auths)
    first.run_until_ended()
    undo_rollout = Rollout(cluster, alice, *auths, desired_values={}, undone_change_id=first.change.pk)
    assert undo_rollout.run_until_ended().state == ChangeState.VERIFIED
    assert [row.detail for row in undo_rollout.rows] == [
        "Auth announce TTL: 10m (default)",
        "Auth announce TTL: 7m (env)",
    ]
    assert [auth.accepted_values for auth in auths] == [{}, {}]
    first.change.refresh_from_db()
    assert first.change.state == ChangeState.UNDONE


def test_unset_policy_that_stays_in_effect_pauses_the_rollout(
    cluster: Cluster, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instance restarted with the old value."""
    auth = PolicyNode("auth-1")
    Rollout(cluster, alice, auth).run_until_ended()
    monkeypatch.setattr(auth, "_start", lambda: None)  # as if it read the old file
    undo_rollout = Rollout(cluster, alice, auth, desired_values={})
    assert undo_rollout.run_until_ended().state == ChangeState.PAUSED
    assert f"{AUTH_TTL_VARIABLE} is still 30s" in undo_rollout.change.detail


def test_deregistered_instance_is_skipped(cluster: Cluster, alice: User) -> None:
    """The other instances restart."""
    auths = make_auths()
    rollout = Rollout(cluster, alice, *auths)
    auths[1].state = InstanceState.GONE
    assert rollout.run_until_ended().state == ChangeState.VERIFIED
    assert [(row.state, row.detail) for row in rollout.rows][1] == (
        "skipped",
        "the instance was deregistered in the meantime",
    )
    assert rollout.change.detail == "2 instances restarted, 1 skipped"
    assert auths[1].run == 1


def _abort(rollout: Rollout) -> None:
    kinds.run_action(rollout.change, "abort", actor_of(rollout.user), rollout.context.now())


def _find_due(rollout: Rollout) -> list[Change]:
    return list(RolloutRunner().find_due(Change.objects.filter(kind="policy")))


def test_restart_in_progress_is_followed_after_the_abort(cluster: Cluster, alice: User) -> None:
    """By any worker, to its end; then nothing is due."""
    auths = make_auths()
    rollout = Rollout(cluster, alice, *auths)
    auths[0].comes_back = False
    rollout.step(4)
    _abort(rollout)
    assert [row.state for row in rollout.rows] == ["restarting", "skipped", "skipped"]
    assert _find_due(rollout) == [rollout.change]
    rollout.step()
    assert "auth-1 is restarting" in rollout.change.detail
    auths[0].is_down, auths[0].serving = False, True
    rollout.step(6)
    assert [row.state for row in rollout.rows] == ["succeeded", "skipped", "skipped"]
    assert rollout.change.state == ChangeState.CANCELLED
    assert rollout.change.detail == "aborted by alice: restarted 1 of 3 instances, 2 skipped"
    assert rollout.change.outcome["succeeded_count"] == 1
    assert _find_due(rollout) == []
    assert [auth.run for auth in auths] == [2, 1, 1]


def test_restart_that_times_out_after_the_abort_fails(cluster: Cluster, alice: User) -> None:
    auths = make_auths()
    auths[0].comes_back = False
    rollout = Rollout(cluster, alice, *auths)
    rollout.step(4)
    _abort(rollout)
    rollout.step(25)
    assert rollout.rows[0].state == "failed"
    assert "timed out" in rollout.rows[0].detail
    assert rollout.change.detail == "aborted by alice: restarted 0 of 3 instances, 2 skipped, 1 failed"


def test_drain_ends_with_the_abort(cluster: Cluster, alice: User) -> None:
    """The instance accepts connections again, and does not restart."""
    auths = make_auths()
    rollout = Rollout(cluster, alice, *auths)
    rollout.step(2)
    assert rollout.rows[0].state == "draining"
    _abort(rollout)
    auths[0].is_down = True
    rollout.step()
    assert rollout.rows[0].state == "draining"
    auths[0].is_down = False
    rollout.step()
    assert rollout.rows[0].state == "skipped"
    assert auths[0].requests == ["send_policies", "drain", "undrain"]
    assert auths[0].run == 1


def test_drain_that_cannot_be_ended_fails_after_the_timeout(cluster: Cluster, alice: User) -> None:
    auths = make_auths()
    rollout = Rollout(cluster, alice, *auths)
    rollout.step(2)
    _abort(rollout)
    auths[0].is_down = True
    rollout.step(25)
    assert rollout.rows[0].state == "failed"


def test_restart_requested_before_the_abort_is_followed(
    cluster: Cluster, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker died before it stored the restart."""
    auths = make_auths()
    rollout = Rollout(cluster, alice, *auths)
    rollout.step(2)
    auths[0].restart()
    _abort(rollout)
    rollout.step(8)
    assert rollout.rows[0].state == "succeeded"


def test_later_rollout_waits_for_the_restart_of_an_aborted_one(cluster: Cluster, alice: User) -> None:
    """It would fail at the instance that does not respond yet."""
    auths = make_auths()
    auths[0].comes_back = False
    first = Rollout(cluster, alice, *auths)
    first.step(4)
    _abort(first)
    auths[0].is_down = False
    second = Rollout(cluster, alice, *auths, desired_values={"auth": {AUTH_TTL_VARIABLE: "45s"}})
    auths[0].is_down, auths[0].serving = True, False
    second.now = first.now
    second.step(2)
    wait_reason = f"waiting for auth-1, which change {first.change.pk} is still restarting"
    assert second.change.progress["waiting_for"] == wait_reason
    auths[0].is_down, auths[0].serving, auths[0].comes_back = False, True, True
    first.step(6)
    second.now = first.now
    assert second.run_until_ended().state == ChangeState.VERIFIED


def test_rollout_waits_for_unknown_instances(cluster: Cluster, alice: User) -> None:
    """No instance restarts while the state of the others is unknown."""
    auths = make_auths()
    rollout = Rollout(cluster, alice, *auths)
    for auth in auths:
        auth.state = InstanceState.UNKNOWN
    rollout.step(5)
    assert [auth.run for auth in auths] == [1, 1, 1]
    assert "waiting for" in rollout.change.progress["waiting_for"]


def test_silent_instance_is_named_in_the_result(cluster: Cluster, alice: User) -> None:
    """It has not accepted the values, so the rollout did not restart it."""
    rollout = Rollout(cluster, alice, PolicyNode("auth-1", is_down=True))
    assert rollout.step().state == ChangeState.VERIFIED
    assert rollout.change.detail == (
        "desired values stored; no restarts; auth-1 did not respond and kept the previous values"
    )


def test_refused_restart_fails_its_instance_and_ends_its_drain(
    cluster: Cluster, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, with the sentence of the instance."""
    auths = make_auths(2)
    rollout = Rollout(cluster, alice, *auths)

    def refuse(*_: object) -> None:
        raise AdminError("auth-1: restarts are not allowed")

    monkeypatch.setattr(rollout.nodes, "restart", refuse)
    while rollout.rows[0].state != RolloutStepState.FAILED:
        rollout.step()
    assert rollout.rows[0].detail == "auth-1: restarts are not allowed"
    assert auths[0].requests == ["send_policies", "drain", "undrain"]
    assert rollout.now - NOW.timestamp() < 20


@pytest.mark.parametrize("call", ["read_policies", "send_policies", "drain"])
def test_instance_that_refuses_the_first_calls_fails_without_a_restart(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, alice: User, call: str
) -> None:
    """The step shows the answer of the instance, and the next instance waits."""
    auths = make_auths(2)
    rollout = Rollout(cluster, alice, *auths)

    def refuse(*_: object) -> None:
        raise AdminError("auth-1: not allowed")

    monkeypatch.setattr(rollout.nodes, call, refuse)
    rollout.step()
    assert [(row.state, row.detail) for row in rollout.rows] == [
        (RolloutStepState.FAILED, "auth-1: not allowed"),
        (RolloutStepState.PENDING, ""),
    ]
    assert "restart" not in auths[0].requests


def test_forecast_gives_no_agents_to_an_instance_that_is_sick(cluster: Cluster, alice: User) -> None:
    """Agents of a restarting auth move to one that is OK."""
    auths = [*make_auths(2), PolicyNode("auth-3", state=InstanceState.UNHEALTHY)]
    for auth in auths[:2]:
        auth.agents = 10
    values = {auths[0].id: TTL["auth"]}
    loads = Rollout(cluster, alice, *auths, desired_values=values).change.plan["loads"]
    assert {load["name"]: load["after"] for load in loads} == {"auth-1": 0, "auth-2": 20, "auth-3": 0}
