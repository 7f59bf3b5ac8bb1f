"""The forms of silences: create, extend, their live preview and suggestions. Each also opens as a dialog."""

from __future__ import annotations

from copy import copy
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from dashboards.alerts.forms.silences import PeriodForm, SilenceForm
from dashboards.alerts.silences import previews as silence_previews
from dashboards.alerts.silences.conditions import describe_matchers
from dashboards.alerts.silences.drafts import ConditionDraft, draft_of_text, read_draft
from dashboards.alerts.silences.matches import read_scope
from dashboards.alerts.silences.periods import extension_seconds_of, list_extensions
from dashboards.alerts.silences.suggestions import find_suggestions
from dashboards.alerts.views.silences import require_proof_to_silence_everything
from dashboards.shared import record_reader
from dashboards.shared.pages import sentence_of, url_prefix_of
from dashboards.shared.permissions import require_write, requires
from dashboards.shared.request_actor import signed_in_actor_of
from dashboards.shared.row_ids import parse_row_id
from dashboards.shared.time_zones import format_moment, zone_of_request
from fleet.alerts import incident_actions
from fleet.alerts.cause_labels import read_cause_names
from fleet.alerts.incident_actions import (
    ActionError,
    AlreadySilencedError,
    SilenceChangedError,
    SilenceEndedError,
)
from fleet.alerts.matchers import CONFIRMATION_WORD, MatcherError, matches_everything, parse_matchers
from fleet.models.access import Permission
from fleet.models.alerting import Silence, filter_applicable_to
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.incidents import Incident


@requires(Permission.ACT_ON_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def new_silence(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the form of a new silence (`?matchers=` fills it in), or (POST) create the silence.

    POST with `do` = `add`, or with `remove`, only changes the conditions of the form. Template
    `dashboards/silence_new.html`: `form`, `preview` (SilencePreview), `duplicate` (a Silence or None),
    `is_confirmation_shown`, `is_editing`, ConditionDraft.context.
    """
    now, zone, duplicate = record_reader.current_time(), zone_of_request(request), None
    if request.method == "POST":
        require_write(request, Permission.ACT_ON_FLEET, cluster)
        draft, params = read_draft(request.POST), request.POST
        if is_editing_conditions(request):
            form = SilenceForm(initial=request.POST.dict(), zone=zone)
        else:
            form = SilenceForm(request.POST, zone=zone)
            if form.is_valid() and not draft.error:
                try:
                    row = _create_silence(request, form, draft.text, cluster, now)
                except AlreadySilencedError as error:
                    duplicate = error.duplicate
                except (ActionError, MatcherError) as error:
                    form.add_error(None, sentence_of(error))
                else:
                    messages.success(request, f"Silenced until {format_moment(row.ends_at, now)}.")
                    return redirect(f"{url_prefix_of(cluster)}/silences/")
    else:
        form = SilenceForm(initial={"reason": request.GET.get("reason", "")[:500]}, zone=zone)
        draft, params = draft_of_text(request.GET.get("matchers", "")), request.GET
    period = silence_previews.preview_period(params, now, zone)
    preview = silence_previews.preview_silence(draft.text, read_scope(cluster, now), period)
    context = {
        "page": "incidents",
        "form": form,
        "preview": preview,
        "duplicate": duplicate,
        "duplicate_end": format_moment(duplicate.ends_at, now) if duplicate else "",
        "is_editing": is_editing_conditions(request),
        "is_confirmation_shown": is_confirmation_needed(form.is_bound, draft),
    }
    return render(request, "dashboards/silence_new.html", context | draft.context(cluster))


@requires(Permission.ACT_ON_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def extend_silence(request: HttpRequest, number: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the ways to extend a silence, or (POST with `period`, `duration`, `seen_end`, `incident`) extend it.

    Template `dashboards/silence_extend.html`: `silence`, `conditions`, `end_text`, `extensions` (ExtensionChoice),
    `duration_field`, `problem`, `has_ended`, `new_query`: of the form of a new silence, `incident_number`.
    """
    row = get_object_or_404(
        filter_applicable_to(Silence.objects.all(), cluster), pk=parse_row_id(str(number))
    )
    require_write(request, Permission.ACT_ON_FLEET, row.cluster)
    now, zone, problem = record_reader.current_time(), zone_of_request(request), ""
    incident_number = parse_row_id((request.POST or request.GET).get("incident", ""))
    form = PeriodForm(request.POST or None, zone=zone)
    if request.method == "POST" and form.is_valid():
        require_proof_to_silence_everything(request, row.matchers)
        seen_row = copy(row)
        seen_row.ends_at = _parse_seconds(request.POST.get("seen_end", ""), row.ends_at)
        custom_seconds = float(form.cleaned_data.get("duration") or 0.0)
        seconds = extension_seconds_of(
            form.cleaned_data["period"], seen_row.ends_at, now, custom_seconds, zone
        )
        try:
            incident_actions.extend_silence(seen_row, seconds, now, signed_in_actor_of(request))
        except (SilenceChangedError, SilenceEndedError, ActionError) as error:
            problem = sentence_of(error)
        else:
            new_end = format_moment(seen_row.ends_at + seconds, now)
            messages.success(request, f"The silence now ends at {new_end}.")
            has_incident = Incident.objects.filter(cluster=cluster, pk=incident_number).exists()
            path = f"incidents/{incident_number}/" if has_incident else "silences/"
            return redirect(f"{url_prefix_of(cluster)}/{path}")
    row.refresh_from_db()
    matchers = parse_matchers(row.matchers)
    context: dict[str, Any] = {
        "page": "incidents",
        "silence": row,
        "seen_end": repr(row.ends_at),
        "conditions": describe_matchers(matchers, read_cause_names([matchers], cluster)) or ["everything"],
        "end_text": format_moment(row.ends_at, now),
        "has_ended": row.ends_at <= now,
        "extensions": list_extensions(row.ends_at, now, zone),
        "duration_field": form["duration"],
        "problem": problem,
        "new_query": urlencode({"matchers": row.matchers, "reason": row.reason}),
        "incident_number": incident_number,
    }
    return render(request, "dashboards/silence_extend.html", context)


@requires(Permission.VIEW_FLEET)
@require_safe
@never_cache
def preview(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show what the fields of a form would silence now; with `incident`, the cause of that incident.

    Template `dashboards/_silence_preview.html`: `preview` (SilencePreview).
    """
    now, zone = record_reader.current_time(), zone_of_request(request)
    period = silence_previews.preview_period(request.GET, now, zone)
    incident_number = parse_row_id(request.GET.get("incident", ""))
    if incident_number:
        row = get_object_or_404(Incident, cluster=cluster, pk=incident_number)
        silence_preview = silence_previews.preview_incident_silence(row, period, zone)
    else:
        draft = read_draft(request.GET)
        silence_preview = silence_previews.preview_silence(draft.text, read_scope(cluster, now), period)
    return render(request, "dashboards/_silence_preview.html", {"preview": silence_preview})


@requires(Permission.VIEW_FLEET)
@require_safe
@never_cache
def suggestions(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Return values for a condition: those of `condition_field` that contain `condition_value`."""
    field, text = (request.GET.get(name, "")[:200] for name in ("condition_field", "condition_value"))
    values_and_labels = find_suggestions(field, text, cluster, record_reader.current_time())
    return JsonResponse(
        {"suggestions": [{"value": value, "label": label} for value, label in values_and_labels]}
    )


def is_editing_conditions(request: HttpRequest) -> bool:
    """Return whether a form was submitted by a button that adds or removes a condition."""
    return request.POST.get("do") == "add" or "remove" in request.POST


def is_confirmation_needed(is_submitted: bool, draft: ConditionDraft) -> bool:
    """Return whether a form asks for the confirmation: not while it is still blank."""
    if draft.error or not (is_submitted or draft.text):
        return False
    return matches_everything(parse_matchers(draft.text))


def _create_silence(
    request: HttpRequest, form: SilenceForm, matchers: str, cluster: str, now: float
) -> Silence:
    form_data, actor = form.cleaned_data, signed_in_actor_of(request)
    if form_data["confirmation"].strip().lower() == CONFIRMATION_WORD:
        require_proof_to_silence_everything(request, matchers)
    starts_at = incident_actions.starts_at_of(form_data["starts"], now)
    return incident_actions.create_silence(
        matchers, form_data["reason"], actor.identity.name, starts_at,
        form.end_after(starts_at, zone_of_request(request)), actor,
        cluster=cluster, typed_word=form_data["confirmation"], now=now,
    )  # fmt: skip


def _parse_seconds(text: str, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default
