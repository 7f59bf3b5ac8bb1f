"""What people do to a change: agree to it, pause, resume, stop or abort what runs, call it off, take it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from dashboards.changes import networking_plans, policy_plans
from fleet.changes import Refused, engine, lease
from fleet.changes.campaigns import campaigns
from fleet.changes.engine import By
from fleet.changes.networking import revisions
from fleet.changes.policies import desired, rollouts
from fleet.models.changes import Change
from fleet.vocabulary.actions import of_change
from fleet.vocabulary.changes import OCCUPYING, ChangeKind, ChangeState

#: What people do to a change that runs, and the state that it moves to.
DOINGS: Mapping[str, ChangeState] = {
    "pause": ChangeState.PAUSED,
    "resume": ChangeState.RUNNING,
    "stop": ChangeState.CANCELLED,
    "abort": ChangeState.CANCELLED,
}


#: What a plan of a kind stands on; a campaign's list is frozen, and stands on nothing that somebody may write.
_STANDS: Mapping[str, Callable[[Change], None]] = {
    ChangeKind.NETWORKING_CONFIG: revisions.must_stand,
    ChangeKind.POLICY: desired.must_stand,
}


def confirm(change: Change, by: By, *, reason: str, typed: str, now: datetime) -> Change:
    """Agree to a plan. Raises Refused with problems by field, and Stale when it does not stand any more."""
    stands = _STANDS.get(change.kind, lambda _: None)
    return engine.confirm(change, by, reason=reason, typed=typed, now=now, stands=stands)


def do(change: Change, what: str, by: By, now: datetime) -> Change:
    """Do it, one of DOINGS. Raises Refused when it cannot be done to this change."""
    action = of_change(change.kind, DOINGS[what])
    if change.kind == ChangeKind.NETWORKING_CONFIG:
        engine.refuse(by, action, change.cluster_id, "there is no such thing to do", now)
        raise Refused("there is no such thing to do to this change")
    if change.kind == ChangeKind.RECONNECT:
        return _CAMPAIGN[what](change, by, now)
    if what == "pause":
        return campaigns.pause(change, by, now)
    if what == "resume":
        return campaigns.resume(change, by, now, along=rollouts.retry)
    said = f"cancelled by {by.actor.name}; who is under way comes back by itself"
    ended = engine.move(
        change,
        ChangeState.CANCELLED,
        now,
        actor=by.actor,
        detail=said,
        request_id=by.request_id,
        along=lambda row: rollouts.skip_rest(row, said, now.timestamp()),
    )
    lease.revoke(change.cluster_id, change.pk)
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
    return engine.move(change, ChangeState.CANCELLED, now, actor=by.actor, request_id=by.request_id)


def take_back(change: Change, by: By, now: datetime) -> Change:
    """Plan another change that takes one back; nothing happens before that is confirmed. Raises Refused, StateError."""
    if change.kind == ChangeKind.NETWORKING_CONFIG:
        return networking_plans.take_back(change, by, now)
    return policy_plans.take_back(change, by, now)


_CAMPAIGN: Mapping[str, Callable[[Change, By, datetime], Change]] = {
    "pause": campaigns.pause,
    "resume": campaigns.resume,
    "stop": campaigns.stop,
    "abort": campaigns.abort,
}
