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
from fleet.audit import CONSOLE_ACTOR, Attempt, RequestActor, record_outcome, record
from fleet.changes import ClusterBusyError, ChangeRefusedError, WrongStateError
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.vocabulary.actions import AuditAction, AuditOutcome, ChangeStep, action_of_change
from fleet.vocabulary.changes import (
    TRANSITIONS,
    EXCLUSIVE_STATES,
    PLAN_TTL_SECONDS,
    ConfirmationRequirements,
    ChangeKind,
    ChangeState,
    confirmation_requirements_of,
    confirmation_problems,
)


@dataclass(frozen=True, slots=True)
class ChangeDraft:
    """A change that is to be planned: what is there, what is wanted, and what was foreseen."""

    kind: ChangeKind
    title: str
    before: Any
    after: Any
    plan: dict[str, Any]
    #: How many agents it touches.
    agent_count: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)
    undone_change_id: int | None = None


def create_change(
    cluster: str, draft: ChangeDraft, actor: RequestActor, now: datetime, in_transaction: Callable[[Change], object] = lambda _: None
) -> Change:
    """Keep a plan, ready to be confirmed. With a key that was used before, that change is answered.

    What `along` writes of a new change is kept with it or not at all. Raises Refused when the key stands for something
    else.
    """
    row = Cluster.objects.get(pk=cluster)
    action = action_of_change(draft.kind, ChangeStep.PLAN)
    attempt = actor.create_attempt(action, cluster, draft.title, before=draft.before, after=draft.after)
    with record_outcome(attempt, lambda: now):
        if (earlier_change := _find_by_key(cluster, actor)) is not None:
            attempt.set_change(earlier_change)
            return _require_same_draft(earlier_change, draft)
        change = Change(
            cluster=row,
            kind=draft.kind.value,
            title=draft.title[:200],
            who=actor.identity.name[:200],
            actor_kind=actor.identity.kind.value,
            user_id=actor.identity.user_id,
            before=draft.before,
            after=draft.after,
            plan=draft.plan,
            agents=draft.agent_count,
            parameters=draft.parameters,
            needs_second=row.second_approver,
            undoes_id=draft.undone_change_id,
            request_id=actor.request_id,
            idempotency_key=actor.idempotency_key,
            created_at=now,
        )
        try:
            with transaction.atomic():
                change.save(force_insert=True)
                in_transaction(change)
        except IntegrityError:
            concurrent_change = _find_by_key(cluster, actor)
            if concurrent_change is None:
                raise
            attempt.set_change(concurrent_change)
            return _require_same_draft(concurrent_change, draft)
        attempt.set_change(change)
    return change


def requirements_of(change: Change) -> ConfirmationRequirements:
    """What confirming it asks for."""
    return confirmation_requirements_of(
        cluster=change.cluster_id,
        agents=change.agents,
        production=change.cluster.production,
        second_approver=change.needs_second,
    )


def confirm(
    change: Change,
    actor: RequestActor,
    *,
    reason: str,
    typed_name: str,
    now: datetime,
    check_plan: Callable[[Change], object] = lambda _: None,
) -> Change:
    """Agree to the plan. Raises Refused with `problems` by field, WrongState, and what `stands` raises.

    `stands` looks whether a plan still stands on what is there.
    """
    attempt_fields = {"reason": reason, "before": change.before, "after": change.after}
    with record_attempt_on(change, ChangeStep.CONFIRM, actor, now, **attempt_fields):
        ttl_seconds = PLAN_TTL_SECONDS[ChangeKind(change.kind)]
        if (now - change.created_at).total_seconds() > ttl_seconds:
            raise ChangeRefusedError(
                f"the plan is older than {ttl_seconds / 60:.0f} minutes, and the fleet has moved on: plan it again"
            )
        problems = confirmation_problems(requirements_of(change), reason=reason, typed_name=typed_name)
        if problems:
            raise ChangeRefusedError("; ".join(problems.values()), problems)
        if change.state == ChangeState.PLANNED:
            check_plan(change)
        return _transition(
            change,
            ChangeState.CONFIRMED,
            reason=reason.strip(),
            confirmed_at=now,
            confirmed_by_id=actor.identity.user_id,
            # The cluster may want two people only since it was planned, or since `change` was read.
            needs_second=change.needs_second
            or Exists(Cluster.objects.filter(pk=change.cluster_id, second_approver=True)),
        )


def approve(change: Change, actor: RequestActor, *, now: datetime) -> Change:
    """Agree as the second person. Raises Refused to whoever planned or confirmed it, WrongState.

    Who that is, is decided in the UPDATE: `change` may have been read before somebody confirmed it.
    """
    approver = actor.identity.user_id
    with record_attempt_on(change, ChangeStep.APPROVE, actor, now):
        pending_rows = Change.objects.filter(
            pk=change.pk, state=ChangeState.CONFIRMED.value, needs_second=True, approved_by=""
        )
        updated_count = 0
        if approver is not None:
            other_rows = pending_rows.exclude(user_id=approver).exclude(confirmed_by_id=approver)
            updated_count = other_rows.update(approved_by=actor.identity.name[:200], step=F("step") + 1)
        change.refresh_from_db()
        if not updated_count:
            if not change.needs_second:
                raise ChangeRefusedError("this change asks for no second person")
            if approver is None or approver in (change.user_id, change.confirmed_by_id):
                raise ChangeRefusedError("a second person must agree: not who made the change, nor who confirmed it")
            raise WrongStateError(f"the change is {_state_text_of(change)} already")
    return change


def is_ready(change: Change) -> bool:
    """Whether it may start: confirmed, and agreed to by a second person where that is asked for."""
    return change.state == ChangeState.CONFIRMED and not (change.needs_second and not change.approved_by)


def start(change: Change, now: datetime) -> Change:
    """Begin. Raises Busy while another change has the cluster, WrongState, Refused without the second person."""
    if (busy_reason := describe_running_change(change.cluster_id)) and change.detail == busy_reason:
        # Workers try every second; the log has said so once.
        raise ClusterBusyError(busy_reason)
    with record_attempt_on(change, ChangeStep.START, CONSOLE_ACTOR, now):
        if change.state == ChangeState.CONFIRMED and not is_ready(change):
            raise ChangeRefusedError("a second person has not agreed yet")
        try:
            return _transition(change, ChangeState.RUNNING, started_at=change.started_at or now)
        except IntegrityError:
            raise ClusterBusyError(describe_running_change(change.cluster_id)) from None


def transition(
    change: Change,
    state: ChangeState,
    now: datetime,
    actor: RequestActor = CONSOLE_ACTOR,
    *,
    detail: str = "",
    reason: str = "",
    log_before: Any = None,
    log_after: Any = None,
    in_transaction: Callable[[Change], object] = lambda _: None,
    **fields: Any,
) -> Change:
    """Bring it to another state: pause, resume, cancel, verify, fail, undo. Raises WrongState.

    What `along` writes is written with it or not at all: rows of a change that is over must not stay open when the
    worker dies in between. `fields` are columns of `Change` to write with it; `reason`, `log_before` and `log_after`
    are for the log, whose action is `KIND.STATE`.
    """
    attempt_fields = {"detail": detail, "reason": reason, "before": log_before, "after": log_after}
    if state.is_final or state is ChangeState.VERIFYING:
        fields.setdefault("ended_at", change.ended_at or now)
    with record_attempt_on(change, state, actor, now, **attempt_fields):
        return _transition(change, state, in_transaction, detail=detail, **fields)


def mark_undone(change: Change, now: datetime) -> None:
    """Mark the change that a change was made to undo, once that is done, as undone."""
    undone_change = change.undoes
    if undone_change is not None and ChangeState.UNDONE in next_states_of(undone_change):
        transition(undone_change, ChangeState.UNDONE, now, detail=f"taken back by change {change.pk}")


def pause(change: Change, actor: RequestActor, now: datetime) -> Change:
    """Begin nothing new until it is resumed; what is in progress is still watched. Raises WrongState."""
    return transition(change, ChangeState.PAUSED, now, actor, detail=f"paused by {actor.identity.name}")


def abort(change: Change, actor: RequestActor, now: datetime, reason: str, in_transaction: Callable[[Change], object]) -> Change:
    """End it at once, and with it the step that is under way. `along`: as of `move`. Raises WrongState."""
    cancelled_change = transition(change, ChangeState.CANCELLED, now, actor, detail=reason, in_transaction=in_transaction)
    lease.revoke(change)
    return cancelled_change


def next_states_of(change: Change) -> frozenset[ChangeState]:
    """The states it may come to from where it is."""
    return TRANSITIONS[ChangeState(change.state)]


def update_change(change: Change, **fields: Any) -> Change:
    """Write progress or outcome without a change of state and without a row in the log."""
    Change.objects.filter(pk=change.pk).update(**fields)
    change.refresh_from_db()
    return change


def find_running_change(cluster: str) -> Change | None:
    """The change that has a cluster to itself now; None when none has."""
    return Change.objects.filter(cluster=cluster, state__in=[state.value for state in EXCLUSIVE_STATES]).first()


def describe_running_change(cluster: str) -> str:
    """Who has the cluster, as a sentence; empty when nobody has."""
    running_change = find_running_change(cluster)
    if running_change is None:
        return ""
    return f"one change at a time: {running_change.who} has {cluster} with change {running_change.pk}, {running_change.title} ({running_change.state})"


def record_attempt_on(
    change: Change, action: ChangeStep | ChangeState | AuditAction, actor: RequestActor, now: datetime, **fields: Any
) -> AbstractContextManager[Attempt]:
    """Write a row about what the block does to a change, however it ends; `fields` are those of Attempt."""
    name = action if isinstance(action, AuditAction) else action_of_change(change.kind, action)
    attempt = actor.create_attempt(name, **fields)
    attempt.set_change(change)
    attempt.request_id = actor.request_id or change.request_id
    return record_outcome(attempt, lambda: now)


@contextmanager
def record_refused_plan(
    kind: ChangeKind | str, cluster: str, actor: RequestActor, now: datetime, after: Any = None
) -> Iterator[None]:
    """Write a row in the log when the plan that the block makes is refused. Errors go on."""
    try:
        yield
    except ChangeRefusedError as error:
        if not error.is_logged:
            error.is_logged = True
            action = action_of_change(kind, ChangeStep.PLAN)
            record(actor.create_attempt(action, cluster, after=after, detail=str(error)), AuditOutcome.REFUSED, now)
        raise


def _transition(
    change: Change, state: ChangeState, in_transaction: Callable[[Change], object] = lambda _: None, **fields: Any
) -> Change:
    """The compare-and-set: only from the state and the step that `change` has in memory, so of two one wins.

    The step as well: a change that was paused and resumed since is in the same state, but not where it was seen.
    """
    last_state = ChangeState(change.state)
    if state not in TRANSITIONS[last_state]:
        raise WrongStateError(f"the change is {_state_text_of(change)}: it cannot become {state.value}")
    with transaction.atomic():
        updated_count = Change.objects.filter(pk=change.pk, state=last_state.value, step=change.step).update(
            state=state.value, step=F("step") + 1, **fields
        )
        change.refresh_from_db()
        if updated_count:
            in_transaction(change)
    if not updated_count:
        raise WrongStateError(f"somebody was quicker: the change is {_state_text_of(change)} by now")
    return change


def _state_text_of(change: Change) -> str:
    return f"{change.state} and approved" if change.approved_by and not change.started_at else change.state


def _find_by_key(cluster: str, actor: RequestActor) -> Change | None:
    if not actor.idempotency_key:
        return None
    return Change.objects.filter(cluster=cluster, idempotency_key=actor.idempotency_key).first()


def _require_same_draft(earlier_change: Change, draft: ChangeDraft) -> Change:
    if (earlier_change.kind, earlier_change.after, earlier_change.parameters) != (draft.kind.value, draft.after, draft.parameters):
        raise ChangeRefusedError(f"the idempotency key was used for another change, {earlier_change.pk}: {earlier_change.title}")
    return earlier_change
