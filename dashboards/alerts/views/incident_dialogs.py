"""The dialogs of one incident: silence its cause, and acknowledge it. A GET changes nothing.

Links in notifications open them over the page of the incident: `?open=silence`, `?open=acknowledge`.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.alerts.forms.silences import IncidentSilenceForm
from dashboards.alerts.silences import previews as silence_previews
from dashboards.alerts.silences.rows import find_active_silences_of
from dashboards.shared import record_reader
from dashboards.shared.pages import sentence_of, signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import requires, writable_owners_for
from dashboards.shared.presenters import age_ms_of, to_moment_or_none
from dashboards.shared.request_actor import signed_in_actor_of
from dashboards.shared.time_zones import format_moment, zone_of_request
from fleet.alerts import incident_actions, store
from fleet.alerts.incident_actions import ActionError, AlreadySilencedError
from fleet.alerts.matchers import Matcher, escape_name, format_matchers
from fleet.models.access import Permission
from fleet.models.alerting import Silence
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.incidents import Incident
from fleet.vocabulary.incidents import IncidentState

#: Values of `?open=` on the page of an incident.
DIALOGS = ("silence", "acknowledge")


@requires(Permission.ACT_ON_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def silence_incident(
    request: HttpRequest, incident_id: int, cluster: str = DEFAULT_CLUSTER
) -> HttpResponseBase:
    """Show the form that silences the cause of an incident, or (POST) silence it.

    Template `dashboards/incident_silence.html`: `incident` (the row), `cause` (its label), `form`, `preview`
    (SilencePreview), `is_resolved`, `silences` (ActiveSilence) that match it already.
    """
    row = _require_incident(incident_id, cluster)
    now, zone = record_reader.current_time(), zone_of_request(request)
    incident = store.incident_of(row)
    form = IncidentSilenceForm(request.POST or None, zone=zone)
    is_resolved = incident.state is IncidentState.RESOLVED
    if request.method == "POST" and not is_resolved and form.is_valid():
        try:
            silence_row = _create_silence(request, row, form, cluster, now)
        except AlreadySilencedError:
            pass  # somebody else was quicker: the page lists that silence
        except ActionError as error:
            form.add_error(None, sentence_of(error))
        else:
            until = format_moment(silence_row.ends_at, now)
            messages.success(request, f"No new notifications about {incident.cause.label} until {until}.")
            return redirect(f"{url_prefix_of(cluster)}/incidents/{row.pk}/")
    writable_owners = writable_owners_for(signed_in_user_of(request), Permission.ACT_ON_FLEET, cluster)
    period = silence_previews.preview_period(request.POST or request.GET, now, zone)
    context: dict[str, Any] = {
        "page": "incidents",
        "incident": row,
        "cause": incident.cause.label,
        "form": form,
        "preview": silence_previews.preview_incident_silence(row, period, zone),
        "is_resolved": is_resolved,
        "silences": find_active_silences_of(incident, cluster, now, writable_owners),
    }
    return render(request, "dashboards/incident_silence.html", context)


@requires(Permission.ACT_ON_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def acknowledge_incident(
    request: HttpRequest, incident_id: int, cluster: str = DEFAULT_CLUSTER
) -> HttpResponseBase:
    """Ask whether to acknowledge an incident, or (POST) acknowledge it.

    Template `dashboards/incident_acknowledge.html`: `incident` (the row), `cause` (its label), `is_resolved`,
    `acknowledged_at`, `acknowledged_age_ms`.
    """
    row = _require_incident(incident_id, cluster)
    now, username = record_reader.current_time(), signed_in_user_of(request).get_username()
    if request.method == "POST":
        if incident_actions.acknowledge(row, username, now, settings.REFLOAT_PUBLIC_URL):
            messages.success(request, "You acknowledged the incident.")
        else:
            row.refresh_from_db()
            is_resolved = row.state == IncidentState.RESOLVED.value
            reason = "is resolved" if is_resolved else f"was acknowledged by {row.acknowledged_by} already"
            messages.info(request, f"Nothing changed: the incident {reason}.")
        return redirect(f"{url_prefix_of(cluster)}/incidents/{row.pk}/")
    context = {
        "page": "incidents",
        "incident": row,
        "cause": store.incident_of(row).cause.label,
        "is_resolved": row.state == IncidentState.RESOLVED.value,
        "acknowledged_at": to_moment_or_none(row.acknowledged_at),
        "acknowledged_age_ms": age_ms_of(row.acknowledged_at, now),
    }
    return render(request, "dashboards/incident_acknowledge.html", context)


def _require_incident(incident_id: int, cluster: str) -> Incident:
    row = Incident.objects.filter(cluster=cluster, pk=incident_id).first()
    if row is None:
        raise Http404(f"Incident {incident_id} was not found in cluster {cluster}.")
    return row


def _create_silence(
    request: HttpRequest, row: Incident, form: IncidentSilenceForm, cluster: str, now: float
) -> Silence:
    actor, ends_at = signed_in_actor_of(request), form.end_after(now, zone_of_request(request))
    matchers = format_matchers([Matcher("cause", escape_name(row.key))])
    return incident_actions.create_silence(
        matchers, form.cleaned_data["reason"], actor.identity.name, now, ends_at, actor, cluster=cluster
    )
