"""Changes: all there were, and one with its plan, its confirmation and what came of it. docs/changes.md."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.changes import presenters
from dashboards.changes.audit_words import action_words
from dashboards.shared import acting, proof, reading
from dashboards.shared.pages import needs_record, prefix_of, sentence_of, signed_in
from dashboards.shared.permissions import must, requires
from fleet.changes import Refused, engine, kinds
from fleet.changes.kind import ACTIONS
from fleet.changes.kinds import kind_of
from fleet.models.access import Permission, may
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary.changes import OCCUPYING, PERMISSION_OF, ChangeKind

_PAGE = 50


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD"])
@never_cache
def change_list(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """List changes, newest first. Template `dashboards/changes.html`: `page`, `changes`, `occupant`."""
    rows = Change.objects.filter(cluster=cluster).defer("plan", "parameters", "before", "after")[:_PAGE]
    context = {"page": "changes", "changes": rows, "occupant": engine.occupant(cluster)}
    return render(request, "dashboards/changes.html", context)


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def change(request: HttpRequest, change_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show one change; confirm, approve, cancel, pause, resume, stop, abort or undo it (POST with `do`).

    Template `dashboards/change.html`: `page`, `change`, `question`, `asks`, `entries`, `busy`, `can_act`,
    `can_approve`, `can_undo`, `problems`, `reason`, `typed`, and `presenters.context`'s.
    """
    row = get_object_or_404(Change.objects.select_related("cluster", "undoes"), cluster=cluster, pk=change_id)
    if request.method != "POST":
        return _show(request, row)
    must(request, Permission(PERMISSION_OF[ChangeKind(row.kind)]), cluster)
    what = request.POST.get("do", "")
    if what in ACTIONS:
        return _do(request, row, what)
    if what == "undo":
        return _undo(request, row)
    if what == "cancel":
        return _cancel(request, row)
    return _agree(request, row, what)


def _agree(request: HttpRequest, row: Change, what: str) -> HttpResponseBase:
    # What it does outlives the session.
    proof.require(request)
    who = acting.author(request)
    try:
        if what == "approve":
            engine.approve(row, who, now=timezone.now())
        else:
            kinds.confirm(
                row,
                who,
                reason=request.POST.get("reason", ""),
                typed=request.POST.get("typed", ""),
                now=timezone.now(),
            )
    except Refused as error:
        return _show(request, row, error)
    if engine.ready(row):
        acting.carry_out(row)
    return redirect(f"{prefix_of(row.cluster_id)}/changes/{row.pk}/")


def _cancel(request: HttpRequest, row: Change) -> HttpResponseBase:
    began = row.state in OCCUPYING
    try:
        kind_of(row).cancel(row, acting.author(request), timezone.now())
    except Refused as error:
        row.refresh_from_db()
        return _show(request, row, error)
    messages.success(
        request, "Called off: what was done stays done." if began else "Cancelled: nothing was changed."
    )
    return redirect(f"{prefix_of(row.cluster_id)}/changes/{row.pk}/")


def _do(request: HttpRequest, row: Change, what: str) -> HttpResponseBase:
    """Pause, resume, stop or abort what runs: to end it is never asked twice, to go on is."""
    if what == "resume":
        proof.require(request)
    try:
        kinds.act(row, what, acting.author(request), timezone.now())
    except Refused as error:
        row.refresh_from_db()
        return _show(request, row, error)
    return redirect(f"{prefix_of(row.cluster_id)}/changes/{row.pk}/")


def _show(request: HttpRequest, row: Change, error: Refused | None = None) -> HttpResponseBase:
    user = signed_in(request)
    can = may(user, Permission(PERMISSION_OF[ChangeKind(row.kind)]), row.cluster_id)
    problems = dict(error.problems) if error else {}
    context = {
        "page": "changes",
        "change": row,
        "question": row.plan.get("question", row.title),
        "asks": engine.what_it_asks(row),
        "entries": [
            (entry, action_words(entry.action))
            for entry in AuditEntry.objects.filter(change_id=row.pk).order_by("pk")
        ],
        "busy": engine.busy_sentence(row.cluster_id) if row.state in {"planned", "confirmed"} else "",
        "can_act": can,
        "can_approve": can and row.state == "confirmed" and row.needs_second and not row.approved_by
        and user.pk not in (row.user_id, row.confirmed_by_id),
        "problems": problems,
        "sentence": "" if error is None or problems else sentence_of(error),
        "reason": request.POST.get("reason", ""),
        "typed": request.POST.get("typed", ""),
        "can_undo": can and kind_of(row).offers_undo(row),
        "live": row.state in {"confirmed", "running", "paused", "verifying"},
        **presenters.context(row, request.GET.get("state", "")),
    }  # fmt: skip
    return render(request, "dashboards/change.html", context)


@needs_record
def _undo(request: HttpRequest, row: Change) -> HttpResponseBase:
    """Plan another change that takes this one back; then it is confirmed like any other."""
    try:
        who = acting.author(request)
        planned = kind_of(row).undo(row, who, timezone.now(), reading.record())
    except Refused as error:
        return _show(request, row, Refused(str(error)))
    return redirect(f"{prefix_of(row.cluster_id)}/changes/{planned.pk}/")
