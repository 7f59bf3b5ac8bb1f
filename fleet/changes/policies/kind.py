"""Policy changes and their rollouts, as a kind of change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from typing_extensions import override

from fleet.audit import RequestActor
from fleet.changes import ChangeRefusedError, engine
from fleet.changes.base_kind import ChangeAction, Kind, RecordSnapshot
from fleet.changes.policies import desired_state, planner
from fleet.models.changes import Change
from fleet.models.moments import to_seconds
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.rollouts import RolloutStepState


def _resume(change: Change, actor: RequestActor, now: datetime) -> Change:
    """Resume a rollout, and retry the instances that failed. Raises WrongStateError."""

    def retry(row: Change) -> None:
        row.rollout_steps.filter(state=RolloutStepState.FAILED.value).update(
            state=RolloutStepState.PENDING.value, detail=""
        )

    return engine.transition(change, ChangeState.RUNNING, now, actor, write_related_rows=retry)


def _abort(change: Change, actor: RequestActor, now: datetime) -> Change:
    """End a rollout, and skip its pending instances. A worker follows those in progress to their end (`run.py`)."""
    reason = f"aborted by {actor.identity.name}"
    skipped_columns = {"state": RolloutStepState.SKIPPED.value, "detail": reason, "ended_at": to_seconds(now)}

    def skip(row: Change) -> None:
        row.rollout_steps.filter(state=RolloutStepState.PENDING.value).update(**skipped_columns)
        desired_state.store_abort(row, actor.identity.name)

    return engine.abort(change, actor, now, reason, skip)


class PolicyKind(Kind):
    """A change of desired values, with restarts of the instances that read them."""

    actions: Mapping[str, ChangeAction] = {
        "pause": engine.pause,
        "resume": _resume,
        "stop": _abort,
        "abort": _abort,
    }

    superseded_reason = "a later change set the same policies"

    @override
    def progress_of(self, change: Change, now: float) -> Mapping[str, Any]:
        return {
            **desired_state.progress_of(change),
            "waiting_for": str(change.progress.get("waiting_for", "")),
        }

    @override
    def require_current_plan(self, change: Change) -> None:
        desired_state.require_current_plan(change)

    @override
    def is_superseded(self, change: Change) -> bool:
        desired_values = desired_state.desired_values_of(change.cluster_id)
        before, after = change.before or {}, change.after or {}
        return any(
            desired_values.get(target, {}).get(name) != after.get(target, {}).get(name)
            for target in {*before, *after}
            for name in {*before.get(target, {}), *after.get(target, {})}
            if before.get(target, {}).get(name) != after.get(target, {}).get(name)
        )

    @override
    def plan_undo(self, change: Change, actor: RequestActor, now: datetime, record: RecordSnapshot) -> Change:
        """Plan the present desired values without this change, with the rollout settings of the change.

        Raises ChangeRefusedError when the same values were changed again since.
        """
        desired_values = desired_state.desired_values_of(change.cluster_id)
        revision = desired_state.revision_of(desired_values)
        before, after = change.before or {}, change.after or {}
        for target in {*before, *after}:
            old, new, target_values = (
                before.get(target, {}),
                after.get(target, {}),
                desired_values.setdefault(target, {}),
            )
            for name in {*old, *new}:
                if old.get(name) == new.get(name):
                    continue
                if target_values.get(name) != new.get(name):
                    raise ChangeRefusedError(
                        f"out of date: {name} was changed again since. Edit the present desired values instead"
                    )
                target_values.pop(name, None)
                target_values |= {name: old[name]} if name in old else {}
        return planner.plan_change(
            change.cluster_id,
            {target: values for target, values in desired_values.items() if values},
            record,
            revision=revision,
            rollout_settings=change.parameters,
            should_roll_out=change.rollout_steps.exists(),
            actor=actor,
            now=now,
            undone_change_id=change.pk,
        )


def plan_completion(change: Change, actor: RequestActor, now: datetime, record: RecordSnapshot) -> Change:
    """Plan the rollout of the present desired values to the instances that differ, with the settings of the change.

    Raises ChangeRefusedError when none differs, NoEvidenceError and StateError.
    """
    desired_values = desired_state.desired_values_of(change.cluster_id)
    return planner.plan_change(
        change.cluster_id,
        desired_values,
        record,
        revision=desired_state.revision_of(desired_values),
        rollout_settings=change.parameters,
        should_roll_out=True,
        actor=actor,
        now=now,
    )
