"""The list of changes, and the page of one change: plan, confirmation, progress, result. docs/reference/changes.md."""

from __future__ import annotations

from collections.abc import Mapping

from django.contrib import messages
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.changes import presenters
from dashboards.changes.audit_sentences import describe_entry
from dashboards.shared import recent_proof, record_reader, refusals, request_actor
from dashboards.shared.pages import needs_record, sentence_of, signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import require_permission, requires
from fleet.changes import ChangeRefusedError, engine, kinds
from fleet.changes.base_kind import ACTIONS
from fleet.changes.kinds import kind_of
from fleet.changes.policies import kind as policy_kind
from fleet.models.access import Permission, has_permission
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.moments import to_seconds
from fleet.vocabulary.actions import AUDITED_STATES
from fleet.vocabulary.changes import (
    EXCLUSIVE_STATES,
    LIVE_STATES,
    PERMISSION_OF,
    ChangeKind,
    ChangeState,
    find_confirmation_problems,
    state_label_of,
)

#: Changes on one page, and digits of an id that every database can compare.
_PAGE_SIZE, _MAX_ID_DIGITS = 50, 16

#: By label of a state: the changes in it. An aborted change is one that was cancelled after it had started.
_STATE_FILTERS: Mapping[str, Q] = {
    **{state.value: Q(state=state.value) for state in ChangeState},
    ChangeState.CANCELLED.value: Q(state=ChangeState.CANCELLED.value, started_at=None),
    state_label_of(ChangeState.CANCELLED, has_started=True): Q(
        state=ChangeState.CANCELLED.value, started_at__isnull=False
    ),
}


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD"])
@never_cache
def change_list(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """List changes, newest first; `?kind=`, `?state=` and `?before=` (a change id) select some.

    Template `dashboards/changes.html`: `page`, `rows` (change, progress, can_undo, undo_note), `running_change`,
    `kinds`, `states` (labels), `selected_kind`, `selected_state`, `counts_text`, `older_query`.
    """
    kind, state, before = (request.GET.get(name, "") for name in ("kind", "state", "before"))
    changes = Change.objects.filter(cluster=cluster).defer("plan")
    if kind in set(ChangeKind):
        changes = changes.filter(kind=kind)
    if state in _STATE_FILTERS:
        changes = changes.filter(_STATE_FILTERS[state])
    if before.isdecimal() and len(before) < _MAX_ID_DIGITS:
        changes = changes.filter(pk__lt=int(before))
    rows = list(changes.order_by("-pk")[: _PAGE_SIZE + 1])
    user, now = signed_in_user_of(request), timezone.now()
    parameters = request.GET.copy()
    parameters["before"] = str(rows[_PAGE_SIZE - 1].pk) if len(rows) > _PAGE_SIZE else ""
    context = {
        "page": "changes",
        "rows": [
            {
                "change": row,
                "progress": kind_of(row).progress_of(row, to_seconds(now))
                if row.state in EXCLUSIVE_STATES
                else None,
                "can_undo": has_permission(user, Permission(PERMISSION_OF[ChangeKind(row.kind)]), cluster)
                and kind_of(row).can_undo(row),
                "undo_note": _describe_missing_undo(row),
            }
            for row in rows[:_PAGE_SIZE]
        ],
        "running_change": engine.find_running_change(cluster) or engine.find_verifying_change(cluster),
        "kinds": tuple(ChangeKind),
        "states": tuple(_STATE_FILTERS),
        "selected_kind": kind,
        "selected_state": state,
        "counts_text": _describe_counts(cluster),
        "older_query": f"?{parameters.urlencode()}" if parameters["before"] else "",
    }
    return render(request, "dashboards/changes.html", context)


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
def change(request: HttpRequest, change_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show one change; confirm, approve, cancel, pause, resume, stop, abort, finish or undo it (POST with `do`).

    Template `dashboards/change.html`: `page`, `change`, `question`, `requirements`, `entries`, `busy_reason`,
    `can_act`, `can_approve`, `can_undo`, `problems`, `reason`, `confirmation`, and those of `presenters.context_of`.
    """
    row = find_change(cluster, change_id)
    if request.method != "POST":
        return _render_change(request, row)
    require_permission(request, Permission(PERMISSION_OF[ChangeKind(row.kind)]), cluster)
    form_action = request.POST.get("do", "")
    try:
        next_change = _run_action(request, row, form_action)
    except ChangeRefusedError as error:
        row.refresh_from_db()
        # The plan of the undo has no fields on this page.
        return _render_change(
            request, row, ChangeRefusedError(str(error)) if form_action in ("undo", "finish") else error
        )
    return redirect(f"{url_prefix_of(cluster)}/changes/{next_change.pk}/")


def find_change(cluster: str, change_id: int) -> Change:
    """Return a change of a cluster. Raises Http404."""
    row = Change.objects.select_related("cluster", "undoes").filter(cluster=cluster, pk=change_id).first()
    if row is None:
        raise Http404(f"Change {change_id} was not found in cluster {cluster}.")
    return row


def _describe_counts(cluster: str) -> str:
    """Return how many changes were carried out, which is what other pages count, and how many were not."""
    total_count = Change.objects.filter(cluster=cluster).count()
    carried_out_count = engine.select_carried_out(cluster).count()
    if not total_count:
        return ""
    text = f"All time: {carried_out_count:,} carried out"
    other_count = total_count - carried_out_count
    return f"{text}, {other_count:,} planned or cancelled before the start." if other_count else f"{text}."


def _describe_missing_undo(row: Change) -> str:
    """Return why a change that has ended, and had an effect, cannot be undone; empty when it can, or had none."""
    if row.started_at is None or row.state not in (ChangeState.VERIFIED, ChangeState.CANCELLED):
        return ""
    kind = kind_of(row)
    if kind.undo_refusal:
        return f"cannot be undone: {kind.undo_refusal}"
    return f"superseded: {kind.superseded_reason}" if kind.is_superseded(row) else ""


def _run_action(request: HttpRequest, row: Change, form_action: str) -> Change:
    """Perform the action and return the change to show next. Raises ChangeRefusedError."""
    actor, now = request_actor.signed_in_actor_of(request), timezone.now()
    if form_action == "undo":
        # Undoing plans a new change, which must be confirmed.
        return kind_of(row).undo(row, actor, now, record_reader.take_record_snapshot())
    if form_action == "finish" and row.kind == ChangeKind.POLICY:
        return policy_kind.plan_completion(row, actor, now, record_reader.take_record_snapshot())
    if form_action == "cancel":
        is_running = row.state in EXCLUSIVE_STATES
        kind_of(row).cancel(row, actor, now)
        messages.success(
            request,
            "Change aborted. Completed steps stay in effect."
            if is_running
            else "Change cancelled. Nothing was changed.",
        )
        return row
    if form_action not in ACTIONS or form_action == "resume":
        # The effect outlasts the session, so the action needs a recent login.
        recent_proof.require(request)
    if form_action in ACTIONS:
        return kinds.run_action(row, form_action, actor, now)
    if form_action == "approve":
        engine.approve(row, actor, now=now)
    else:
        reason, typed_name = (request.POST.get(name, "") for name in ("reason", "confirmation"))
        if not reason.strip():
            # The form comes back with its errors: nobody has attempted anything yet.
            refusals.mark_incomplete(request)
            problems = find_confirmation_problems(
                engine.requirements_of(row), reason=reason, typed_name=typed_name
            )
            raise ChangeRefusedError("; ".join(problems.values()), problems)
        kinds.confirm(row, actor, reason=reason, typed_name=typed_name, now=now)
    if engine.can_start(row):
        request_actor.enqueue_change(row)
    return row


def _render_change(
    request: HttpRequest, row: Change, error: ChangeRefusedError | None = None
) -> HttpResponseBase:
    user = signed_in_user_of(request)
    can_act = has_permission(user, Permission(PERMISSION_OF[ChangeKind(row.kind)]), row.cluster_id)
    problems = dict(error.problems) if error else {}
    typed_values: QueryDict = request.POST
    if request.method != "POST" and (form := recent_proof.find_suspended_form(request, request.path)):
        # Whoever cancels the page that asks for proof comes back to what they typed.
        typed_values = form.values
    kind_context = presenters.context_of(row, request.GET.get("state", ""))
    context = {
        "page": "changes",
        "change": row,
        "question": row.plan.get("question", row.title),
        "requirements": engine.requirements_of(row),
        "entries": [
            (
                entry,
                describe_entry(
                    entry.action,
                    entry.subject,
                    entry.outcome,
                    document=entry.after,
                    noun=row.kind_label,
                    has_started=row.started_at is not None,
                ),
            )
            for entry in AuditEntry.objects.filter(change_id=row.pk).order_by("pk")
        ],
        "busy_reason": engine.describe_running_change(row.cluster_id, row) if row.state not in AUDITED_STATES else "",
        "can_act": can_act,
        "can_approve": can_act and row.state == "confirmed" and row.review_required and not row.approved_by
        and user.pk not in (row.user_id, row.confirmed_by_id),
        "problems": problems,
        "sentence": "" if error is None or problems else sentence_of(error),
        "reason": typed_values.get("reason", ""),
        "confirmation": typed_values.get("confirmation", ""),
        "can_undo": can_act and kind_of(row).can_undo(row),
        "undo_note": _describe_missing_undo(row),
        "needs_operator": PERMISSION_OF[ChangeKind(row.kind)] == Permission.ACT_ON_FLEET,
        "is_live": row.state in LIVE_STATES or bool((kind_context["rollout"] or {}).get("is_followed")),
        **kind_context,
    }  # fmt: skip
    return render(request, "dashboards/change.html", context)
