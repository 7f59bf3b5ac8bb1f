"""The page that marks an instance as degraded, or clears the mark. docs/reference/destination-health.md."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.changes.forms.degrade import DegradeForm
from dashboards.changes.service import find_target_instance
from dashboards.shared import recent_proof, record_reader, refusals, request_actor
from dashboards.shared.capabilities.views import needs_capability
from dashboards.shared.pages import needs_record, url_prefix_of
from dashboards.shared.permissions import requires
from fleet.changes.operations import degradations
from fleet.changes.operations.degradations import DegradeRequest
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary.capabilities import Capability


@requires(Permission.ACT_ON_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
@needs_capability(Capability.RECONNECT_ADVICE, "Mark as degraded")
def degrade(request: HttpRequest, instance_id: str, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the form (GET), or (POST with `action`: `mark` or `clear`) mark the instance or clear its mark.

    Template `dashboards/degrade.html`: `page`, `facts` (InstanceFacts), `is_degraded` (it reports a mark), `form`.
    """
    target_instance = find_target_instance(cluster, instance_id, record_reader.current_time())
    if target_instance is None:
        raise Http404(f"Instance {instance_id} was not found.")
    view, facts = target_instance.view, target_instance.view.facts
    is_degraded = facts.watch.degraded_reason is not None
    form_action = request.POST.get("action")
    form = DegradeForm(request.POST if request.method == "POST" else None, initial={"minutes": 10})
    if form_action in ("mark", "clear") and form.is_valid():
        recent_proof.require(request)
        is_mark = form_action == "mark"
        change = degradations.request_degradation(
            cluster,
            DegradeRequest(
                facts.id,
                facts.name,
                is_mark,
                form.cleaned_data["minutes"] * 60.0 if is_mark else 0.0,
                was_degraded=is_degraded,
                agent_count=view.agent_count,
            ),
            request_actor.signed_in_actor_of(request),
            form.cleaned_data["reason"],
            timezone.now,
        )
        request_actor.enqueue_change(change)
        return redirect(f"{url_prefix_of(cluster)}/changes/{change.pk}/")
    refusals.mark_if_incomplete(request, form)
    context = {"page": "fleet", "facts": facts, "is_degraded": is_degraded, "form": form}
    return render(request, "dashboards/degrade.html", context)
