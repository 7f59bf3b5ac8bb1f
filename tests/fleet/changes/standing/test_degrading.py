"""What operators request of an instance, as a task's arguments and as a row in the log."""

from __future__ import annotations

from dataclasses import asdict, replace

from fleet.changes.standing.degrading import DegradeRequest
from fleet.vocabulary.changes import SYSTEM

REQUEST = DegradeRequest("default", "p-1", "proxy-1", True, "slow disk", 600.0, "r-1")


def test_row_in_the_log() -> None:
    """The action, the instance, and what was requested; the fields travel as a task's arguments."""
    attempt = REQUEST.attempt(SYSTEM, "connection refused")
    assert (attempt.action, attempt.subject, attempt.reason) == ("instance.degrade", "proxy-1", "slow disk")
    assert attempt.after == {"instance": "p-1", "degraded": True, "seconds": 600.0}
    assert (attempt.detail, attempt.request_id) == ("connection refused", "r-1")
    assert replace(REQUEST, degraded=False).attempt(SYSTEM).action == "instance.restore"
    assert DegradeRequest(**asdict(REQUEST)) == REQUEST
