"""The list of incidents, and the page of one incident that notifications link to. docs/reference/alerts.md."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Case, IntegerField, Value, When
from django.http import Http404, HttpRequest, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from dashboards.alerts import incident_figures
from dashboards.alerts import presenters as alert_presenters
from dashboards.fleet import history
from dashboards.shared import presenters, record_reader, refusals
from dashboards.shared.pages import sentence_of, signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import requires
from dashboards.shared.request_actor import signed_in_actor_of
from fleet.alerts import incident_actions, store
from fleet.alerts.evaluator import count_open_incidents
from fleet.alerts.facts import affected_agents_of
from fleet.alerts.incident_actions import ActionError
from fleet.alerts.lifecycle import EvaluationContext
from fleet.alerts.matchers import MatcherError
from fleet.models.access import Permission, has_cluster_limit, has_permission
from fleet.models.alerting import AlertClock
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.incidents import Incident, IncidentEvent
from fleet.monitoring.state import StateError
from fleet.vocabulary.incidents import OPEN_STATES, CauseKind, IncidentState, TimelineKind

_MAX_RESOLVED_INCIDENTS = 50
_MAX_AGENTS = 50
#: Labels of timeline entries whose kind is not a label by itself.
_TIMELINE_LABELS = {
    TimelineKind.RECURRED.value: "firing again",
    TimelineKind.STABLE.value: "flapping ended",
    TimelineKind.NOTIFICATION.value: "notification",
    TimelineKind.UNACKNOWLEDGED.value: "acknowledgement removed",
}


@requires(Permission.VIEW_FLEET)
@require_safe
def incidents(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """List open and pending incidents, worst first, and resolved ones.

    Template `dashboards/incidents.html`: `open`, `pending`, `resolved` (IncidentView), `muted_count`: how many of
    `open` the badge does not count, `evaluated_at`, `evaluated_age_ms`: time of the last evaluation of the rules.
    """
    now = record_reader.current_time()
    url_prefix = url_prefix_of(cluster)
    rows = Incident.objects.filter(cluster=cluster)
    unresolved_rows = rows.exclude(state=IncidentState.RESOLVED.value).annotate(
        is_inhibited=Case(When(inhibited_by="", then=Value(0)), default=Value(1), output_field=IntegerField())
    )
    current_rows = list(
        unresolved_rows.order_by("is_inhibited", "-severity", "-affected_count", "-opened_at")[:500]
    )
    cause_names, active_silences = (
        alert_presenters.cause_names_of(current_rows),
        alert_presenters.read_active_silences(cluster, now),
    )
    current_views = [
        alert_presenters.present_incident(row, now, url_prefix, cause_names, active_silences=active_silences)
        for row in current_rows
    ]
    resolved_rows = rows.filter(state=IncidentState.RESOLVED.value).order_by("-resolved_at")[
        :_MAX_RESOLVED_INCIDENTS
    ]
    clock = AlertClock.objects.filter(cluster=cluster).first()
    open_views = [row for row in current_views if row.state != IncidentState.PENDING.value]
    context = {
        "page": "incidents",
        "tab": "incidents",
        "open": open_views,
        "muted_count": sum(1 for row in open_views if row.silenced_by or row.inhibited_by),
        "pending": [row for row in current_views if row.state == IncidentState.PENDING.value],
        "resolved": [
            alert_presenters.present_incident(row, now, url_prefix, active_silences=active_silences)
            for row in resolved_rows
        ],
        "evaluated_at": presenters.to_moment_or_none(clock.evaluated_at if clock else None),
        "evaluated_age_ms": presenters.age_ms_of(clock.evaluated_at if clock else None, now),
    }
    return render(request, "dashboards/incidents.html", context)


@requires(Permission.VIEW_FLEET)
@require_safe
@never_cache
def badge(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Return the number of open incidents and the newest notification, for pages without a live connection."""
    rows = Incident.objects.filter(cluster=cluster, state__in=OPEN_STATES)
    notification_events = IncidentEvent.objects.filter(
        incident__cluster=cluster, kind=TimelineKind.NOTIFICATION.value
    ).select_related("incident")
    newest_event = notification_events.order_by("-pk").first()
    active_silences = alert_presenters.read_active_silences(cluster, record_reader.current_time())
    open_counts = count_open_incidents(alert_presenters.with_silence(row, active_silences) for row in rows)
    return JsonResponse(
        {"open": open_counts, "newest": alert_presenters.newest_notification_of(newest_event)}
    )


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def incident(request: HttpRequest, incident_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show one incident, or act on it (POST with `do`: acknowledge, let-go, silence, note).

    Template `dashboards/incident.html`: `incident` (IncidentView), `next_notification`, `cause` (InstanceCard or None),
    `heartbeat_at`: time of its last heartbeat, `state_history` (InstanceStateChangeRow), `polled_at`: time of the
    newest poll, `prior_changes` (PriorChange), `common_attributes`, `agents` (AgentRow), `more_agent_count`, `events`,
    `deliveries`, `runbook`, `rule_names`, `figures` (incident_figures.build_figures); `reconnect_query`: of the
    reconnect page, or `reconnect_refusal`: why there is none; `is_fleet_data_stale`: the fleet data is too old to list
    the affected agents.
    """
    row = Incident.objects.filter(cluster=cluster, pk=incident_id).first()
    if row is None:
        raise Http404(f"Incident {incident_id} was not found in cluster {cluster}.")
    if request.method == "POST":
        return _handle_post(request, row, cluster)
    now, is_limited_user = record_reader.current_time(), has_cluster_limit(signed_in_user_of(request))
    rules, active_silences = store.read_rules(cluster), alert_presenters.read_active_silences(cluster, now)
    incident_value = store.incident_of(row)
    strongest_rule = EvaluationContext(now, 0.0, {rule.name: rule for rule in rules}).strongest_rule(
        incident_value
    )
    context: dict[str, Any] = {
        "page": "incidents",
        "incident": alert_presenters.present_incident(
            row, now, url_prefix_of(cluster), active_silences=active_silences
        ),
        "next_notification": alert_presenters.next_notification_of(
            row, rules, now, store.read_routes(cluster), active_silences
        ),
        "events": [_event_context_of(entry, now) for entry in row.events.order_by("-at", "-pk")[:100]],
        "deliveries": [
            alert_presenters.delivery_row_of(entry, now, is_limited_user=is_limited_user)
            for entry in row.deliveries.select_related("channel").order_by("-pk")[:50]
        ],
        "prior_changes": alert_presenters.find_prior_changes(cluster, row.opened_at, is_limited_user=is_limited_user),
        "rule_names": sorted({*incident_value.marks, *incident_value.fired_rule_names}),
        "runbook": strongest_rule.runbook
        or f"{url_prefix_of(cluster)}/alerts/runbooks/{strongest_rule.kind.value}/",
        "can_act": has_permission(request.user, Permission.ACT_ON_FLEET, cluster),
        "state_history": history.read_instance_state_changes(cluster, _history_key_of(row), now),
    } | _live_context_of(row, cluster, now)  # fmt: skip
    return render(request, "dashboards/incident.html", context)


def _history_key_of(row: Incident) -> str:
    """Return the id of a cause in the history of instances."""
    is_cluster_wide = row.cause_kind in (CauseKind.BACKEND.value, CauseKind.CLUSTER.value)
    return f"{row.cause_kind}/{row.cluster_id}" if is_cluster_wide else row.cause_id


def _time_of_age(now: float, age_ms: int | None) -> float | None:
    return None if age_ms is None else now - age_ms / 1000


def _event_context_of(event_row: IncidentEvent, now: float) -> dict[str, Any]:
    at = {"at": presenters.to_moment_or_none(event_row.at), "age_ms": presenters.age_ms_of(event_row.at, now)}
    label = _TIMELINE_LABELS.get(event_row.kind, event_row.kind)
    return at | {
        "kind": event_row.kind,
        "label": label,
        "actor": event_row.actor_name,
        "text": event_row.text,
    }


def _live_context_of(row: Incident, cluster: str, now: float) -> dict[str, Any]:
    """Return the live data of an incident: agents, cause card, charts. `is_fleet_data_stale` if it cannot be read."""
    reader = record_reader.reader()
    try:
        table = reader.table(cluster, now)
        summary = reader.summary(cluster, now)
    except StateError:
        return {"is_fleet_data_stale": row.state != IncidentState.RESOLVED.value}
    views_by_id = {view.facts.id: view for view in table.instances.values()}
    is_resolved = row.state == IncidentState.RESOLVED.value
    indices = affected_agents_of(table, row.key)[:0] if is_resolved else affected_agents_of(table, row.key)
    view = views_by_id.get(row.cause_id)
    card = (
        None
        if view is None
        else presenters.instance_card_of(
            view, now, {key: instance_view.facts.name for key, instance_view in views_by_id.items()}
        )
    )
    query, refusal_reason = alert_presenters.reconnect_query_of(
        row, None if view is None else view.state, table
    )
    return presenters.live_page_context_of(summary, now, "incidents") | {
        "agents": [
            presenters.agent_row_of(reader.agent(table, int(index)), views_by_id, now)
            for index in indices[:_MAX_AGENTS]
        ],
        "more_agent_count": max(0, len(indices) - _MAX_AGENTS),
        "reconnect_query": query,
        "reconnect_refusal": refusal_reason,
        "common_attributes": alert_presenters.find_common_attributes(table, indices),
        "polled_at": presenters.to_moment_or_none(summary.as_of),
        "is_fleet_data_stale": summary.stale and not is_resolved,
        "cause": card,
        "heartbeat_at": presenters.to_moment_or_none(
            None if card is None else _time_of_age(now, card.heartbeat_age_ms)
        ),
        "figures": incident_figures.build_figures(table, indices),
    }


def _handle_post(request: HttpRequest, row: Incident, cluster: str) -> HttpResponseBase:
    user = request.user
    if not isinstance(user, User) or not has_permission(user, Permission.ACT_ON_FLEET, cluster):
        return render(
            request,
            "403.html",
            {"reason": "Not allowed: this action needs the role operator."},
            status=403,
        )
    now, username = record_reader.current_time(), user.get_username()
    form_action = request.POST.get("do", "")
    try:
        if form_action == "acknowledge":
            incident_actions.acknowledge(row, username, now, settings.REFLOAT_PUBLIC_URL)
        elif form_action == "let-go":
            incident_actions.unacknowledge(row, username, now)
        elif form_action == "note":
            incident_actions.add_note(row, username, request.POST.get("text", ""), now)
        elif form_action == "silence":
            silence_row = incident_actions.create_silence(
                f"cause={row.key}", request.POST.get("reason", ""), username, now, now + 3600,
                signed_in_actor_of(request), cluster=cluster,
            )  # fmt: skip
            text = f"{username} silenced the incident for 1 h: {silence_row.reason}"
            incident_actions.add_timeline_entry(row, TimelineKind.SILENCED, username, text, now)
            messages.success(request, "The incident is silenced for 1 h.")
    except (ActionError, MatcherError) as error:
        refusals.record_and_show(request, sentence_of(error))
    return redirect(f"{url_prefix_of(cluster)}/incidents/{row.pk}/")
