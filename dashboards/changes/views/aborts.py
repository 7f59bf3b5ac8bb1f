"""The page that asks before a change in progress is aborted; also the content of a dialog."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.changes import aborts
from dashboards.changes.views.changes import find_change
from dashboards.shared import recent_proof, record_reader, request_actor
from dashboards.shared.pages import needs_record, sentence_of, signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import require_permission, requires
from fleet.changes import ChangeRefusedError, kinds
from fleet.models.access import Permission, has_permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary.changes import EXCLUSIVE_STATES, PERMISSION_OF, ChangeKind


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
def abort(request: HttpRequest, change_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show what stays when the change is aborted now (GET), or abort it (POST).

    Template `dashboards/abort.html`: `page`, `change`, `noun`, `consequences`, `sentence`.
    """
    row = find_change(cluster, change_id)
    permission = Permission(PERMISSION_OF[ChangeKind(row.kind)])
    sentence, page_path = "", f"{url_prefix_of(cluster)}/changes/{row.pk}/"
    if request.method == "POST":
        require_permission(request, permission, cluster)
        recent_proof.require(request)
        try:
            kinds.run_action(row, "abort", request_actor.signed_in_actor_of(request), timezone.now())
        except ChangeRefusedError as error:
            row.refresh_from_db()
            sentence = sentence_of(error)
        else:
            return redirect(page_path)
    elif row.state not in EXCLUSIVE_STATES or not has_permission(
        signed_in_user_of(request), permission, cluster
    ):
        return redirect(page_path)
    context = {
        "page": "changes",
        "change": row,
        "noun": "rollout" if row.kind == ChangeKind.POLICY else "campaign",
        "consequences": aborts.describe_abort(row, record_reader.policy_report_store().read(cluster)),
        "sentence": sentence,
    }
    return render(request, "dashboards/abort.html", context)
