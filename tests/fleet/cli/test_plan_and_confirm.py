"""How far a change is, on one line; the rest: test_campaign.py and test_policies.py."""

from __future__ import annotations

from fleet.cli import plan_and_confirm


def test_line() -> None:
    """What there is, in order."""
    said = {
        "kind": "reconnect",
        "state": "running",
        "done": 2,
        "total": 9,
        "ok": 1,
        "failed": 1,
        "skipped": 0,
        "eta_seconds": 61.4,
    }
    assert plan_and_confirm.format_progress({**said, "waits_for": "watching the canaries", "detail": ""}) == (
        "running: 2 of 9 agents (22 %) · 1 succeeded · 1 failed · about 1 min left · watching the canaries"
    )
