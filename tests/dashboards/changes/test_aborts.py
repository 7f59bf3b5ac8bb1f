"""What stays after an abort, in sentences."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from dashboards.changes.aborts import describe_abort, find_aborted_rollout
from fleet.changes import kinds
from fleet.models.actions import CampaignAgent
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from tests.fleet.changes.conftest import NOW, actor_of
from tests.fleet.changes.policies.test_run import Rollout, make_auths

pytestmark = pytest.mark.django_db


@pytest.fixture
def rollout() -> Rollout:
    """A rollout of a TTL of 30 s to three auths with 10 min, of which the first one restarts."""
    cluster = Cluster.objects.create(id="default", name="Default")
    rollout = Rollout(cluster, User.objects.create_user("alice"), *make_auths(3))
    rollout.step(4)
    rollout.rows[0].save()
    Change.objects.filter(pk=rollout.change.pk).update(state="running")
    return rollout


def test_abort_of_a_rollout_says_which_value_each_instance_keeps(rollout: Rollout) -> None:
    rollout.change.rollout_steps.filter(name="auth-1").update(state="restarting")
    responses = rollout.nodes.read_reports()
    assert describe_abort(rollout.change, responses) == [
        "auth-1 keeps restarting with auth announce TTL 30 s.",
        "auth-2 and auth-3 keep 10 min, also after a restart: only a rollout gives them auth announce TTL 30 s.",
        "The desired value stays auth announce TTL 30 s: undo the change to go back.",
    ]
    rollout.change.rollout_steps.filter(name="auth-1").update(state="draining")
    assert describe_abort(rollout.change, responses)[0] == (
        "auth-1 stops draining, and gets auth announce TTL 30 s with the next restart."
    )


def test_aborted_rollout_has_the_instances_that_drift(rollout: Rollout) -> None:
    """Until a later rollout has restarted them."""
    rollout.change.rollout_steps.filter(name="auth-1").update(state="restarting")
    kinds.run_action(rollout.change, "abort", actor_of(rollout.user), NOW)
    aborted_rollout = find_aborted_rollout(rollout.change, rollout.nodes.read_reports())
    assert aborted_rollout is not None
    assert aborted_rollout.sentences[0] == "auth-1 is still restarting with auth announce TTL 30 s."
    assert aborted_rollout.drifting_names == ("auth-2", "auth-3")
    rollout.change.rollout_steps.filter(name="auth-1").update(state="succeeded")
    nodes = list(rollout.nodes.nodes.values())
    nodes[1].accepted_values = dict(rollout.rows[1].desired_values)
    aborted_rollout = find_aborted_rollout(rollout.change, rollout.nodes.read_reports())
    assert aborted_rollout is not None
    assert aborted_rollout.sentences[:2] == (
        "auth-1 runs with auth announce TTL 30 s.",
        "auth-2 gets auth announce TTL 30 s with the next restart.",
    )
    for node in nodes[1:]:
        node.accepted_values = dict(rollout.rows[1].desired_values)
        node.restart()
    assert find_aborted_rollout(rollout.change, rollout.nodes.read_reports()) is None


def test_abort_without_reports_names_no_value(rollout: Rollout) -> None:
    assert "auth-2 and auth-3 keep the value that they have" in " ".join(describe_abort(rollout.change, {}))


def test_abort_of_a_service_change_says_what_happens_to_the_drain() -> None:
    """A proxy drains first, an auth last."""
    cluster = Cluster.objects.create(id="default", name="Default")
    for kind, sentence in (
        ("proxy", "a-1 stays out of service: undo the change to bring it back."),
        ("auth", "a-1 is not drained: it still accepts new connections."),
    ):
        change = Change.objects.create(
            cluster=cluster,
            kind="service",
            title="x",
            actor_name="a",
            actor_kind="person",
            after={"instance": "1", "name": "a-1", "kind": kind, "is_drained": True},
        )
        for position, state in enumerate(("succeeded", "in-progress", "pending", "pending")):
            CampaignAgent.objects.create(
                change=change, position=position, agent_id=str(position), name="x", state=state
            )
        assert describe_abort(change, {}) == [
            "1 agent moved already and stays there: nothing moves back.",
            "1 agent in progress may still move: Refloat stops following it, and the result stays unknown.",
            "2 agents do not move.",
            sentence,
        ]
