"""Incidents: the list, and the page a message leads to at three in the morning. docs/alerts.md."""

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
from dashboards.shared.pages import prefix_of, signed_in
from dashboards.shared.permissions import requires
from dashboards.shared.request_actor import author
from fleet.alerts import incident_actions, store
from fleet.alerts.evaluator import count_open
from fleet.alerts.facts import agents_of
from fleet.alerts.incident_actions import ActError
from fleet.alerts.lifecycle import Look
from fleet.alerts.matchers import MatchError
from fleet.models.access import Permission, is_limited, may
from fleet.models.alerting import AlertClock
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.incidents import Incident, IncidentEvent
from fleet.monitoring.state import StateError
from fleet.vocabulary.incidents import OPEN, CauseKind, IncidentState, TimelineKind

_PAST = 50
_AGENTS = 50


@requires(Permission.VIEW_FLEET)
@require_safe
def incidents(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """List open incidents, worst first, and those that are over.

    Template `dashboards/incidents.html`: `open`, `pending`, `past` (IncidentView), `quiet`: how many of `open` the
    badge leaves out, `looked`, `looked_ms`: when somebody last looked.
    """
    now = record_reader.current_time()
    prefix = prefix_of(cluster)
    rows = Incident.objects.filter(cluster=cluster)
    unresolved = rows.exclude(state=IncidentState.RESOLVED.value).annotate(
        explained=Case(When(inhibited_by="", then=Value(0)), default=Value(1), output_field=IntegerField())
    )
    shown = list(unresolved.order_by("explained", "-severity", "-affected", "-opened_at")[:500])
    names, quiet = alert_presenters.names_of(shown), alert_presenters.quiet_in(cluster, now)
    current = [alert_presenters.incident_view(row, now, prefix, names, quiet=quiet) for row in shown]
    over = rows.filter(state=IncidentState.RESOLVED.value).order_by("-resolved_at")[:_PAST]
    clock = AlertClock.objects.filter(cluster=cluster).first()
    opened = [row for row in current if row.state != IncidentState.PENDING.value]
    context = {
        "page": "incidents",
        "tab": "incidents",
        "open": opened,
        "quiet": sum(1 for row in opened if row.silenced_by or row.inhibited_by),
        "pending": [row for row in current if row.state == IncidentState.PENDING.value],
        "past": [alert_presenters.incident_view(row, now, prefix, quiet=quiet) for row in over],
        "looked": presenters.moment(clock.looked_at if clock else None),
        "looked_ms": presenters.age_ms(clock.looked_at if clock else None, now),
    }
    return render(request, "dashboards/incidents.html", context)


@requires(Permission.VIEW_FLEET)
@require_safe
@never_cache
def badge(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """How many incidents are open, and what was told last, for pages without a live link."""
    rows = Incident.objects.filter(cluster=cluster, state__in=OPEN)
    told = IncidentEvent.objects.filter(
        incident__cluster=cluster, kind=TimelineKind.NOTICE.value
    ).select_related("incident")
    newest = told.order_by("-pk").first()
    quiet = alert_presenters.quiet_in(cluster, record_reader.current_time())
    opened = count_open(alert_presenters.silenced(row, quiet) for row in rows)
    return JsonResponse({"open": opened, "newest": alert_presenters.told_line(newest)})


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def incident(request: HttpRequest, incident_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show one incident, or act on it (POST with `do`: acknowledge, let-go, silence, note).

    Template `dashboards/incident.html`: `incident` (IncidentView), `next`, `cause` (InstanceCard or None),
    `heartbeat`: when its last one was, `turns` (TurnLine), `seen`: when the newest round concluded, `before` (Before),
    `common`, `agents` (AgentRow), `more`, `events`, `deliveries`, `runbook`, `marks`, `pictures`
    (incident_figures.pictures); `reconnect`: the query of the page that plans one, or `unmovable`: why there is none;
    `unseen`: nobody can say now which agents it harms.
    """
    row = Incident.objects.filter(cluster=cluster, pk=incident_id).first()
    if row is None:
        raise Http404(f"There is no incident {incident_id} in the cluster {cluster}.")
    if request.method == "POST":
        return _act(request, row, cluster)
    now, limited = record_reader.current_time(), is_limited(signed_in(request))
    rules, quiet = store.rules(cluster), alert_presenters.quiet_in(cluster, now)
    value = store.value_of(row)
    strongest = Look(now, 0.0, {rule.name: rule for rule in rules}).strongest(value)
    context: dict[str, Any] = {
        "page": "incidents",
        "incident": alert_presenters.incident_view(row, now, prefix_of(cluster), quiet=quiet),
        "next": alert_presenters.next_message(row, rules, now, store.routes(cluster), quiet),
        "events": [_event(one, now) for one in row.events.order_by("-at", "-pk")[:100]],
        "deliveries": [
            alert_presenters.delivery_row(one, now, limited=limited)
            for one in row.deliveries.select_related("channel").order_by("-pk")[:50]
        ],
        "before": alert_presenters.changed_before(cluster, row.opened_at, limited=limited),
        "marks": sorted(value.marks),
        "runbook": strongest.runbook
        or f"{prefix_of(cluster)}/alerts/runbooks/{strongest.kind.value}/",
        "may_act": may(request.user, Permission.ACT_ON_FLEET, cluster),
        "turns": history.turns_of(cluster, _in_history(row), now),
    } | _live(row, cluster, now)  # fmt: skip
    return render(request, "dashboards/incident.html", context)


def _in_history(row: Incident) -> str:
    """What the history of instances calls a cause."""
    whole = row.cause_kind in (CauseKind.BACKEND.value, CauseKind.CLUSTER.value)
    return f"{row.cause_kind}/{row.cluster_id}" if whole else row.cause_id


def _before(now: float, ms: int | None) -> float | None:
    return None if ms is None else now - ms / 1000


def _event(one: IncidentEvent, now: float) -> dict[str, Any]:
    at = {"at": presenters.moment(one.at), "ms": presenters.age_ms(one.at, now)}
    return at | {"kind": one.kind, "who": one.who, "text": one.text}


def _live(row: Incident, cluster: str, now: float) -> dict[str, Any]:
    """What the record says of it now; nothing when it cannot be read."""
    reader = record_reader.reader()
    try:
        table = reader.table(cluster, now)
        summary = reader.summary(cluster, now)
    except StateError:
        return {"unseen": row.state != IncidentState.RESOLVED.value}
    known = {view.facts.id: view for view in table.instances.values()}
    over = row.state == IncidentState.RESOLVED.value
    indices = agents_of(table, row.key)[:0] if over else agents_of(table, row.key)
    view = known.get(row.cause_id)
    card = (
        None
        if view is None
        else presenters.instance_card(view, now, {key: one.facts.name for key, one in known.items()})
    )
    query, why_not = alert_presenters.reconnect_query(row, None if view is None else view.state, table)
    return presenters.frame(summary, now, "incidents") | {
        "agents": [
            presenters.agent_row(reader.agent(table, int(index)), known, now) for index in indices[:_AGENTS]
        ],
        "more": max(0, len(indices) - _AGENTS),
        "reconnect": query,
        "unmovable": why_not,
        "common": alert_presenters.in_common(table, indices),
        "seen": presenters.moment(summary.as_of),
        "unseen": summary.stale and not over,
        "cause": card,
        "heartbeat": presenters.moment(None if card is None else _before(now, card.heartbeat_ms)),
        "pictures": incident_figures.pictures(table, indices),
    }


def _act(request: HttpRequest, row: Incident, cluster: str) -> HttpResponseBase:
    user = request.user
    if not isinstance(user, User) or not may(user, Permission.ACT_ON_FLEET, cluster):
        return render(
            request, "403.html", {"exception": "This needs the right to act on the fleet."}, status=403
        )
    now, who = record_reader.current_time(), user.get_username()
    do = request.POST.get("do", "")
    try:
        if do == "acknowledge":
            incident_actions.acknowledge(row, who, now, settings.REFLOAT_PUBLIC_URL)
        elif do == "let-go":
            incident_actions.let_go(row, who, now)
        elif do == "note":
            incident_actions.note(row, who, request.POST.get("text", ""), now)
        elif do == "silence":
            made = incident_actions.silence(
                f"cause={row.key}", request.POST.get("reason", ""), who, now, now + 3600, author(request),
                cluster=cluster,
            )  # fmt: skip
            said = f"{who} silenced it for an hour: {made.reason}"
            incident_actions.tell(row, TimelineKind.SILENCED, who, said, now)
            messages.success(request, "It is silenced for an hour.")
    except (ActError, MatchError) as error:
        refusals.complain(request, f"{error}.")
    return redirect(f"{prefix_of(cluster)}/incidents/{row.pk}/")
