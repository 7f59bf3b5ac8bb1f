"""Drain requests of operators until the instances report them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.contrib.auth.models import User

from fleet.changes.operations import drains
from fleet.changes.operations.drains import DueDrain, InstanceDrainRequest
from fleet.models.clusters import Cluster
from fleet.models.drains import Drain
from fleet.protocol.destination.health import DrainRequest
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, PollAttempt
from fleet.vocabulary.watch import INITIAL_WATCH
from tests.fleet.changes.conftest import NOW, actor_of


def make_request(user: User, *, is_drained: bool = True) -> InstanceDrainRequest:
    return InstanceDrainRequest("p-1", "proxy-1", is_drained, "kernel update", actor_of(user))


def proxy(*, is_draining: bool = False, ok: bool = True, is_gone: bool = False) -> dict[int, InstanceFacts]:
    drain_request = DrainRequest("kernel update", 1.0) if is_draining else None
    facts = InstanceFacts(
        *("p-1", 0, InstanceKind.PROXY, "proxy-1", "127.0.0.1:1"),
        attempts=(PollAttempt(1.0, ok=ok),),
        gone_at=1.0 if is_gone else None,
        watch=replace(INITIAL_WATCH, drain_request=drain_request),
    )
    return {0: facts}


def test_drain_request_is_stored(cluster: Cluster, alice: User) -> None:
    """The last request counts."""
    drains.save_drain_request("default", make_request(alice), NOW)
    drains.save_drain_request("default", make_request(alice, is_drained=False), NOW)
    row = Drain.objects.get()
    assert (row.name, row.is_drained, row.actor_name, row.reason) == (
        "proxy-1",
        False,
        "alice",
        "kernel update",
    )


def test_reason_of_a_change_becomes_one_that_instances_accept(cluster: Cluster, alice: User) -> None:
    """One line of at most 200 characters."""
    request = replace(make_request(alice), reason="kernel\nupdate " + 300 * "x")
    row = drains.save_drain_request("default", request, NOW)
    assert row.reason.startswith("kernel update xxx")
    assert len(row.reason) == 200


def test_drain_is_due_until_the_instance_reports_it(cluster: Cluster, alice: User) -> None:
    """Not while the instance does not respond or is deregistered."""
    assert drains.find_due_drains("default", proxy(is_draining=True)) == []
    row = drains.save_drain_request("default", make_request(alice), NOW)
    assert drains.find_due_drains("default", proxy()) == [
        DueDrain(row.pk, "127.0.0.1:1", InstanceKind.PROXY, True, "kernel update")
    ]
    assert drains.find_due_drains("default", proxy(is_draining=True)) == []
    assert drains.find_due_drains("default", proxy(ok=False)) == []
    assert drains.find_due_drains("default", proxy(is_gone=True)) == []
    drains.save_drain_request("default", make_request(alice, is_drained=False), NOW)
    assert [
        due_drain.is_drained for due_drain in drains.find_due_drains("default", proxy(is_draining=True))
    ] == [False]


@pytest.mark.parametrize("error", ["", "it does not answer"])
def test_response_of_the_instance_is_stored(cluster: Cluster, alice: User, error: str) -> None:
    row = drains.save_drain_request("default", make_request(alice), NOW)
    drains.record_responses(drains.find_due_drains("default", proxy()), {row.pk: error}, NOW)
    row.refresh_from_db()
    assert (row.error, row.applied_at) == (error, None if error else NOW)


def test_response_to_an_older_request_is_not_stored(cluster: Cluster, alice: User) -> None:
    """The operator requested the opposite after the call."""
    row = drains.save_drain_request("default", make_request(alice), NOW)
    due_drains = drains.find_due_drains("default", proxy())
    drains.save_drain_request("default", make_request(alice, is_drained=False), NOW)
    drains.record_responses(due_drains, {row.pk: ""}, NOW)
    row.refresh_from_db()
    assert row.applied_at is None
