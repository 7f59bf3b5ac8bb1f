"""The lifecycle of a change: each function is one transition, a compare-and-set on its state.

docs/reference/changes.md.

Each writes an entry to the audit log, also when it is refused. What differs between kinds of changes is in the folder
of each kind: `base_kind.py`, `base_runner.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, Q, QuerySet

from fleet import lease
from fleet.audit import CONSOLE_ACTOR, Attempt, RequestActor, record_outcome, write_entry
from fleet.changes import ChangeRefusedError, ClusterBusyError, WrongStateError
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.vocabulary.actions import AuditAction, AuditOutcome, ChangeStep, action_of_change
from fleet.vocabulary.changes import (
    EXCLUSIVE_STATES,
    PLAN_TTL_SECONDS,
    TRANSITIONS,
    ChangeKind,
    ChangeState,
    ConfirmationRequirements,
    confirmation_requirements_of,
    find_confirmation_problems,
)


@dataclass(frozen=True, slots=True)
class ChangeDraft:
    """A change before it is stored: the values before and after, and the plan."""

    kind: ChangeKind
    title: str
    before: Any
    after: Any
    plan: dict[str, Any]
    #: Number of affected agents.
    affected_count: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)
    undone_change_id: int | None = None


def create_change(
    cluster: str,
    draft: ChangeDraft,
    actor: RequestActor,
    now: datetime,
    write_related_rows: Callable[[Change], object] = lambda _: None,
) -> Change:
    """Store a plan and return the change; for an idempotency key that was used before, return the earlier change.

    A dry run stores nothing and writes no audit entry: the change that it returns has no number. `write_related_rows`
    runs in the transaction of a new change. Raises ChangeRefusedError when the key belongs to a different change.
    """
    cluster_row = Cluster.objects.get(pk=cluster)
    if actor.is_dry_run:
        return _new_change(
            cluster_row, draft, actor, review_required=cluster_row.review_required, created_at=now
        )
    action = action_of_change(draft.kind, ChangeStep.PLAN)
    attempt = actor.create_attempt(action, cluster, draft.title, before=draft.before, after=draft.after)
    with record_outcome(attempt, lambda: now):
        change = _insert_change(
            cluster_row,
            draft,
            actor,
            write_related_rows,
            review_required=cluster_row.review_required,
            created_at=now,
        )
        attempt.set_change(change)
    return change


def create_request(
    cluster: str,
    draft: ChangeDraft,
    actor: RequestActor,
    reason: str,
    now: datetime,
    state: ChangeState,
    write_related_rows: Callable[[Change], object] = lambda _: None,
) -> Change:
    """Store a change that one request carries out, without a plan to confirm, and return it; see `create_change`.

    `state`: VERIFYING when `write_related_rows` carries the change out, CONFIRMED when a worker does. The caller writes
    the audit entry, about the object of the request. Raises ChangeRefusedError.
    """
    if state is ChangeState.CONFIRMED:
        _check_is_polled(cluster)
    return _insert_change(
        Cluster.objects.get(pk=cluster),
        draft,
        actor,
        write_related_rows,
        state=state.value,
        reason=reason.strip(),
        created_at=now,
        confirmed_at=now,
        confirmed_by_id=actor.identity.user_id,
        step=2,
        **({} if state is ChangeState.CONFIRMED else {"started_at": now, "ended_at": now}),
    )


def _check_is_polled(cluster: str) -> None:
    """Raise ChangeRefusedError for a paused cluster, to whose instances no worker connects."""
    if Cluster.objects.filter(pk=cluster, is_paused=True).exists():
        raise ChangeRefusedError("the cluster is paused, so Refloat does not connect to it. Resume it first")


def _insert_change(
    cluster: Cluster,
    draft: ChangeDraft,
    actor: RequestActor,
    write_related_rows: Callable[[Change], object],
    **columns: Any,
) -> Change:
    """Store a change and its related rows in one transaction; return the earlier one with the idempotency key.

    Raises ChangeRefusedError when the key belongs to a different change.
    """
    if (earlier_change := _find_by_idempotency_key(cluster.pk, actor)) is not None:
        return _require_same_draft(earlier_change, draft)
    change = _new_change(cluster, draft, actor, **columns)
    try:
        with transaction.atomic():
            change.save(force_insert=True)
            write_related_rows(change)
    except IntegrityError:
        concurrent_change = _find_by_idempotency_key(cluster.pk, actor)
        if concurrent_change is None:
            raise
        return _require_same_draft(concurrent_change, draft)
    return change


def _new_change(cluster: Cluster, draft: ChangeDraft, actor: RequestActor, **columns: Any) -> Change:
    """Return a change that is not stored yet."""
    return Change(
        cluster=cluster,
        kind=draft.kind.value,
        title=draft.title[:200],
        actor_name=actor.identity.name[:200],
        actor_kind=actor.identity.kind.value,
        user_id=actor.identity.user_id,
        before=draft.before,
        after=draft.after,
        plan=draft.plan,
        affected_count=draft.affected_count,
        parameters=draft.parameters,
        undoes_id=draft.undone_change_id,
        request_id=actor.request_id,
        idempotency_key=actor.idempotency_key,
        **columns,
    )


def undo_title_of(change_id: int) -> str:
    """Return the title of a change that undoes another one."""
    return f"Undo “{Change.objects.only('title').get(pk=change_id).title}”"


def document_of(change: Change) -> Mapping[str, Any]:
    """Return the values after a change, whose kind stores a mapping."""
    return change.after or {}


def requirements_of(change: Change) -> ConfirmationRequirements:
    """Return what the confirmation of a change requires."""
    return confirmation_requirements_of(
        cluster=change.cluster_id,
        affected_count=change.affected_count,
        is_production=change.cluster.production,
        review_required=change.review_required,
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
    """Confirm a plan, return the change.

    Raises ChangeRefusedError with `problems` by field, WrongStateError, and what `check_plan` does. `check_plan` raises
    StaleRevisionError when the plan is out of date.
    """
    attempt_fields = {"reason": reason, "before": change.before, "after": change.after}
    with record_attempt_on(change, ChangeStep.CONFIRM, actor, now, **attempt_fields):
        _check_is_polled(change.cluster_id)
        ttl_seconds = PLAN_TTL_SECONDS[ChangeKind(change.kind)]
        if (now - change.created_at).total_seconds() > ttl_seconds:
            raise ChangeRefusedError(
                f"out of date: the plan is older than {ttl_seconds / 60:.0f} min. Preview the change again"
            )
        problems = find_confirmation_problems(requirements_of(change), reason=reason, typed_name=typed_name)
        if problems:
            raise ChangeRefusedError("; ".join(problems.values()), problems)
        if change.state == ChangeState.PLANNED:
            check_plan(change)
        return _compare_and_set_state(
            change,
            ChangeState.CONFIRMED,
            reason=reason.strip(),
            confirmed_at=now,
            confirmed_by_id=actor.identity.user_id,
            # The cluster may require a review only since the plan was made, or since `change` was read.
            review_required=change.review_required
            or Exists(Cluster.objects.filter(pk=change.cluster_id, review_required=True)),
        )


def approve(change: Change, actor: RequestActor, *, now: datetime) -> Change:
    """Approve a change as the second person.

    Raises ChangeRefusedError for its author and for who confirmed it, WrongStateError. The UPDATE
    checks who confirmed it, because `change` may be outdated.
    """
    approver = actor.identity.user_id
    with record_attempt_on(change, ChangeStep.APPROVE, actor, now):
        approvable_rows = Change.objects.filter(
            pk=change.pk, state=ChangeState.CONFIRMED.value, review_required=True, approved_by=""
        )
        updated_count = 0
        if approver is not None:
            rows_of_others = approvable_rows.exclude(user_id=approver).exclude(confirmed_by_id=approver)
            updated_count = rows_of_others.update(approved_by=actor.identity.name[:200], step=F("step") + 1)
        change.refresh_from_db()
        if not updated_count:
            if not change.review_required:
                raise ChangeRefusedError("no review is required for this change")
            if approver is None or approver in (change.user_id, change.confirmed_by_id):
                raise ChangeRefusedError(
                    "review required: neither the author nor the person who confirmed the change can approve it"
                )
            raise WrongStateError(f"the change is already {_state_text_of(change)}")
    return change


def can_start(change: Change) -> bool:
    """Return whether a change may start: it is confirmed, and approved where a review is required."""
    return change.state == ChangeState.CONFIRMED and not (change.review_required and not change.approved_by)


def start(change: Change, now: datetime) -> Change:
    """Start a change and return it.

    Raises ClusterBusyError while another change runs, WrongStateError, ChangeRefusedError without an approval.
    """
    if (busy_reason := describe_running_change(change.cluster_id)) and change.detail == busy_reason:
        # Workers try every second; the audit log has an entry about it already.
        raise ClusterBusyError(busy_reason)
    with record_attempt_on(change, ChangeStep.START, CONSOLE_ACTOR, now):
        if change.state == ChangeState.CONFIRMED and not can_start(change):
            raise ChangeRefusedError("review required: no second person has approved the change yet")
        try:
            return _compare_and_set_state(change, ChangeState.RUNNING, started_at=change.started_at or now)
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
    write_related_rows: Callable[[Change], object] = lambda _: None,
    **fields: Any,
) -> Change:
    """Move a change to another state (paused, running, cancelled, verified, …) and return it. Raises WrongStateError.

    `write_related_rows` runs in the same transaction, so that a worker that dies leaves none of an ended change open.
    `fields`: columns of `Change` to write too. `reason`, `log_before` and `log_after` go to the audit log, with the
    action `KIND.STATE`.
    """
    attempt_fields = {"detail": detail, "reason": reason, "before": log_before, "after": log_after}
    if state.is_final or state is ChangeState.VERIFYING:
        fields.setdefault("ended_at", change.ended_at or now)
    with record_attempt_on(change, state, actor, now, **attempt_fields):
        return _compare_and_set_state(change, state, write_related_rows, detail=detail, **fields)


def select_carried_out(cluster: str) -> QuerySet[Change]:
    """Return the changes that were carried out, at least in part: what every page counts as changes.

    Their `started_at` is set when Refloat begins to carry them out: plans and cancelled plans have none.
    """
    return Change.objects.filter(cluster=cluster, started_at__isnull=False)


def select_carried_out_between(cluster: str, since: datetime, until: datetime) -> QuerySet[Change]:
    """Return the changes that were carried out at any time from `since` to `until`."""
    rows = select_carried_out(cluster).filter(started_at__lte=until)
    return rows.filter(Q(ended_at=None) | Q(ended_at__gte=since))


def mark_original_undone(change: Change, now: datetime) -> None:
    """Mark the original of an undo change as undone; do nothing where `change` undoes none."""
    original_change = change.undoes
    if original_change is not None and ChangeState.UNDONE in next_states_of(original_change):
        transition(original_change, ChangeState.UNDONE, now, detail=f"undone by change {change.pk}")


def pause(change: Change, actor: RequestActor, now: datetime) -> Change:
    """Pause a change: start no further agents or instances; those in progress go on. Raises WrongStateError."""
    return transition(change, ChangeState.PAUSED, now, actor, detail=f"paused by {actor.identity.name}")


def abort(
    change: Change,
    actor: RequestActor,
    now: datetime,
    reason: str,
    write_related_rows: Callable[[Change], object],
) -> Change:
    """End a change at once, with the step that a worker is making. `write_related_rows`: see `transition`.

    Raises WrongStateError.
    """
    cancelled_change = transition(
        change, ChangeState.CANCELLED, now, actor, detail=reason, write_related_rows=write_related_rows
    )
    lease.revoke(change)
    return cancelled_change


def next_states_of(change: Change) -> frozenset[ChangeState]:
    """Return the states that may follow the present state of a change."""
    return TRANSITIONS[ChangeState(change.state)]


def update_change(change: Change, **fields: Any) -> Change:
    """Store progress or an outcome without a state transition and without an audit entry."""
    Change.objects.filter(pk=change.pk).update(**fields)
    change.refresh_from_db()
    return change


def find_running_change(cluster: str) -> Change | None:
    """Return the change of a cluster that is running or paused; None when there is none."""
    return Change.objects.filter(
        cluster=cluster, state__in=[state.value for state in EXCLUSIVE_STATES]
    ).first()


def find_verifying_change(cluster: str) -> Change | None:
    """Return the newest change of a cluster whose result Refloat compares with the plan; None when there is none."""
    return Change.objects.filter(cluster=cluster, state=ChangeState.VERIFYING.value).order_by("-pk").first()


def describe_running_change(cluster: str, excluded_change: Change | None = None) -> str:
    """Return a sentence about the change that is running or paused in a cluster; empty when there is none.

    Also empty when that is `excluded_change`, which may have started since it was read.
    """
    running_change = find_running_change(cluster)
    if running_change is None or running_change == excluded_change:
        return ""
    return (
        f"change {running_change.pk} by {running_change.actor_name} is {running_change.state} in cluster {cluster} "
        f"({running_change.title}). Changes run one at a time"
    )


def record_attempt_on(
    change: Change,
    action: ChangeStep | ChangeState | AuditAction,
    actor: RequestActor,
    now: datetime,
    **fields: Any,
) -> AbstractContextManager[Attempt]:
    """Write an audit entry about what the block does to a change, however it ends. `fields`: those of Attempt."""
    name = action if isinstance(action, AuditAction) else action_of_change(change.kind, action)
    attempt = actor.create_attempt(name, **fields)
    attempt.set_change(change)
    attempt.request_id = actor.request_id or change.request_id
    return record_outcome(attempt, lambda: now)


@contextmanager
def record_refused_plan(
    kind: ChangeKind | str, cluster: str, actor: RequestActor, now: datetime, after: Any = None
) -> Iterator[None]:
    """Write an audit entry when the plan that the block makes is refused. Errors are raised again."""
    try:
        yield
    except ChangeRefusedError as error:
        if not error.is_logged:
            error.is_logged = True
            action = action_of_change(kind, ChangeStep.PLAN)
            write_entry(
                actor.create_attempt(action, cluster, after=after, detail=str(error)),
                AuditOutcome.REFUSED,
                now,
            )
        raise


def _compare_and_set_state(
    change: Change,
    state: ChangeState,
    write_related_rows: Callable[[Change], object] = lambda _: None,
    **fields: Any,
) -> Change:
    """Compare and set: move only from the state and the step that `change` has in memory, so that one of two wins.

    The step counts too: a change that was paused and resumed has the same state again, but not the same step.
    """
    expected_state = ChangeState(change.state)
    if state not in TRANSITIONS[expected_state]:
        raise WrongStateError(
            f"the change is already {state.value}"
            if state is expected_state
            else f"the change is {_state_text_of(change)} and cannot become {state.value}"
        )
    with transaction.atomic():
        updated_count = Change.objects.filter(
            pk=change.pk, state=expected_state.value, step=change.step
        ).update(state=state.value, step=F("step") + 1, **fields)
        change.refresh_from_db()
        if updated_count:
            write_related_rows(change)
    if not updated_count:
        raise WrongStateError(
            f"conflict: the change was moved to {_state_text_of(change)} in the meantime. Reload it"
        )
    return change


def _state_text_of(change: Change) -> str:
    return f"{change.state} and approved" if change.approved_by and not change.started_at else change.state


def _find_by_idempotency_key(cluster: str, actor: RequestActor) -> Change | None:
    if not actor.idempotency_key:
        return None
    return Change.objects.filter(cluster=cluster, idempotency_key=actor.idempotency_key).first()


def _require_same_draft(earlier_change: Change, draft: ChangeDraft) -> Change:
    if (earlier_change.kind, earlier_change.after, earlier_change.parameters) != (
        draft.kind.value,
        draft.after,
        draft.parameters,
    ):
        raise ChangeRefusedError(
            f"conflict: the idempotency key belongs to a different change, {earlier_change.pk} ({earlier_change.title})"
        )
    return earlier_change
