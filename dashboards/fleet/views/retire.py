"""Retire an agent that is permanently out of service, or reinstate it. docs/reference/verdicts.md, "Retired agents"."""

from __future__ import annotations

from urllib.parse import quote

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.fleet.agent_selection import AgentSelection, is_form_submitted, read_selection
from dashboards.fleet.forms import RetireForm
from dashboards.fleet.retire import (
    is_alive,
    request_retirement,
    request_retirements,
    retirement_of,
)
from dashboards.shared import presenters, recent_proof, record_reader, refusals, request_actor
from dashboards.shared.pages import needs_record, signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import requires
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary.counts import format_agent_count


@requires(Permission.ACT_ON_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
def retire(request: HttpRequest, agent_id: str, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the form (GET), or retire or reinstate the agent (POST with `action`: `retire` or `reinstate`).

    Template `dashboards/retire.html`: presenters.live_page_context_of, `agent` (AgentRow), `is_retired`, `retirement`,
    `is_alive` (it has a heartbeat or live tunnel), `form`.
    """
    now = record_reader.current_time()
    reader = record_reader.reader()
    explanation = reader.explain(cluster, agent_id, now)
    if explanation is None:
        raise Http404(f"Agent {agent_id} was not found in cluster {cluster}.")
    # The last request of an operator; the record reflects it within two polls.
    retirement = retirement_of(cluster, explanation, now)
    is_retired = retirement is not None and retirement.is_retired
    agent_is_alive, form_action = is_alive(explanation), request.POST.get("action")
    form = RetireForm(
        request.POST if request.method == "POST" else None,
        is_alive=agent_is_alive and not is_retired and form_action != "reinstate",
    )
    if form_action in ("retire", "reinstate") and form.is_valid():
        recent_proof.require(request)
        actor, reason = (
            request_actor.actor_of(request, signed_in_user_of(request)),
            form.cleaned_data["reason"],
        )
        request_retirement(cluster, explanation, actor, should_retire=form_action == "retire", reason=reason)
        outcome = "will be retired" if form_action == "retire" else "will be reinstated"
        messages.success(request, f"{explanation.view.name} {outcome} with the next poll.")
        return redirect(f"{url_prefix_of(cluster)}/agents/{quote(explanation.view.id, safe='')}/")
    refusals.mark_if_incomplete(request, form)
    context = presenters.agent_context_of(explanation, now) | {
        "is_retired": is_retired, "retirement": retirement, "is_alive": agent_is_alive, "form": form,
    }  # fmt: skip
    page_context = presenters.live_page_context_of(reader.summary(cluster, now), now, "agents")
    return render(request, "dashboards/retire.html", page_context | context)


@requires(Permission.ACT_ON_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
def retire_selected(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the form for selected agents (GET, or POST with `show`, see `agent_selection`), or (POST) retire or
    reinstate all of them.

    `action`: `retire` or `reinstate`. Template `dashboards/retire_selected.html`: presenters.live_page_context_of,
    `selection` (AgentSelection, or None), `sentence` (why there is none), `is_reinstating`, `affected_count` (agents
    that are not in the desired state yet), `affected_subject` (these in words), `form`.
    """
    now = record_reader.current_time()
    reader = record_reader.reader()
    table = reader.table(cluster, now)
    params = request.POST if request.method == "POST" else request.GET
    is_reinstating = params.get("action") == "reinstate"
    selection, sentence = read_selection(request, table, now)
    is_submitted = is_form_submitted(request)
    affected_count = 0
    if selection:
        affected_count = (
            selection.retired_count if is_reinstating else selection.count - selection.retired_count
        )
    form = RetireForm(
        request.POST if is_submitted else None,
        is_alive=bool(selection and selection.alive_count and not is_reinstating),
    )
    if selection and not sentence and is_submitted and form.is_valid():
        recent_proof.require(request)
        change = request_retirements(
            cluster,
            table,
            selection,
            request_actor.signed_in_actor_of(request),
            should_retire=not is_reinstating,
            reason=form.cleaned_data["reason"],
        )
        verb = "reinstated" if is_reinstating else "retired"
        prefix = url_prefix_of(cluster)
        if change is None:
            messages.success(request, f"No change: {selection.subject} already {verb}.")
            return redirect(f"{prefix}/agents/")
        # The page of the change says how far it is; a message would stay above its result.
        return redirect(f"{prefix}/changes/{change.pk}/")
    refusals.mark_if_incomplete(request, form)
    context = {
        "selection": selection,
        "sentence": sentence,
        "is_reinstating": is_reinstating,
        "affected_count": affected_count,
        "affected_subject": _subject_of(selection, affected_count) if selection else "",
        "form": form,
    }
    page_context = presenters.live_page_context_of(reader.summary(cluster, now), now, "agents")
    return render(request, "dashboards/retire_selected.html", page_context | context)


def _subject_of(selection: AgentSelection, affected_count: int) -> str:
    """Return the affected agents of a selection in words: the name of the only agent, or the number of agents."""
    return selection.subject if affected_count == selection.count else format_agent_count(affected_count)
