"""The list of incidents, and the page of one incident that notifications link to. docs/reference/alerts.md."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from dashboards.alerts import delivery_rows, incident_evidence, incident_list, prior_changes
from dashboards.alerts import presenters as alert_presenters
from dashboards.alerts.incident_list import IncidentTab
from dashboards.alerts.silences.rows import find_active_silences_of
from dashboards.alerts.silences.sentences import describe_queued, read_receivers
from dashboards.alerts.views.incident_dialogs import DIALOGS
from dashboards.alerts.views.silences import change_silence
from dashboards.fleet import agent_csv, history
from dashboards.fleet.failing_channels import FailingChannel, read_failing_channels
from dashboards.shared import headlines, presenters, record_reader, refusals
from dashboards.shared.instance_states import find_stranding_instances
from dashboards.shared.pages import sentence_of, signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import require_write, requires, writable_owners_for
from dashboards.shared.rewind import AT_PARAMETER, answers_moment, open_moment, parse_at
from dashboards.shared.row_ids import parse_row_id
from fleet.alerts import incident_actions, store
from fleet.alerts.evaluator import count_open_incidents
from fleet.alerts.evidence.copies import read_copy_mark, read_evidence
from fleet.alerts.evidence.evidence import EvidenceError, agent_views_of, instance_views_of
from fleet.alerts.facts import affected_agents_of
from fleet.alerts.incident_actions import ActionError
from fleet.alerts.lifecycle.context import EvaluationContext
from fleet.models.access import Permission, has_cluster_limit, has_permission
from fleet.models.alerting import AlertClock, Silence, filter_applicable_to
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.incidents import Incident, IncidentEvent
from fleet.models.inventory import Instance
from fleet.models.moments import to_moment
from fleet.monitoring.state import StateError
from fleet.monitoring.views import FleetTable, Summary
from fleet.vocabulary import incidents as incident_values
from fleet.vocabulary.incidents import OPEN_STATES, CauseKind, IncidentState, Severity, TimelineKind
from fleet.vocabulary.instances import InstanceKind

#: Most unresolved incidents that the list sorts.
_MAX_UNRESOLVED_INCIDENTS = 5_000
#: Labels of timeline entries whose kind is not a label by itself.
_TIMELINE_LABELS = {
    TimelineKind.RECURRED.value: "firing again",
    TimelineKind.SEVERITY.value: "severity changed",
    TimelineKind.STABLE.value: "flapping ended",
    TimelineKind.NOTIFICATION.value: "notification",
    TimelineKind.UNACKNOWLEDGED.value: "acknowledgement removed",
    TimelineKind.SILENCE_EXTENDED.value: "silence extended",
    TimelineKind.SILENCE_ENDED.value: "silence ended",
}


@requires(Permission.VIEW_FLEET)
@require_safe
def incidents(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """List the incidents of one tab (`tab`), sorted (`sort`), one page (`page`) of them.

    Template `dashboards/incidents.html`: `list_tab` (IncidentTab), `tab_links` (TabLink), `column_heads` by name,
    `rows` (IncidentView), `total_count`, `list_page`, `page_count`, `previous_query`, `next_query`: of the other pages
    or empty, `pending_count`: pending incidents of the tab *Open*, `evaluated_at`, `evaluated_age_ms`: time of the
    last evaluation of the rules; `failing_channels` (FailingChannel).
    """
    now = record_reader.current_time()
    tab, sort = incident_list.read_tab(request.GET.get("tab", "")), request.GET.get("sort", "")
    active_silences = alert_presenters.read_active_silences(cluster, now)
    all_rows = Incident.objects.filter(cluster=cluster)
    resolved_rows = all_rows.filter(state=IncidentState.RESOLVED.value)
    unresolved_rows = list(all_rows.exclude(state=IncidentState.RESOLVED.value)[:_MAX_UNRESOLVED_INCIDENTS])
    entries_by_tab: dict[IncidentTab, list[tuple[Incident, incident_values.Incident]]] = {
        IncidentTab.OPEN: [],
        IncidentTab.SUPPRESSED: [],
    }
    for row in unresolved_rows:
        value = alert_presenters.with_silence(row, active_silences)
        entries_by_tab[incident_list.tab_of(value)].append((row, value))
    counts = {entry_tab: len(entries) for entry_tab, entries in entries_by_tab.items()}
    counts[IncidentTab.RESOLVED] = resolved_rows.count()
    page, page_count = incident_list.locate_page(request.GET.get("page", ""), counts[tab])
    page_slice = slice((page - 1) * incident_list.PAGE_SIZE, page * incident_list.PAGE_SIZE)
    if tab is IncidentTab.RESOLVED:
        page_rows = list(resolved_rows.order_by(*incident_list.resolved_order_of(sort))[page_slice])
    else:
        entries = incident_list.sort_incidents(entries_by_tab[tab], lambda entry: entry[1], sort)
        page_rows = [row for row, _ in entries[page_slice]]
    cause_names = alert_presenters.cause_names_of(unresolved_rows)
    rules, routes = store.read_rules(cluster), store.read_routes(cluster)
    describer = alert_presenters.find_describer(cluster, now)
    clock = AlertClock.objects.filter(cluster=cluster).first()
    context = {
        "page": "incidents",
        "tab": "incidents",
        "list_tab": tab,
        "tab_links": incident_list.tab_links_of(counts, tab),
        "column_heads": incident_list.sort_heads_of(tab, sort),
        "rows": [
            alert_presenters.present_incident(
                row,
                now,
                url_prefix_of(cluster),
                cause_names,
                active_silences=active_silences,
                next_notification=alert_presenters.next_notification_of(
                    row, rules, now, routes, active_silences
                ),
                describer=describer,
            )
            for row in page_rows
        ],
        "total_count": counts[tab],
        "list_page": page,
        "page_count": page_count,
        "previous_query": incident_list.page_query_of(tab, sort, page - 1) if page > 1 else "",
        "next_query": incident_list.page_query_of(tab, sort, page + 1) if page < page_count else "",
        "pending_count": sum(
            value.state is IncidentState.PENDING for _, value in entries_by_tab[IncidentTab.OPEN]
        ),
        "evaluated_at": presenters.to_moment_or_none(clock.evaluated_at if clock else None),
        "evaluated_age_ms": presenters.age_ms_of(clock.evaluated_at if clock else None, now),
        "failing_channels": read_failing_channels(cluster, now, signed_in_user_of(request)),
        "can_act": has_permission(request.user, Permission.ACT_ON_FLEET, cluster),
    }
    return render(request, "dashboards/incidents.html", context)


@requires(Permission.VIEW_FLEET)
@require_safe
@never_cache
@answers_moment
def badge(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Return what the frame of a page shows: open incidents, newest notification, headline, age of the data, and
    failing channels.

    With `at`, the incidents and the headline are those of a past moment; the notification is that of now.
    """
    notification_events = IncidentEvent.objects.filter(
        incident__cluster=cluster, kind=TimelineKind.NOTIFICATION.value
    ).select_related("incident")
    newest_event = notification_events.order_by("-pk").first()
    at_text = request.GET.get(AT_PARAMETER, "")
    return JsonResponse(
        {
            "open": _count_open_incidents_at(cluster, at_text),
            "newest": alert_presenters.newest_notification_of(newest_event),
            "headline": _read_tab_headline(cluster, at_text),
            "data": _read_data_status(cluster),
            "failing_channels": [
                {"number": channel.number, "notice": channel.notice}
                for channel in _read_failing_channels_at(request, cluster, at_text)
            ],
        }
    )


def _read_failing_channels_at(request: HttpRequest, cluster: str, at_text: str) -> list[FailingChannel]:
    """Return the channels that are failing now; none for a past moment. Raises MomentError."""
    now = record_reader.current_time()
    if parse_at(at_text, now) is not None:
        return []
    return read_failing_channels(cluster, now, signed_in_user_of(request))


def _count_open_incidents_at(cluster: str, at_text: str) -> dict[str, int]:
    """Return the number of open incidents by severity, now without silenced ones. Raises MomentError."""
    past_at = parse_at(at_text, record_reader.current_time())
    if past_at is not None:
        counts = {severity.slug: 0 for severity in Severity}
        rows = store.select_open_between(cluster, past_at, past_at).order_by()
        for severity in rows.values_list("severity", flat=True):
            counts[Severity(severity).slug] += 1
        return counts
    rows = Incident.objects.filter(cluster=cluster, state__in=OPEN_STATES)
    active_silences = alert_presenters.read_active_silences(cluster, record_reader.current_time())
    return count_open_incidents(alert_presenters.with_silence(row, active_silences) for row in rows)


def _read_tab_headline(cluster: str, at_text: str) -> dict[str, Any] | None:
    """Return what tabs and the navigation show of the headline; None while the record cannot be read.

    Raises MomentError.
    """
    try:
        headline = headlines.headline_at(open_moment(at_text, cluster), cluster)
    except StateError:
        return None
    return {
        "tab_title": headline.tab_title,
        "state": headline.state.slug,
        "count": headline.count,
        "text": headline.text,
    }


def _read_data_status(cluster: str) -> dict[str, Any] | None:
    """Return the age of the newest poll and whether it is too old; None while the record cannot be read."""
    now = record_reader.current_time()
    try:
        summary = record_reader.reader().summary(cluster, now)
    except StateError:
        return None
    return {"age_ms": presenters.age_ms_of(summary.as_of, now), "stale": summary.stale}


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def incident(request: HttpRequest, incident_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show one incident, or act on it (POST with `do`: acknowledge, let-go, end-silence with `id`, note).

    `?open=silence` and `?open=acknowledge` open that dialog over the page.

    Template `dashboards/incident.html`: `incident` (IncidentView), `next_notification`, `cause` (InstanceCard or None),
    `heartbeat_at`: time of its last heartbeat, `state_history` (InstanceStateChangeRow), `polled_at`: time of the
    newest poll, `prior_changes` (PriorChange), `affected` (AffectedAgentsPage), `evidence_choice` (EvidenceChoice
    or None), `failing_channels` (FailingChannel), `silences` (ActiveSilence), `queued_sentence`: which
    notifications are sent although it is silenced, or empty; `dialog_path` and `denied_dialog` (of
    `?open=`, or empty), `agents_link`, `map_links`, `events`, `deliveries`, `custom_runbook` (that of the rule, or
    empty), `rule_names`; `reconnect_query`: of the reconnect page, or `reconnect_refusal`: why there is none;
    `is_fleet_data_stale`: the fleet data is too old to list affected agents; `shows_all_agents`
    (`?all=1`): of the peak, also in a narrow window.
    """
    row = Incident.objects.filter(cluster=cluster, pk=incident_id).first()
    if row is None:
        raise Http404(f"Incident {incident_id} was not found in cluster {cluster}.")
    if request.method == "POST":
        return _handle_post(request, row, cluster)
    now, is_limited_user = record_reader.current_time(), has_cluster_limit(signed_in_user_of(request))
    rules, active_silences = store.read_rules(cluster), alert_presenters.read_active_silences(cluster, now)
    incident_value, can_act = (
        store.incident_of(row),
        has_permission(request.user, Permission.ACT_ON_FLEET, cluster),
    )
    dialog = next((name for name in DIALOGS if name == request.GET.get("open")), "")
    strongest_rule = EvaluationContext(now, 0.0, {rule.name: rule for rule in rules}).strongest_rule(
        incident_value
    )
    context: dict[str, Any] = {
        "page": "incidents",
        "incident": alert_presenters.present_incident(
            row, now, url_prefix_of(cluster), active_silences=active_silences,
            describer=alert_presenters.find_describer(cluster, now),
            runbook=alert_presenters.find_runbook_finder([row], cluster, now).find(incident_value),
        ),
        "next_notification": alert_presenters.next_notification_of(
            row, rules, now, store.read_routes(cluster), active_silences
        ),
        "events": [_event_context_of(entry, now) for entry in row.events.order_by("-at", "-pk")[:100]],
        "deliveries": [
            delivery_rows.delivery_row_of(entry, now, is_limited_user=is_limited_user)
            for entry in row.deliveries.select_related("channel").order_by("-pk")[:50]
        ],
        "prior_changes": prior_changes.find_prior_changes(cluster, row.opened_at, is_limited_user=is_limited_user),
        "rule_names": incident_value.shown_rule_names,
        "custom_runbook": strongest_rule.runbook,
        "failing_channels": read_failing_channels(cluster, now, signed_in_user_of(request)),
        "can_act": can_act,
        "silences": find_active_silences_of(
            incident_value, cluster, now,
            writable_owners_for(signed_in_user_of(request), Permission.ACT_ON_FLEET, cluster),
        ),
        "queued_sentence": describe_queued(read_receivers([row])),
        "dialog_path": f"/incidents/{row.pk}/{dialog}/" if dialog and can_act else "",
        "denied_dialog": "" if can_act else dialog,
        "state_history": history.read_instance_state_changes(
            cluster, _names_in_history_of(row), now, until=incident_value.resolved_at
        ),
    } | _fleet_context_of(request, row, incident_value, now)  # fmt: skip
    return render(request, "dashboards/incident.html", context)


@requires(Permission.VIEW_FLEET)
@require_safe
def incident_agents_csv(
    request: HttpRequest, incident_id: int, cluster: str = DEFAULT_CLUSTER
) -> HttpResponseBase:
    """Send the agents of an incident's copy of its evidence as CSV (agent_csv). Responds with 404 without a copy."""
    row = Incident.objects.filter(cluster=cluster, pk=incident_id).first()
    if row is None:
        raise Http404(f"Incident {incident_id} was not found in cluster {cluster}.")
    try:
        evidence = read_evidence(row.pk)
    except EvidenceError as error:
        raise Http404(
            f"The copy of the evidence of incident {incident_id} cannot be read: {error}."
        ) from error
    if evidence is None:
        raise Http404(f"Incident {incident_id} has no copy of its evidence.")
    chunks = agent_csv.iterate_csv_chunks(
        agent_views_of(evidence, range(len(evidence.ids))), instance_views_of(evidence).values()
    )
    response = HttpResponse(chunks, content_type="text/csv; charset=utf-8; header=present")
    taken_at = to_moment(evidence.taken_at)
    response["Content-Disposition"] = (
        f'attachment; filename="incident-{row.pk}-agents-{taken_at:%Y%m%dT%H%M%SZ}.csv"'
    )
    response["Cache-Control"] = "private, no-store"
    return response


def _names_in_history_of(row: Incident) -> dict[str, str]:
    """Return the names of the instances whose state history explains an incident, by id in that history."""
    if row.cause_kind == CauseKind.CLUSTER.value:
        return {f"{row.cause_kind}/{row.cluster_id}": row.cause_name}
    if row.cause_kind == CauseKind.BACKEND.value:
        auths = Instance.objects.filter(cluster=row.cluster_id, kind=InstanceKind.AUTH.value)
        return {
            f"{row.cause_kind}/{row.cluster_id}": row.cause_name,
            **dict(auths.order_by().values_list("instance_id", "name")),
        }
    return {row.cause_id: row.cause_name}


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


def _fleet_context_of(
    request: HttpRequest, row: Incident, incident_value: incident_values.Incident, now: float
) -> dict[str, Any]:
    """Return whom an incident affects, and the live data of its cause if that can be read."""
    cluster, copy_mark = row.cluster_id, read_copy_mark(row.pk)
    is_resolved = incident_value.state is IncidentState.RESOLVED
    reader = record_reader.reader()
    try:
        table = reader.table(cluster, now)
        summary = reader.summary(cluster, now)
    except StateError:
        table = None
    is_stale = not is_resolved and (table is None or summary.stale)

    def read_live() -> incident_evidence.AffectedAgentsPage:
        if table is None or is_stale:
            return incident_evidence.show_no_agents(
                "The affected agents are not known: the fleet data is out of date."
            )
        indices = affected_agents_of(table, row.key)
        if incident_value.cause.kind is CauseKind.CLUSTER and not incident_value.affected_count:
            # The cluster is reachable again, so its agents are not affected any more.
            indices = indices[:0]
        empty_reason = (
            incident_evidence.explain_no_agents(incident_value, row, table) if not len(indices) else ""
        )
        return incident_evidence.present_live_agents(reader, table, indices, now, empty_reason)

    def read_peak() -> incident_evidence.AffectedAgentsPage:
        return incident_evidence.present_peak_agents(incident_value, row.pk, request.GET.get("page", ""), now)

    affected, evidence_choice = incident_evidence.choose_evidence(
        incident_value, copy_mark, request.GET.get("evidence", ""), read_live, read_peak
    )
    context = {
        "affected": affected,
        "evidence_choice": evidence_choice,
        # A narrow window shows the first ten of a page.
        "shows_all_agents": request.GET.get("all") == "1",
        "agents_link": incident_evidence.agents_link_of(
            incident_value, incident_value.affected_count, copy_mark, url_prefix_of(cluster)
        ),
        "map_links": incident_evidence.map_links_of(incident_value, copy_mark, url_prefix_of(cluster)),
        "is_fleet_data_stale": is_stale,
    }
    return context if table is None else context | _cause_context_of(table, summary, row, now)


def _cause_context_of(table: FleetTable, summary: Summary, row: Incident, now: float) -> dict[str, Any]:
    """Return the live data of the cause of an incident: its card, and whether its agents can be moved."""
    views_by_id = {view.facts.id: view for view in table.instances.values()}
    view = views_by_id.get(row.cause_id)
    card = (
        None
        if view is None
        else presenters.instance_card_of(
            view,
            now,
            {key: instance_view.facts.name for key, instance_view in views_by_id.items()},
            is_stranding=view.facts.index in find_stranding_instances(table),
        )
    )
    query, refusal_reason = alert_presenters.reconnect_query_of(
        row, None if view is None else view.state, table
    )
    return presenters.live_page_context_of(summary, now, "incidents") | {
        "reconnect_query": query,
        "reconnect_refusal": refusal_reason,
        "polled_at": presenters.to_moment_or_none(summary.as_of),
        "cause": card,
        "heartbeat_at": presenters.to_moment_or_none(
            None if card is None else _time_of_age(now, card.heartbeat_age_ms)
        ),
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
            incident_actions.unacknowledge(row, username, now, settings.REFLOAT_PUBLIC_URL)
        elif form_action == "note":
            incident_actions.add_note(row, username, request.POST.get("text", ""), now)
        elif form_action == "end-silence":
            rows = filter_applicable_to(Silence.objects.all(), cluster)
            silence_row = get_object_or_404(rows, pk=parse_row_id(request.POST.get("id", "")))
            require_write(request, Permission.ACT_ON_FLEET, silence_row.cluster)
            change_silence(request, silence_row, "end")
    except ActionError as error:
        refusals.record_and_show(request, sentence_of(error))
    return redirect(f"{url_prefix_of(cluster)}/incidents/{row.pk}/")
