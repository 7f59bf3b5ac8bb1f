"""Requests to degrade an instance: what the log has of them, and what a task carries."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from fleet.changes.standing import degradations
from fleet.changes.standing.degradations import DegradeRequest
from fleet.models.changes import AuditEntry
from fleet.vocabulary.changes import SYSTEM_ACTOR
from tests.fleet.changes.conftest import NOW

REQUEST = DegradeRequest("default", "p-1", "proxy-1", True, "slow disk", 600.0, "r-1")


@pytest.mark.django_db
def test_request_and_its_failure_are_rows() -> None:
    """One when it is sent, or cannot be; another where the instance does not accept it."""

    def no_broker() -> None:
        raise OSError("no broker")

    degradations.submit_degrade_request(REQUEST, SYSTEM_ACTOR, lambda: None)
    with pytest.raises(OSError, match="no broker"):
        degradations.submit_degrade_request(replace(REQUEST, degraded=False), SYSTEM_ACTOR, no_broker)
    degradations.record_failure(REQUEST, "connection refused", NOW)
    first, second, third = AuditEntry.objects.order_by("pk")
    assert (first.action, first.outcome, first.subject, first.reason, first.request_id) == (
        "instance.degrade", "done", "proxy-1", "slow disk", "r-1",
    )  # fmt: skip
    assert first.after == {"instance": "p-1", "degraded": True, "seconds": 600.0}
    assert (second.action, second.outcome) == ("instance.restore", "failed")
    assert (third.outcome, third.detail) == ("failed", "connection refused")


def test_request_goes_through_a_task() -> None:
    """As plain values."""
    assert DegradeRequest(**asdict(REQUEST)) == REQUEST
