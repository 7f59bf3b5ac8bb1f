"""Add the selected agents to an agent set, or remove them. docs/reference/alerts.md, "Alert rules"."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.fleet.agent_selection import is_form_submitted, read_selection
from dashboards.fleet.forms import AgentSetMembersForm
from dashboards.shared import presenters, record_reader, request_actor
from dashboards.shared.pages import needs_record, url_prefix_of
from dashboards.shared.permissions import requires
from fleet.alerts import matchers, setup_actions, store
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary.counts import format_agent_count


@requires(Permission.CHANGE_CONFIG)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
def change_agent_set(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the form of selected agents (GET, or POST with `show`), or (POST) change an agent set.

    See `agent_selection`.

    `action`: `remove`, or else they are added. Template `dashboards/agent_set.html`: presenters.live_page_context_of,
    `selection` (AgentSelection, or None), `sentence` (why there is none), `agent_sets` (names), `form`.
    """
    now = record_reader.current_time()
    reader = record_reader.reader()
    selection, sentence = read_selection(request, reader.table(cluster, now), now)
    is_submitted = is_form_submitted(request)
    form = AgentSetMembersForm(request.POST if is_submitted else None)
    if selection and not sentence and is_submitted and form.is_valid():
        agent_set, should_add = form.cleaned_data["agent_set"], request.POST.get("action") != "remove"
        changed_count = setup_actions.change_agent_set_members(
            cluster,
            selection.names,
            agent_set,
            request_actor.signed_in_actor_of(request),
            should_add=should_add,
        )
        outcome = "added to" if should_add else "removed from"
        remark = "" if should_add else _describe_remaining(cluster, agent_set, selection.names)
        messages.success(
            request, f"{format_agent_count(changed_count)} {outcome} the agent set {agent_set}.{remark}"
        )
        return redirect(f"{url_prefix_of(cluster)}/agents/")
    context = {
        "selection": selection,
        "sentence": sentence,
        "agent_sets": sorted(store.read_agent_set_patterns(cluster)),
        "form": form,
    }
    page_context = presenters.live_page_context_of(reader.summary(cluster, now), now, "agents")
    return render(request, "dashboards/agent_set.html", page_context | context)


def _describe_remaining(cluster: str, agent_set: str, names: tuple[str, ...]) -> str:
    """Return a sentence about removed agents that a pattern with `*` keeps in the set; empty if there are none."""
    patterns = store.read_agent_set_patterns(cluster).get(agent_set, ())
    count = int(matchers.match_names(names, patterns).sum())
    if not count:
        return ""
    verb = "remains" if count == 1 else "remain"
    return f" {format_agent_count(count)} {verb} in the set, because its patterns match the names."
