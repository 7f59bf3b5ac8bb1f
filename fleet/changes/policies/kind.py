"""Rollouts of policies, as a kind of change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from typing_extensions import override

from fleet.audit import By
from fleet.changes import Refused, engine
from fleet.changes.base_kind import Action, Kind, Record
from fleet.changes.policies import desired, planning
from fleet.models.changes import Change
from fleet.models.moments import to_seconds
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.rollouts import StepState


def _resume(change: Change, by: By, now: datetime) -> Change:
    """Continue, and give the instances that failed another turn."""

    def retry(row: Change) -> None:
        row.rollout_steps.filter(state=StepState.FAILED.value).update(
            state=StepState.WAITING.value, detail=""
        )

    return engine.move(change, ChangeState.RUNNING, now, by, along=retry)


def _abort(change: Change, by: By, now: datetime) -> Change:
    """Skip the instances whose turn has not come. An instance that restarts already finishes by itself."""
    why = f"cancelled by {by.actor.name}; who is under way comes back by itself"
    skipped = {"state": StepState.SKIPPED.value, "detail": why, "ended_at": to_seconds(now)}
    waiting = {"state": StepState.WAITING.value}
    return engine.abort(
        change, by, now, why, lambda row: row.rollout_steps.filter(**waiting).update(**skipped)
    )


class PolicyKind(Kind):
    """Desired policies, and restarts of the instances that are to run with them."""

    actions: Mapping[str, Action] = {
        "pause": engine.pause,
        "resume": _resume,
        "stop": _abort,
        "abort": _abort,
    }

    @override
    def progress(self, change: Change, now: float) -> Mapping[str, Any]:
        return {**desired.progress_of(change), "waits_for": str(change.progress.get("waits_for", ""))}

    @override
    def must_stand(self, change: Change) -> None:
        desired.refuse_stale(change)

    @override
    def plan_undo(self, change: Change, by: By, now: datetime, record: Record) -> Change:
        """Plan what is desired now without the change's own part, by the terms of the change.

        Raises Refused when somebody changed that part again since.
        """
        current = desired.wanted_of(change.cluster_id)
        revision = desired.revision_of(current)
        before, after = change.before or {}, change.after or {}
        for target in {*before, *after}:
            old, new, here = before.get(target, {}), after.get(target, {}), current.setdefault(target, {})
            for name in {*old, *new}:
                if old.get(name) == new.get(name):
                    continue
                if here.get(name) != new.get(name):
                    raise Refused(
                        f"{name} was changed again since: look at what is wanted now, and change that"
                    )
                here.pop(name, None)
                here |= {name: old[name]} if name in old else {}
        return planning.plan(
            change.cluster_id,
            {target: values for target, values in current.items() if values},
            record,
            revision=revision,
            terms=change.parameters,
            roll_out=change.rollout_steps.exists(),
            by=by,
            now=now,
            undoes=change.pk,
        )
