"""What people do to a rollout or a campaign that runs: pause, resume, stop, abort."""

from __future__ import annotations

from datetime import datetime

from fleet.control import Refused, campaigns, changes, lease, rollouts
from fleet.control.changes import By
from fleet.domain.changes import OCCUPYING, ChangeKind, ChangeState
from fleet.models.changes import Change

DOINGS = ("pause", "resume", "stop", "abort")


def do(change: Change, what: str, by: By, now: datetime) -> Change:
    """Do it. Raises Refused when it cannot be done to this change."""
    if change.kind == ChangeKind.NETWORKING_CONFIG or what not in DOINGS:
        changes.refuse(
            by, f"{change.kind}.{what}"[:64], change.cluster_id, "there is no such thing to do", now
        )
        raise Refused("there is no such thing to do to this change")
    if change.kind == ChangeKind.RECONNECT:
        return _CAMPAIGN[what](change, by, now)
    if what == "pause":
        return campaigns.pause(change, by, now)
    if what == "resume":
        rollouts.retry(change)
        return campaigns.resume(change, by, now)
    said = f"cancelled by {by.actor.name}; who is under way comes back by itself"
    ended = changes.move(
        change,
        ChangeState.CANCELLED,
        now,
        actor=by.actor,
        detail=said,
        request_id=by.request_id,
        along=lambda row: rollouts.skip_rest(row, said, now.timestamp()),
    )
    lease.revoke(change.cluster_id)
    return ended


def cancel(change: Change, by: By, now: datetime) -> Change:
    """Call it off: what has not begun is cancelled, a rollout or a campaign that runs is aborted. Raises Refused."""
    if change.state in OCCUPYING:
        if change.kind == ChangeKind.NETWORKING_CONFIG:
            # Of a write that is under way nobody can say whether it happened.
            raise Refused("it is being written: it ends by itself within a minute")
        return do(change, "abort", by, now)
    if change.kind == ChangeKind.RECONNECT:
        return campaigns.call_off(change, by, now)
    return changes.move(change, ChangeState.CANCELLED, now, actor=by.actor, request_id=by.request_id)


_CAMPAIGN = {
    "pause": campaigns.pause,
    "resume": campaigns.resume,
    "stop": campaigns.stop,
    "abort": campaigns.abort,
}
