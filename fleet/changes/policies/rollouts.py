"""What people may do to the steps of a rollout. No node is asked here: pages may."""

from __future__ import annotations

from fleet.models.changes import Change
from fleet.vocabulary.rollouts import StepState


def retry(change: Change) -> None:
    """Give instances that failed another turn; for when the rollout is resumed."""
    change.rollout_steps.filter(state=StepState.FAILED.value).update(state=StepState.WAITING.value, detail="")


def skip_rest(change: Change, why: str, now: float) -> None:
    """Skip those whose turn has not come; who is under way is left to itself."""
    change.rollout_steps.filter(state=StepState.WAITING.value).update(
        state=StepState.SKIPPED.value, detail=why, ended_at=now
    )
