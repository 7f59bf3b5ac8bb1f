"""Requests to mark an instance degraded, in the audit log and as task arguments."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from fleet.changes.operations import degradations
from fleet.changes.operations.degradations import DegradeRequest
from fleet.models.changes import AuditEntry
from fleet.vocabulary.changes import SYSTEM_ACTOR
from tests.fleet.changes.conftest import NOW

REQUEST = DegradeRequest("default", "p-1", "proxy-1", True, "slow disk", 600.0, "r-1")


@pytest.mark.django_db
def test_request_and_its_failure_are_logged() -> None:
    """A failure of the instance is another audit row."""

    def fail_to_send() -> None:
        raise OSError("no broker")

    degradations.submit_degrade_request(REQUEST, SYSTEM_ACTOR, lambda: None)
    with pytest.raises(OSError, match="no broker"):
        degradations.submit_degrade_request(replace(REQUEST, is_degraded=False), SYSTEM_ACTOR, fail_to_send)
    degradations.record_failure(REQUEST, "connection refused", NOW)
    first, second, third = AuditEntry.objects.order_by("pk")
    assert (first.action, first.outcome, first.subject, first.reason, first.request_id) == (
        "instance.degrade", "succeeded", "proxy-1", "slow disk", "r-1",
    )  # fmt: skip
    assert first.after == {"instance": "p-1", "is_degraded": True, "seconds": 600.0}
    assert (second.action, second.outcome) == ("instance.undegrade", "failed")
    assert (third.outcome, third.detail) == ("failed", "connection refused")


def test_request_can_be_passed_to_a_task() -> None:
    """As plain values."""
    assert DegradeRequest(**asdict(REQUEST)) == REQUEST
