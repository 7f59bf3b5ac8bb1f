"""Requests to mark an instance as degraded, as changes."""

from __future__ import annotations

from dataclasses import replace

from django.contrib.auth.models import User

from fleet.changes.operations import degradations
from fleet.changes.operations.degradations import DegradeRequest
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster
from fleet.vocabulary.changes import ChangeState
from tests.fleet.changes.conftest import NOW, actor_of

REQUEST = DegradeRequest("p-1", "proxy-1", is_degraded=True, duration_seconds=600.0, agent_count=7)


def make_change(user: User, request: DegradeRequest = REQUEST) -> Change:
    """Return a request as a stored change."""
    return degradations.request_degradation("default", request, actor_of(user), "slow disk", lambda: NOW)


def test_request_is_a_change_with_an_audit_entry(cluster: Cluster, alice: User) -> None:
    """A worker carries it out; the entry is about the instance."""
    change = make_change(alice)
    assert (change.state, change.title, change.affected_count) == (
        ChangeState.CONFIRMED,
        "Mark proxy-1 as degraded for 10 min",
        7,
    )
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.outcome, entry.subject, entry.reason, entry.request_id, entry.change_id) == (
        "instance.degrade", "succeeded", "proxy-1", "slow disk", "req-1", change.pk,
    )  # fmt: skip
    assert entry.after == {"instance": "p-1", "name": "proxy-1", "is_degraded": True, "seconds": 600.0}
    make_change(alice, replace(REQUEST, is_degraded=False))
    assert AuditEntry.objects.latest("pk").action == "instance.undegrade"


def test_clearing_is_planned_as_an_undo(cluster: Cluster, alice: User) -> None:
    """Nothing is sent before the plan is confirmed."""
    change = make_change(alice)
    undo = degradations.plan_clearing(change, actor_of(alice), NOW)
    assert (undo.state, undo.title, undo.undoes_id) == (
        ChangeState.PLANNED,
        "Clear the degraded mark of proxy-1",
        change.pk,
    )
