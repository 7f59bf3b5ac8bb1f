"""The life of a change: each function is one step of it, a compare-and-set on its state. docs/changes.md.

Each writes its row in the audit log, also when it is refused. What differs between kinds of changes is in the folder of
each: `base_kind.py`, `base_runner.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Exists, F

from fleet import lease
from fleet.audit import CONSOLE, Attempt, By, attempted, record
from fleet.changes import Busy, Refused, WrongState
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.vocabulary.actions import AuditAction, AuditOutcome, ChangeStep, of_change
from fleet.vocabulary.changes import (
    FOLLOWERS,
    OCCUPYING,
    PLAN_KEEPS,
    Asks,
    ChangeKind,
    ChangeState,
    asks,
    confirmation_problems,
)


@dataclass(frozen=True, slots=True)
class Draft:
    """A change that is to be planned: what is there, what is wanted, and what was foreseen."""

    kind: ChangeKind
    title: str
    before: Any
    after: Any
    plan: dict[str, Any]
    #: How many agents it touches.
    agents: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)
    undoes: int | None = None


def create(
    cluster: str, draft: Draft, by: By, now: datetime, along: Callable[[Change], object] = lambda _: None
) -> Change:
    """Keep a plan, ready to be confirmed. With a key that was used before, that change is answered.

    What `along` writes of a new change is kept with it or not at all. Raises Refused when the key stands for something
    else.
    """
    row = Cluster.objects.get(pk=cluster)
    action = of_change(draft.kind, ChangeStep.PLAN)
    attempt = by.attempt(action, cluster, draft.title, before=draft.before, after=draft.after)
    with attempted(attempt, lambda: now):
        if (earlier := _of_key(cluster, by)) is not None:
            attempt.about(earlier)
            return _same(earlier, draft)
        change = Change(
            cluster=row,
            kind=draft.kind.value,
            title=draft.title[:200],
            who=by.actor.name[:200],
            actor_kind=by.actor.kind.value,
            user_id=by.actor.user_id,
            before=draft.before,
            after=draft.after,
            plan=draft.plan,
            agents=draft.agents,
            parameters=draft.parameters,
            needs_second=row.second_approver,
            undoes_id=draft.undoes,
            request_id=by.request_id,
            idempotency_key=by.idempotency_key,
            created_at=now,
        )
        try:
            with transaction.atomic():
                change.save(force_insert=True)
                along(change)
        except IntegrityError:
            quicker = _of_key(cluster, by)
            if quicker is None:
                raise
            attempt.about(quicker)
            return _same(quicker, draft)
        attempt.about(change)
    return change


def what_it_asks(change: Change) -> Asks:
    """What confirming it asks for."""
    return asks(
        cluster=change.cluster_id,
        agents=change.agents,
        production=change.cluster.production,
        second_approver=change.needs_second,
    )


def confirm(
    change: Change,
    by: By,
    *,
    reason: str,
    typed: str,
    now: datetime,
    stands: Callable[[Change], object] = lambda _: None,
) -> Change:
    """Agree to the plan. Raises Refused with `problems` by field, WrongState, and what `stands` raises.

    `stands` looks whether a plan still stands on what is there.
    """
    entry = {"reason": reason, "before": change.before, "after": change.after}
    with attempt_on(change, ChangeStep.CONFIRM, by, now, **entry):
        keeps = PLAN_KEEPS[ChangeKind(change.kind)]
        if (now - change.created_at).total_seconds() > keeps:
            raise Refused(
                f"the plan is older than {keeps / 60:.0f} minutes, and the fleet has moved on: plan it again"
            )
        problems = confirmation_problems(what_it_asks(change), reason=reason, typed=typed)
        if problems:
            raise Refused("; ".join(problems.values()), problems)
        if change.state == ChangeState.PLANNED:
            stands(change)
        return _move(
            change,
            ChangeState.CONFIRMED,
            reason=reason.strip(),
            confirmed_at=now,
            confirmed_by_id=by.actor.user_id,
            # The cluster may want two people only since it was planned, or since `change` was read.
            needs_second=change.needs_second
            or Exists(Cluster.objects.filter(pk=change.cluster_id, second_approver=True)),
        )


def approve(change: Change, by: By, *, now: datetime) -> Change:
    """Agree as the second person. Raises Refused to whoever planned or confirmed it, WrongState.

    Who that is, is decided in the UPDATE: `change` may have been read before somebody confirmed it.
    """
    approver = by.actor.user_id
    with attempt_on(change, ChangeStep.APPROVE, by, now):
        waiting = Change.objects.filter(
            pk=change.pk, state=ChangeState.CONFIRMED.value, needs_second=True, approved_by=""
        )
        won = 0
        if approver is not None:
            by_another = waiting.exclude(user_id=approver).exclude(confirmed_by_id=approver)
            won = by_another.update(approved_by=by.actor.name[:200], step=F("step") + 1)
        change.refresh_from_db()
        if not won:
            if not change.needs_second:
                raise Refused("this change asks for no second person")
            if approver is None or approver in (change.user_id, change.confirmed_by_id):
                raise Refused("a second person must agree: not who made the change, nor who confirmed it")
            raise WrongState(f"the change is {_said(change)} already")
    return change


def ready(change: Change) -> bool:
    """Whether it may start: confirmed, and agreed to by a second person where that is asked for."""
    return change.state == ChangeState.CONFIRMED and not (change.needs_second and not change.approved_by)


def start(change: Change, now: datetime) -> Change:
    """Begin. Raises Busy while another change has the cluster, WrongState, Refused without the second person."""
    if (busy := busy_sentence(change.cluster_id)) and change.detail == busy:
        # Workers try every second; the log has said so once.
        raise Busy(busy)
    with attempt_on(change, ChangeStep.START, CONSOLE, now):
        if change.state == ChangeState.CONFIRMED and not ready(change):
            raise Refused("a second person has not agreed yet")
        try:
            return _move(change, ChangeState.RUNNING, started_at=change.started_at or now)
        except IntegrityError:
            raise Busy(busy_sentence(change.cluster_id)) from None


def move(
    change: Change,
    to: ChangeState,
    now: datetime,
    by: By = CONSOLE,
    *,
    detail: str = "",
    reason: str = "",
    log_before: Any = None,
    log_after: Any = None,
    along: Callable[[Change], object] = lambda _: None,
    **fields: Any,
) -> Change:
    """Bring it to another state: pause, resume, cancel, verify, fail, undo. Raises WrongState.

    What `along` writes is written with it or not at all: rows of a change that is over must not stay open when the
    worker dies in between. `fields` are columns of `Change` to write with it; `reason`, `log_before` and `log_after`
    are for the log, whose action is `KIND.STATE`.
    """
    entry = {"detail": detail, "reason": reason, "before": log_before, "after": log_after}
    if to.final or to is ChangeState.VERIFYING:
        fields.setdefault("ended_at", change.ended_at or now)
    with attempt_on(change, to, by, now, **entry):
        return _move(change, to, along, detail=detail, **fields)


def take_back(change: Change, now: datetime) -> None:
    """Mark the change that a change was made to undo, once that is done, as undone."""
    undone = change.undoes
    if undone is not None and ChangeState.UNDONE in followers(undone):
        move(undone, ChangeState.UNDONE, now, detail=f"taken back by change {change.pk}")


def pause(change: Change, by: By, now: datetime) -> Change:
    """Begin nothing new until it is resumed; what is in progress is still watched. Raises WrongState."""
    return move(change, ChangeState.PAUSED, now, by, detail=f"paused by {by.actor.name}")


def abort(change: Change, by: By, now: datetime, why: str, along: Callable[[Change], object]) -> Change:
    """End it at once, and with it the step that is under way. `along`: as of `move`. Raises WrongState."""
    ended = move(change, ChangeState.CANCELLED, now, by, detail=why, along=along)
    lease.revoke(change)
    return ended


def followers(change: Change) -> frozenset[ChangeState]:
    """The states it may come to from where it is."""
    return FOLLOWERS[ChangeState(change.state)]


def note(change: Change, **fields: Any) -> Change:
    """Write progress or outcome without a change of state and without a row in the log."""
    Change.objects.filter(pk=change.pk).update(**fields)
    change.refresh_from_db()
    return change


def occupant(cluster: str) -> Change | None:
    """The change that has a cluster to itself now; None when none has."""
    return Change.objects.filter(cluster=cluster, state__in=[state.value for state in OCCUPYING]).first()


def busy_sentence(cluster: str) -> str:
    """Who has the cluster, as a sentence; empty when nobody has."""
    other = occupant(cluster)
    if other is None:
        return ""
    return f"one change at a time: {other.who} has {cluster} with change {other.pk}, {other.title} ({other.state})"


def attempt_on(
    change: Change, action: ChangeStep | ChangeState | AuditAction, by: By, now: datetime, **fields: Any
) -> AbstractContextManager[Attempt]:
    """Write a row about what the block does to a change, however it ends; `fields` are those of Attempt."""
    name = action if isinstance(action, AuditAction) else of_change(change.kind, action)
    attempt = by.attempt(name, **fields)
    attempt.about(change)
    attempt.request_id = by.request_id or change.request_id
    return attempted(attempt, lambda: now)


@contextmanager
def plan_attempt(
    kind: ChangeKind | str, cluster: str, by: By, now: datetime, after: Any = None
) -> Iterator[None]:
    """Write a row in the log when the plan that the block makes is refused. Errors go on."""
    try:
        yield
    except Refused as error:
        if not error.logged:
            error.logged = True
            action = of_change(kind, ChangeStep.PLAN)
            record(by.attempt(action, cluster, after=after, detail=str(error)), AuditOutcome.REFUSED, now)
        raise


def _move(
    change: Change, to: ChangeState, along: Callable[[Change], object] = lambda _: None, **fields: Any
) -> Change:
    """The compare-and-set: only from the state and the step that `change` has in memory, so of two one wins.

    The step as well: a change that was paused and resumed since is in the same state, but not where it was seen.
    """
    seen = ChangeState(change.state)
    if to not in FOLLOWERS[seen]:
        raise WrongState(f"the change is {_said(change)}: it cannot become {to.value}")
    with transaction.atomic():
        won = Change.objects.filter(pk=change.pk, state=seen.value, step=change.step).update(
            state=to.value, step=F("step") + 1, **fields
        )
        change.refresh_from_db()
        if won:
            along(change)
    if not won:
        raise WrongState(f"somebody was quicker: the change is {_said(change)} by now")
    return change


def _said(change: Change) -> str:
    return f"{change.state} and approved" if change.approved_by and not change.started_at else change.state


def _of_key(cluster: str, by: By) -> Change | None:
    if not by.idempotency_key:
        return None
    return Change.objects.filter(cluster=cluster, idempotency_key=by.idempotency_key).first()


def _same(earlier: Change, draft: Draft) -> Change:
    if (earlier.kind, earlier.after, earlier.parameters) != (draft.kind.value, draft.after, draft.parameters):
        raise Refused(f"the idempotency key was used for another change, {earlier.pk}: {earlier.title}")
    return earlier
