"""Reconnect campaigns, as a kind of change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from typing_extensions import override

from fleet import lease
from fleet.audit import RequestActor
from fleet.changes import ChangeRefusedError, WrongStateError, engine
from fleet.changes.base_kind import ChangeAction, Kind
from fleet.changes.campaigns import campaigns
from fleet.models.changes import Change
from fleet.models.moments import to_seconds
from fleet.vocabulary.actions import AuditAction
from fleet.vocabulary.changes import EXCLUSIVE_STATES, ChangeState


def _resume(change: Change, actor: RequestActor, now: datetime) -> Change:
    """Resume a campaign, also after a canary failed. Raises WrongStateError."""
    # In `parameters`, because the step that a worker is making writes `progress` when it ends.
    has_failures = campaigns.counts_of(change).failed_count > 0
    waiver = {"canaries_waived": True, "resumed_by": actor.identity.name} if has_failures else {}
    return engine.transition(
        change, ChangeState.RUNNING, now, actor, parameters={**change.parameters, **waiver}
    )


def _stop(change: Change, actor: RequestActor, now: datetime) -> Change:
    """Start no further agents, and end when those in progress have a result.

    Raises ChangeRefusedError when it is not running.
    """
    with engine.record_attempt_on(change, AuditAction.RECONNECT_STOP, actor, now):
        if change.state not in EXCLUSIVE_STATES:
            raise ChangeRefusedError(
                f"the campaign is {change.state}: only a running or paused campaign can be stopped"
            )
        with transaction.atomic():
            # The lease first, as in the steps of workers, so that no deadlock can arise.
            lease.revoke(change)
            unchanged_rows = Change.objects.filter(pk=change.pk, state=change.state, step=change.step)
            if not unchanged_rows.update(parameters={**change.parameters, "stopped_by": actor.identity.name}):
                raise WrongStateError(
                    "conflict: the campaign was paused, resumed or ended in the meantime. Reload it"
                )
            campaigns.skip_pending_agents(change, f"stopped by {actor.identity.name}", to_seconds(now))
        change.refresh_from_db()
    if change.state == ChangeState.PAUSED:
        return _resume(change, actor, now)
    return change


def _abort(change: Change, actor: RequestActor, now: datetime) -> Change:
    """End a campaign at once; the results of agents in progress stay unknown. Raises WrongStateError."""
    reason = f"aborted by {actor.identity.name}"
    return engine.abort(
        change, actor, now, reason, lambda row: campaigns.close_campaign(row, reason, to_seconds(now))
    )


class ReconnectKind(Kind):
    """A reconnect campaign. The list of target agents is fixed with the plan."""

    undo_refusal = "agents chose their new instance. Start another campaign to move them again"

    actions: Mapping[str, ChangeAction] = {
        "pause": engine.pause,
        "resume": _resume,
        "stop": _stop,
        "abort": _abort,
    }

    @override
    def progress_of(self, change: Change, now: float) -> Mapping[str, Any]:
        return campaigns.progress_of(change, now)

    @override
    def require_current_plan(self, change: Change) -> None:
        """Raise nothing: no operator can change what the plan is based on."""

    @override
    def cancel(self, change: Change, actor: RequestActor, now: datetime) -> Change:
        """Cancel a campaign that has not started, and skip its agents; of an unconfirmed plan, delete them."""
        if change.state in EXCLUSIVE_STATES:
            return super().cancel(change, actor, now)
        reason = f"cancelled by {actor.identity.name}"
        is_only_plan = change.state == ChangeState.PLANNED

        def end_agents(row: Change) -> None:
            if is_only_plan:
                row.campaign_agents.all().delete()
            else:
                campaigns.close_campaign(row, reason, to_seconds(now))

        return engine.transition(change, ChangeState.CANCELLED, now, actor, write_related_rows=end_agents)

    @override
    def can_undo(self, change: Change) -> bool:
        return False
