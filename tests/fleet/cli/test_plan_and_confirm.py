"""The progress line of a change; more tests are in test_campaign.py and test_policies.py."""

from __future__ import annotations

from fleet.cli import plan_and_confirm


def test_progress_line_contains_the_counts() -> None:
    """Missing values are left out."""
    progress = {
        "kind": "reconnect",
        "state": "running",
        "finished_count": 2,
        "total_count": 9,
        "succeeded_count": 1,
        "failed_count": 1,
        "skipped_count": 0,
        "eta_seconds": 60.4,
    }
    assert plan_and_confirm.format_progress(
        {**progress, "waiting_for": "watching the canaries", "detail": ""}
    ) == (
        "running: 2 of 9 agents finished (22 %) · 1 succeeded · 1 failed · about 1 min left · watching the canaries"
    )


def test_counts_are_not_repeated_before_a_detail_that_has_them() -> None:
    progress = {
        "kind": "reconnect",
        "state": "verified",
        "finished_count": 6,
        "total_count": 6,
        "skipped_count": 6,
        "detail": "no agent moved; 6 skipped: the agent is retired",
    }
    assert plan_and_confirm.format_progress(progress) == (
        "verified: 6 of 6 agents finished (100 %) · no agent moved; 6 skipped: the agent is retired"
    )


def test_aborted_rollout_counts_the_instances_that_restarted() -> None:
    """Skipped ones are not finished, and the count of the succeeded ones is not repeated."""
    progress = {
        "kind": "policy",
        "state": "cancelled",
        "state_label": "aborted",
        "finished_count": 1,
        "succeeded_count": 1,
        "skipped_count": 2,
        "total_count": 3,
        "detail": "aborted by demo: restarted 1 of 3 instances, 2 skipped",
    }
    assert plan_and_confirm.format_progress(progress) == (
        "aborted: 1 of 3 instances restarted (33 %) · aborted by demo: restarted 1 of 3 instances, 2 skipped"
    )
