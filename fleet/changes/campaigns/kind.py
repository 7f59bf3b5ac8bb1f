"""Reconnect campaigns, as a kind of change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from typing_extensions import override

from fleet import lease
from fleet.audit import By
from fleet.changes import Refused, WrongState, engine
from fleet.changes.base_kind import Action, Kind
from fleet.changes.campaigns import campaigns
from fleet.models.changes import Change
from fleet.models.moments import to_seconds
from fleet.vocabulary.actions import AuditAction
from fleet.vocabulary.changes import OCCUPYING, ChangeState

_TOLD = ("total", "done", "percent", "failed", "ok", "skipped", "remaining", "waits_for")


def _resume(change: Change, by: By, now: datetime) -> Change:
    """Continue, also after a canary that did not move. Raises WrongState."""
    # In `parameters`: a step that is under way writes `progress` when it ends.
    waived = {"canaries_waived": True} if campaigns.counts_of(change).failed else {}
    return engine.move(change, ChangeState.RUNNING, now, by, parameters={**change.parameters, **waived})


def _stop(change: Change, by: By, now: datetime) -> Change:
    """Ask nobody new, watch who was asked, and end. Raises Refused when it does not run."""
    with engine.attempt_on(change, AuditAction.RECONNECT_STOP, by, now):
        if change.state not in OCCUPYING:
            raise Refused(f"it is {change.state}: there is nothing to stop")
        with transaction.atomic():
            # The lease first, as steps of workers do, so that no two wait for each other.
            lease.revoke(change)
            same = Change.objects.filter(pk=change.pk, state=change.state, step=change.step)
            if not same.update(parameters={**change.parameters, "stopped_by": by.actor.name}):
                raise WrongState("the change was paused, resumed or ended meanwhile: look at it again")
            campaigns.skip_unasked(change, f"stopped by {by.actor.name}", to_seconds(now))
        change.refresh_from_db()
    if change.state == ChangeState.PAUSED:
        return _resume(change, by, now)
    return change


def _abort(change: Change, by: By, now: datetime) -> Change:
    """End it now; of those under way nothing more is seen. Raises WrongState."""
    why = f"aborted by {by.actor.name}"
    return engine.abort(change, by, now, why, lambda row: campaigns.close(row, why, to_seconds(now)))


class ReconnectKind(Kind):
    """Agents that are asked to reconnect. The list of agents is frozen with the plan."""

    actions: Mapping[str, Action] = {
        "pause": engine.pause,
        "resume": _resume,
        "stop": _stop,
        "abort": _abort,
    }

    @override
    def progress(self, change: Change, now: float) -> Mapping[str, Any]:
        described = campaigns.described(change, now)
        return {**{name: described[name] for name in _TOLD}, "eta_seconds": described["eta"]}

    @override
    def must_stand(self, change: Change) -> None:
        """Nothing to look for: operators cannot write what the plan was made on."""

    @override
    def cancel(self, change: Change, by: By, now: datetime) -> Change:
        """Cancel one that has not begun: its agents are skipped, and of a mere plan the list is forgotten."""
        if change.state in OCCUPYING:
            return super().cancel(change, by, now)
        why = f"cancelled by {by.actor.name}"
        mere = change.state == ChangeState.PLANNED

        def end_agents(row: Change) -> None:
            if mere:
                row.campaign_agents.all().delete()
            else:
                campaigns.close(row, why, to_seconds(now))

        return engine.move(change, ChangeState.CANCELLED, now, by, along=end_agents)

    @override
    def offers_undo(self, change: Change) -> bool:
        return False
