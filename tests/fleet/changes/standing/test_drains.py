"""What operators want of instances, until they say so themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.contrib.auth.models import User

from fleet.changes.standing import drains
from fleet.changes.standing.drains import DueDrain, InstanceDrainRequest
from fleet.models.changes import AuditEntry
from fleet.models.clusters import Cluster
from fleet.models.drains import Drain
from fleet.protocol.destination.health import DrainRequest
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, PollAttempt
from fleet.vocabulary.watch import INITIAL_WATCH
from tests.fleet.changes.conftest import NOW, by


def wanted(user: User, *, drained: bool = True) -> InstanceDrainRequest:
    return InstanceDrainRequest("p-1", "proxy-1", drained, "kernel update", by(user))


def proxy(*, drains_already: bool = False, ok: bool = True, gone: bool = False) -> dict[int, InstanceFacts]:
    draining = DrainRequest("kernel update", 1.0) if drains_already else None
    facts = InstanceFacts(
        *("p-1", 0, InstanceKind.PROXY, "proxy-1", "127.0.0.1:1"),
        attempts=(PollAttempt(1.0, ok=ok),),
        gone_at=1.0 if gone else None,
        watch=replace(INITIAL_WATCH, drain_request=draining),
    )
    return {0: facts}


def test_wish_is_kept_and_logged(cluster: Cluster, alice: User) -> None:
    """The last one counts; the log has both, with who and why."""
    drains.record_drain_request("default", wanted(alice), lambda: NOW)
    drains.record_drain_request("default", wanted(alice, drained=False), lambda: NOW)
    row = Drain.objects.get()
    assert (row.name, row.drained, row.who, row.reason) == ("proxy-1", False, "alice", "kernel update")
    entries = AuditEntry.objects.order_by("pk").values_list("action", "subject", "outcome", "reason")
    assert list(entries) == [
        ("instance.drain", "proxy-1", "done", "kernel update"),
        ("instance.undrain", "proxy-1", "done", "kernel update"),
    ]


def test_due_until_the_instance_says_so(cluster: Cluster, alice: User) -> None:
    """Also when it forgot at a restart; not while it does not answer, and not for what others drain."""
    assert drains.find_due_drains("default", proxy(drains_already=True)) == []
    row = drains.record_drain_request("default", wanted(alice), lambda: NOW)
    assert drains.find_due_drains("default", proxy()) == [
        DueDrain(row.pk, "127.0.0.1:1", InstanceKind.PROXY, True, "kernel update")
    ]
    assert drains.find_due_drains("default", proxy(drains_already=True)) == []
    assert drains.find_due_drains("default", proxy(ok=False)) == []
    assert drains.find_due_drains("default", proxy(gone=True)) == []
    drains.record_drain_request("default", wanted(alice, drained=False), lambda: NOW)
    assert [one.is_drained for one in drains.find_due_drains("default", proxy(drains_already=True))] == [
        False
    ]


@pytest.mark.parametrize("error", ["", "it does not answer"])
def test_what_came_of_telling_is_kept(cluster: Cluster, alice: User, error: str) -> None:
    """For the page."""
    row = drains.record_drain_request("default", wanted(alice), lambda: NOW)
    drains.record_responses(drains.find_due_drains("default", proxy()), {row.pk: error}, NOW)
    row.refresh_from_db()
    assert (row.error, row.told_at) == (error, None if error else NOW)


def test_answer_to_an_older_wish_is_not_kept(cluster: Cluster, alice: User) -> None:
    """The operator wants the opposite since the instance was called: nothing came of that yet."""
    row = drains.record_drain_request("default", wanted(alice), lambda: NOW)
    called = drains.find_due_drains("default", proxy())
    drains.record_drain_request("default", wanted(alice, drained=False), lambda: NOW)
    drains.record_responses(called, {row.pk: ""}, NOW)
    row.refresh_from_db()
    assert row.told_at is None
