"""Desired policies of instances, and plans that change them."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from fleet.changes import ChangeRefusedError, StaleRevisionError
from fleet.changes.kinds import kind_of
from fleet.changes.policies import desired_state, matrix, planner
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.protocol.policies.env_policies import BY_NAME, HTTP_CLOSE_VARIABLE
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE, PROXY_TTL_VARIABLE
from fleet.protocol.recovery.service_config import RFD_VARIABLE
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.rollouts import DEFAULT_RESTART_SECONDS
from tests.fakes.policy_nodes import PolicyNode, PolicyNodes
from tests.fleet.changes.conftest import NOW, actor_of


def _plan(
    cluster: Cluster,
    user: User,
    desired_values: dict[str, dict[str, str]],
    nodes: PolicyNodes,
    revision: str = "",
    concurrency: int = 1,
) -> Change:
    return planner.plan_change(
        cluster.pk,
        desired_values,
        nodes.record(NOW.timestamp()),
        revision=revision or desired_state.revision_of(desired_state.desired_values_of(cluster.pk)),
        rollout_settings={"concurrency": concurrency},
        should_roll_out=True,
        actor=actor_of(user),
        now=NOW,
    )


def test_plan_lists_instances_to_restart(cluster: Cluster, alice: User) -> None:
    """Only instances whose values change; unmanaged instances are restarted by hand, silent ones are not."""
    nodes = PolicyNodes(
        PolicyNode("auth-1", agents=150),
        PolicyNode("auth-2", environment={AUTH_TTL_VARIABLE: "1m"}),
        PolicyNode("auth-3", refusal_reason="no data folder"),
        PolicyNode("auth-4", is_down=True),
        PolicyNode("proxy-1", "proxy"),
    )
    change = _plan(cluster, alice, {"auth": {AUTH_TTL_VARIABLE: "60s"}}, nodes)
    assert change.plan["silent_instances"] == [{"name": "auth-4", "reason": "silent"}]
    assert [instance["name"] for instance in change.plan["restarts"]] == ["auth-1"]
    assert [instance["name"] for instance in change.plan["manual_restarts"]] == ["auth-3"]
    assert change.affected_count == 150
    assert change.rollout_steps.count() == 1


@pytest.mark.parametrize("name", list(BY_NAME))
def test_invalid_value_of_a_policy_is_refused(cluster: Cluster, alice: User, name: str) -> None:
    """The error names the field, and nothing is stored."""
    role = BY_NAME[name].role
    nodes = PolicyNodes(PolicyNode("auth-1"), PolicyNode("proxy-1", "proxy"))
    for target in (role, f"id-{role}-1"):
        with pytest.raises(ChangeRefusedError) as refusal:
            _plan(cluster, alice, {target: {name: "nonsense"}}, nodes)
        assert set(refusal.value.problems) == {f"{target}.{name}"}
    assert not Change.objects.exists()
    assert desired_state.desired_values_of(cluster.pk) == {}


def test_typed_durations_are_stored_as_nodes_read_them(cluster: Cluster, alice: User) -> None:
    """`30 s` is stored as `30s`; the same duration in another form is no change."""
    nodes = PolicyNodes(PolicyNode("auth-1", environment={AUTH_TTL_VARIABLE: "90s"}))
    assert _plan(cluster, alice, {"auth": {AUTH_TTL_VARIABLE: "30 s"}}, nodes).after == {
        "auth": {AUTH_TTL_VARIABLE: "30s"}
    }
    desired_state.store_desired_values(_plan(cluster, alice, {"auth": {AUTH_TTL_VARIABLE: "90s"}}, nodes))
    with pytest.raises(ChangeRefusedError, match="no changes"):
        _plan(cluster, alice, {"auth": {AUTH_TTL_VARIABLE: "1 min 30 s"}}, nodes)


def test_unknown_targets_and_policies_are_refused(cluster: Cluster, alice: User) -> None:
    """Environment variables, unknown instances and policies of another role."""
    nodes = PolicyNodes(PolicyNode("auth-1"))
    for desired_values, field in (
        ({"auth": {"PATH": "/x"}}, "auth.PATH"),
        ({"nobody": {AUTH_TTL_VARIABLE: "1m"}}, "nobody"),
        ({"nobody": {}}, "nobody"),
        ({"auth": {PROXY_TTL_VARIABLE: "1m"}}, f"auth.{PROXY_TTL_VARIABLE}"),
    ):
        with pytest.raises(ChangeRefusedError) as refusal:
            _plan(cluster, alice, desired_values, nodes)
        assert field in refusal.value.problems


def test_stale_revision_and_unchanged_values_are_refused(cluster: Cluster, alice: User) -> None:
    """The second of two concurrent editors gets an error."""
    nodes = PolicyNodes(PolicyNode("auth-1"))
    before = desired_state.revision_of({})
    change = _plan(cluster, alice, {"auth": {HTTP_CLOSE_VARIABLE: "true"}}, nodes)
    desired_state.store_desired_values(change)
    with pytest.raises(StaleRevisionError, match="changed in the meantime"):
        _plan(cluster, alice, {}, nodes, before)
    with pytest.raises(StaleRevisionError, match="'abc' is not a recent revision of the desired values"):
        _plan(cluster, alice, {}, nodes, "abc")
    auth = nodes.nodes["id-auth-1"]
    auth.accepted_values = {HTTP_CLOSE_VARIABLE: "true"}
    auth.restart()
    unchanged = "no changes: this sets or removes no desired value, and restarts no instance"
    with pytest.raises(ChangeRefusedError, match=f"{unchanged}$"):
        _plan(cluster, alice, {"auth": {HTTP_CLOSE_VARIABLE: "true"}}, nodes)
    auth.is_down = True
    with pytest.raises(ChangeRefusedError, match=rf"{unchanged}\. Instances that differ: auth-1 \(silent\)"):
        _plan(cluster, alice, {"auth": {HTTP_CLOSE_VARIABLE: "true"}}, nodes)


def test_plan_lists_policies_that_agents_read_at_connect(cluster: Cluster, alice: User) -> None:
    """No instance restarts for them."""
    text = '{"grpc_client_lb_policy": {"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "pick_first"}}]}}'
    change = _plan(cluster, alice, {"auth": {RFD_VARIABLE: text}}, PolicyNodes(PolicyNode("auth-1")))
    assert change.plan["policies_read_at_connect"] == [RFD_VARIABLE]
    assert change.plan["restarts"] == []


def test_question_contains_the_counts(cluster: Cluster, alice: User) -> None:
    """The auths to restart and their agents."""
    nodes = PolicyNodes(PolicyNode("auth-1", agents=150))
    change = _plan(cluster, alice, {"auth": {AUTH_TTL_VARIABLE: "60s"}}, nodes)
    assert change.plan["question"] == (
        "Set auth announce TTL of all auths to 1 min, and restart 1 auth with 150 connected agents?"
    )
    assert change.plan["duration_seconds"] == 2 + DEFAULT_RESTART_SECONDS + 5
    assert (change.plan["reconnect_count"], change.plan["reconnect_sentence"]) == (
        150,
        "Agents reconnect about 150 times.",
    )
    assert [load["before"] for load in change.plan["loads"]] == [150]


def test_concurrency_may_not_include_all_instances_of_a_role(cluster: Cluster, alice: User) -> None:
    """The error names the field; a single instance is allowed."""
    nodes = PolicyNodes(PolicyNode("auth-1"), PolicyNode("auth-2"))
    desired_values = {"auth": {AUTH_TTL_VARIABLE: "60s"}}
    with pytest.raises(ChangeRefusedError) as refusal:
        _plan(cluster, alice, desired_values, nodes, concurrency=2)
    assert set(refusal.value.problems) == {"concurrency"}
    assert _plan(cluster, alice, desired_values, PolicyNodes(PolicyNode("auth-1")), concurrency=2).plan[
        "restarts"
    ]


def test_deregistered_instance_does_not_block_a_plan(cluster: Cluster, alice: User) -> None:
    """Its desired values stay and can only be removed."""
    auths = PolicyNodes(PolicyNode("auth-1"), PolicyNode("auth-2"))
    desired_state.store_desired_values(
        _plan(cluster, alice, {"id-auth-2": {AUTH_TTL_VARIABLE: "60s"}}, auths)
    )
    remaining_nodes = PolicyNodes(PolicyNode("auth-1"))
    desired_values = desired_state.desired_values_of(cluster.pk)
    lines = matrix.create_matrix(remaining_nodes.views(), remaining_nodes.read_reports(), desired_values)
    assert matrix.desired_values_of_deregistered(lines, desired_values) == {
        "id-auth-2": {AUTH_TTL_VARIABLE: "60s"}
    }
    change = _plan(cluster, alice, {**desired_values, "auth": {HTTP_CLOSE_VARIABLE: "true"}}, remaining_nodes)
    assert change.after["id-auth-2"] == {AUTH_TTL_VARIABLE: "60s"}
    with pytest.raises(ChangeRefusedError, match="neither a role nor the id of an instance"):
        _plan(cluster, alice, {"id-auth-2": {AUTH_TTL_VARIABLE: "30s"}}, remaining_nodes)
    assert _plan(cluster, alice, {"id-auth-2": {}}, remaining_nodes).after == {}


def test_concurrent_edits_are_rebased(cluster: Cluster, alice: User) -> None:
    """The second edit is applied to the values of the first."""
    nodes = PolicyNodes(PolicyNode("auth-1"))
    base_revision = desired_state.revision_of({})
    desired_state.store_desired_values(_plan(cluster, alice, {"auth": {HTTP_CLOSE_VARIABLE: "true"}}, nodes))
    assert desired_state.find_base_values(cluster.pk, base_revision) == {}
    stored_values = desired_state.desired_values_of(cluster.pk)
    assert (
        desired_state.find_base_values(cluster.pk, desired_state.revision_of(stored_values)) == stored_values
    )
    assert desired_state.find_base_values(cluster.pk, "never") is None
    rebased_values = desired_state.rebase({}, {AUTH_TTL_VARIABLE: "1m"}, stored_values["auth"])
    assert rebased_values == {HTTP_CLOSE_VARIABLE: "true", AUTH_TTL_VARIABLE: "1m"}
    assert desired_state.rebase(stored_values["auth"], {}, rebased_values) == {AUTH_TTL_VARIABLE: "1m"}


def test_undo_restores_only_values_that_were_not_changed_since(cluster: Cluster, alice: User) -> None:
    """An undo is refused if a value was changed again."""
    nodes = PolicyNodes(PolicyNode("auth-1"))
    first = _plan(cluster, alice, {"auth": {HTTP_CLOSE_VARIABLE: "true"}}, nodes)
    desired_state.store_desired_values(first)
    desired_state.store_desired_values(
        _plan(cluster, alice, {"auth": {HTTP_CLOSE_VARIABLE: "true", AUTH_TTL_VARIABLE: "1m"}}, nodes)
    )
    first.state, first.started_at = ChangeState.VERIFIED.value, NOW
    record = nodes.record(NOW.timestamp())
    undone = kind_of(first).undo(first, actor_of(alice), NOW, record)
    assert (undone.after, undone.undoes) == ({"auth": {AUTH_TTL_VARIABLE: "1m"}}, first)
    desired_state.store_desired_values(_plan(cluster, alice, {}, nodes))
    with pytest.raises(ChangeRefusedError, match="changed again since"):
        kind_of(first).undo(first, actor_of(alice), NOW, record)


def test_plan_without_policy_reports_is_refused(cluster: Cluster, alice: User) -> None:
    """Otherwise a console that has just started would treat managed instances as unmanaged."""
    nodes = PolicyNodes(PolicyNode("auth-1"))
    with pytest.raises(ChangeRefusedError, match="auth-1: no report of policies yet"):
        planner.plan_change(
            cluster.pk,
            {"auth": {AUTH_TTL_VARIABLE: "60s"}},
            nodes.record(NOW.timestamp(), has_reports=False),
            revision=desired_state.revision_of({}),
            rollout_settings={},
            should_roll_out=True,
            actor=actor_of(alice),
            now=NOW,
        )
