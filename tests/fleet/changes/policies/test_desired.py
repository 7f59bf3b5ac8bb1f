"""What instances are to run with, and plans of other policies."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from fleet.changes import ChangeRefusedError, StaleRevisionError
from fleet.changes.kinds import kind_of
from fleet.changes.policies import desired, matrix, planning
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.protocol.policies.env_policies import BY_NAME, HTTP_CLOSE_VARIABLE
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE, PROXY_TTL_VARIABLE
from fleet.protocol.recovery.service_config import RFD_VARIABLE
from fleet.vocabulary.changes import ChangeState
from tests.fakes.policy_nodes import PolicyNode, PolicyNodes
from tests.fleet.changes.conftest import NOW, by


def _plan(
    cluster: Cluster,
    user: User,
    wanted: dict[str, dict[str, str]],
    nodes: PolicyNodes,
    revision: str = "",
    at_once: int = 1,
) -> Change:
    return planning.plan_change(
        cluster.pk,
        wanted,
        nodes.record(NOW.timestamp()),
        revision=revision or desired.revision_of(desired.desired_values_of(cluster.pk)),
        rollout_settings={"at_once": at_once},
        should_roll_out=True,
        actor=by(user),
        now=NOW,
    )


def test_plan_names_who_restarts(cluster: Cluster, alice: User) -> None:
    """Only those that would run with something else; the others are for people to restart."""
    nodes = PolicyNodes(
        PolicyNode("auth-1", agents=150),
        PolicyNode("auth-2", environment={AUTH_TTL_VARIABLE: "1m"}),
        PolicyNode("auth-3", why_not="no data folder"),
        PolicyNode("proxy-1", "proxy"),
    )
    change = _plan(cluster, alice, {"auth": {AUTH_TTL_VARIABLE: "60s"}}, nodes)
    assert [one["name"] for one in change.plan["restarts"]] == ["auth-1"]
    assert [one["name"] for one in change.plan["by_hand"]] == ["auth-3"]
    assert change.agents == 150
    assert change.rollout_steps.count() == 1


@pytest.mark.parametrize("name", list(BY_NAME))
def test_wrong_value_of_every_policy(cluster: Cluster, alice: User, name: str) -> None:
    """A message at the field, nothing planned, nothing wanted; the attempt is in the log."""
    role = BY_NAME[name].role
    nodes = PolicyNodes(PolicyNode("auth-1"), PolicyNode("proxy-1", "proxy"))
    for target in (role, f"id-{role}-1"):
        with pytest.raises(ChangeRefusedError) as caught:
            _plan(cluster, alice, {target: {name: "nonsense"}}, nodes)
        assert set(caught.value.problems) == {f"{target}.{name}"}
    assert not Change.objects.exists()
    assert desired.desired_values_of(cluster.pk) == {}


def test_only_known_targets_and_names(cluster: Cluster, alice: User) -> None:
    """Neither PATH nor an instance nobody knows, nor a proxy's policy for auths."""
    nodes = PolicyNodes(PolicyNode("auth-1"))
    for wanted, where in (
        ({"auth": {"PATH": "/x"}}, "auth.PATH"),
        ({"nobody": {AUTH_TTL_VARIABLE: "1m"}}, "nobody"),
        ({"auth": {PROXY_TTL_VARIABLE: "1m"}}, f"auth.{PROXY_TTL_VARIABLE}"),
    ):
        with pytest.raises(ChangeRefusedError) as caught:
            _plan(cluster, alice, wanted, nodes)
        assert where in caught.value.problems


def test_stale_revision_and_nothing_new(cluster: Cluster, alice: User) -> None:
    """Of two who edit at once the second is told; the same again is no change."""
    nodes = PolicyNodes(PolicyNode("auth-1"))
    before = desired.revision_of({})
    change = _plan(cluster, alice, {"auth": {HTTP_CLOSE_VARIABLE: "true"}}, nodes)
    desired.store_desired_values(change)
    with pytest.raises(StaleRevisionError):
        _plan(cluster, alice, {}, nodes, before)
    nodes.nodes["id-auth-1"].accepted = {HTTP_CLOSE_VARIABLE: "true"}
    nodes.nodes["id-auth-1"].restart()
    with pytest.raises(ChangeRefusedError, match="no changes"):
        _plan(cluster, alice, {"auth": {HTTP_CLOSE_VARIABLE: "true"}}, nodes)


def test_at_connect_is_foreseen(cluster: Cluster, alice: User) -> None:
    """Policies that agents read when they connect are named in the plan."""
    text = '{"grpc_client_lb_policy": {"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "pick_first"}}]}}'
    change = _plan(cluster, alice, {"auth": {RFD_VARIABLE: text}}, PolicyNodes(PolicyNode("auth-1")))
    assert change.plan["at_connect"] == [RFD_VARIABLE]
    assert change.plan["restarts"] == []


def test_question_has_the_numbers(cluster: Cluster, alice: User) -> None:
    """Who restarts, and how many agents rest on them."""
    nodes = PolicyNodes(PolicyNode("auth-1", agents=150))
    change = _plan(cluster, alice, {"auth": {AUTH_TTL_VARIABLE: "60s"}}, nodes)
    assert change.plan["question"] == "Restart 1 auth with 150 connected agents?"


def test_all_of_a_role_are_never_away_at_once(cluster: Cluster, alice: User) -> None:
    """A message at the field; a single one has no choice."""
    nodes = PolicyNodes(PolicyNode("auth-1"), PolicyNode("auth-2"))
    wanted = {"auth": {AUTH_TTL_VARIABLE: "60s"}}
    with pytest.raises(ChangeRefusedError) as caught:
        _plan(cluster, alice, wanted, nodes, at_once=2)
    assert set(caught.value.problems) == {"at_once"}
    assert _plan(cluster, alice, wanted, PolicyNodes(PolicyNode("auth-1")), at_once=2).plan["restarts"]


def test_instance_that_has_gone_holds_nobody_up(cluster: Cluster, alice: User) -> None:
    """What was wanted of it stays, is shown, and can be forgotten; nothing else can be wanted of it."""
    auths = PolicyNodes(PolicyNode("auth-1"), PolicyNode("auth-2"))
    desired.store_desired_values(_plan(cluster, alice, {"id-auth-2": {AUTH_TTL_VARIABLE: "60s"}}, auths))
    left = PolicyNodes(PolicyNode("auth-1"))
    wanted = desired.desired_values_of(cluster.pk)
    lines = matrix.create_matrix(left.views(), left.observed(), wanted)
    assert matrix.deregistered_values_of(lines, wanted) == {"id-auth-2": {AUTH_TTL_VARIABLE: "60s"}}
    change = _plan(cluster, alice, {**wanted, "auth": {HTTP_CLOSE_VARIABLE: "true"}}, left)
    assert change.after["id-auth-2"] == {AUTH_TTL_VARIABLE: "60s"}
    with pytest.raises(ChangeRefusedError, match="neither a role nor the id of an instance"):
        _plan(cluster, alice, {"id-auth-2": {AUTH_TTL_VARIABLE: "30s"}}, left)
    assert _plan(cluster, alice, {"id-auth-2": {}}, left).after == {}


def test_of_two_who_edit_nothing_is_lost(cluster: Cluster, alice: User) -> None:
    """What the second started from is found again, and their change stands on the first one's."""
    nodes = PolicyNodes(PolicyNode("auth-1"))
    seen = desired.revision_of({})
    desired.store_desired_values(_plan(cluster, alice, {"auth": {HTTP_CLOSE_VARIABLE: "true"}}, nodes))
    assert desired.find_base_values(cluster.pk, seen) == {}
    theirs = desired.desired_values_of(cluster.pk)
    assert desired.find_base_values(cluster.pk, desired.revision_of(theirs)) == theirs
    assert desired.find_base_values(cluster.pk, "never") is None
    mine = desired.rebase({}, {AUTH_TTL_VARIABLE: "1m"}, theirs["auth"])
    assert mine == {HTTP_CLOSE_VARIABLE: "true", AUTH_TTL_VARIABLE: "1m"}
    assert desired.rebase(theirs["auth"], {}, mine) == {AUTH_TTL_VARIABLE: "1m"}


def test_taking_back(cluster: Cluster, alice: User) -> None:
    """Only what the change changed, and only while nobody changed that again."""
    nodes = PolicyNodes(PolicyNode("auth-1"))
    first = _plan(cluster, alice, {"auth": {HTTP_CLOSE_VARIABLE: "true"}}, nodes)
    desired.store_desired_values(first)
    desired.store_desired_values(
        _plan(cluster, alice, {"auth": {HTTP_CLOSE_VARIABLE: "true", AUTH_TTL_VARIABLE: "1m"}}, nodes)
    )
    first.state = ChangeState.VERIFIED.value
    record = nodes.record(NOW.timestamp())
    undone = kind_of(first).undo(first, by(alice), NOW, record)
    assert (undone.after, undone.undoes) == ({"auth": {AUTH_TTL_VARIABLE: "1m"}}, first)
    desired.store_desired_values(_plan(cluster, alice, {}, nodes))
    with pytest.raises(ChangeRefusedError, match="changed again since"):
        kind_of(first).undo(first, by(alice), NOW, record)


def test_nobody_is_restarted_who_was_never_asked(cluster: Cluster, alice: User) -> None:
    """A console that has just started must not take ours for instances that are restarted by hand."""
    nodes = PolicyNodes(PolicyNode("auth-1"))
    with pytest.raises(ChangeRefusedError, match="auth-1: no report of policies yet"):
        planning.plan_change(
            cluster.pk,
            {"auth": {AUTH_TTL_VARIABLE: "60s"}},
            nodes.record(NOW.timestamp(), asked=False),
            revision=desired.revision_of({}),
            rollout_settings={},
            should_roll_out=True,
            actor=by(alice),
            now=NOW,
        )
