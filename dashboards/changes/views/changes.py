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
from dashboards.shared import recent_proof, record_reader, request_actor
from dashboards.shared.pages import needs_record, prefix_of, sentence_of, signed_in
from dashboards.shared.permissions import must, requires
from fleet.changes import Refused, engine, kinds
from fleet.changes.base_kind import ACTIONS
from fleet.changes.kinds import kind_of
from fleet.models.access import Permission, may
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary.actions import LOGGED_STATES
from fleet.vocabulary.changes import LIVE, OCCUPYING, PERMISSION_OF, ChangeKind

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
@needs_record
def change(request: HttpRequest, change_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show one change; confirm, approve, cancel, pause, resume, stop, abort or undo it (POST with `do`).

    Template `dashboards/change.html`: `page`, `change`, `question`, `asks`, `entries`, `busy`, `can_act`,
    `can_approve`, `can_undo`, `problems`, `reason`, `typed`, and `presenters.context`'s.
    """
    row = get_object_or_404(Change.objects.select_related("cluster", "undoes"), cluster=cluster, pk=change_id)
    if request.method != "POST":
        return _show(request, row)
    must(request, Permission(PERMISSION_OF[ChangeKind(row.kind)]), cluster)
    do = request.POST.get("do", "")
    try:
        next_row = _act(request, row, do)
    except Refused as error:
        row.refresh_from_db()
        # Problems of another plan have no fields here.
        return _show(request, row, Refused(str(error)) if do == "undo" else error)
    return redirect(f"{prefix_of(cluster)}/changes/{next_row.pk}/")


def _act(request: HttpRequest, row: Change, do: str) -> Change:
    """Do what was asked; return the change to show next. Raises Refused."""
    author, now = request_actor.author(request), timezone.now()
    if do == "undo":
        # Planned like any other change, and then confirmed.
        return kind_of(row).undo(row, author, now, record_reader.record())
    if do == "cancel":
        began = row.state in OCCUPYING
        kind_of(row).cancel(row, author, now)
        messages.success(
            request, "Called off: what was done stays done." if began else "Cancelled: nothing was changed."
        )
        return row
    if do not in ACTIONS or do == "resume":
        # What it does outlives the session.
        recent_proof.require(request)
    if do in ACTIONS:
        return kinds.act(row, do, author, now)
    if do == "approve":
        engine.approve(row, author, now=now)
    else:
        reason, typed = (request.POST.get(name, "") for name in ("reason", "typed"))
        kinds.confirm(row, author, reason=reason, typed=typed, now=now)
    if engine.ready(row):
        request_actor.carry_out(row)
    return row


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
        "busy": engine.busy_sentence(row.cluster_id) if row.state not in LOGGED_STATES else "",
        "can_act": can,
        "can_approve": can and row.state == "confirmed" and row.needs_second and not row.approved_by
        and user.pk not in (row.user_id, row.confirmed_by_id),
        "problems": problems,
        "sentence": "" if error is None or problems else sentence_of(error),
        "reason": request.POST.get("reason", ""),
        "typed": request.POST.get("typed", ""),
        "can_undo": can and kind_of(row).offers_undo(row),
        "live": row.state in LIVE,
        **presenters.context(row, request.GET.get("state", "")),
    }  # fmt: skip
    return render(request, "dashboards/change.html", context)
