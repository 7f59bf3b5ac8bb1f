"""The page to drain or undrain an instance. docs/reference/destination-health.md."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.changes.drain import find_target_instance, request_drain
from dashboards.changes.forms.drain import DrainForm
from dashboards.fleet import history
from dashboards.shared import presenters, recent_proof, record_reader, request_actor
from dashboards.shared.pages import needs_record, url_prefix_of
from dashboards.shared.permissions import requires
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary.instances import CUT_OFF_STATES, InstanceKind


@requires(Permission.ACT_ON_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
def drain(request: HttpRequest, instance_id: str, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the form (GET), or drain or undrain the instance (POST with `action`: `drain` or `undrain`).

    Template `dashboards/drain.html`: presenters.live_page_context_of, `card` (InstanceCard), `row` (Drain or None),
    `is_drained` (it drains, or a drain was requested), `is_last_of_kind` (no other instance of its kind accepts
    connections), `is_cut_off` (Refloat cannot reach its agents), `form`, `state_history` (InstanceStateChangeRow).
    """
    now = record_reader.current_time()
    target_instance = find_target_instance(cluster, instance_id, now)
    if target_instance is None:
        raise Http404(f"Instance {instance_id} was not found.")
    view, row = target_instance.view, target_instance.row
    form_action = request.POST.get("action")
    form = DrainForm(
        request.POST if request.method == "POST" else None,
        is_last_of_kind=target_instance.is_last_of_kind and form_action != "undrain",
    )
    if form_action in ("drain", "undrain") and form.is_valid():
        recent_proof.require(request)
        user = request.user
        assert isinstance(user, User), "the view requires a permission, so somebody is signed in"
        reason = form.cleaned_data["reason"]
        request_drain(
            target_instance,
            request_actor.actor_of(request, user),
            should_drain=form_action == "drain",
            reason=reason,
        )
        effect_text = "drain" if form_action == "drain" else "accept connections again"
        delay_text = "when it responds again" if view.state in CUT_OFF_STATES else "within seconds"
        messages.success(request, f"Request sent: {view.facts.name} will {effect_text} {delay_text}.")
        return redirect(f"{url_prefix_of(cluster)}/")
    context = {
        "card": presenters.instance_card_of(
            view,
            now,
            target_instance.instance_names,
            is_stranding=target_instance.is_stranding,
        ),
        "row": row,
        "is_drained": view.drain_request is not None or (row is not None and row.is_drained),
        # Agents of an unreachable auth can still move: requests reach them through their tunnels.
        "is_cut_off": view.facts.kind is InstanceKind.PROXY and view.state in CUT_OFF_STATES,
        "is_last_of_kind": target_instance.is_last_of_kind,
        "form": form,
        "state_history": history.read_instance_state_changes(cluster, {instance_id: ""}, now),
    }
    page_context = presenters.live_page_context_of(record_reader.reader().summary(cluster, now), now, "fleet")
    return render(request, "dashboards/drain.html", page_context | context)
