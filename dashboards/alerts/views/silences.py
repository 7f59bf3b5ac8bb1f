"""Silences and maintenance windows, with a preview of what they match. docs/reference/alerts.md, "Silences"."""

from __future__ import annotations

import re
from collections.abc import Collection
from shlex import quote
from typing import Any

import numpy as np
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from dashboards.alerts import presenters as alert_presenters
from dashboards.alerts.forms.silences import SilenceForm, WindowForm
from dashboards.shared import presenters, recent_proof, record_reader, refusals
from dashboards.shared.owners import format_owner
from dashboards.shared.pages import sentence_of, signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import require_write, requires, writable_owners_for
from dashboards.shared.request_actor import signed_in_actor_of
from fleet.alerts import incident_actions, setup_actions, store
from fleet.alerts.evaluator import match_agents
from fleet.alerts.facts import affected_agents_of
from fleet.alerts.incident_actions import ActionError
from fleet.alerts.matchers import (
    CONFIRMATION_WORD,
    MatcherError,
    are_agent_matchers,
    match_names,
    matches_everything,
    matches_incident,
    parse_matchers,
)
from fleet.alerts.silences import WARN_BEFORE_SECONDS
from fleet.models.access import Permission, has_permission
from fleet.models.alerting import MaintenanceWindow, Silence, filter_applicable_to
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.incidents import Incident
from fleet.monitoring.state import StateError
from fleet.vocabulary.incidents import IncidentState

#: Two forms on one page have fields with the same names, so their ids need different prefixes.
_WINDOW_ID_FORMAT = "window_%s"
#: The key of a cause in matchers: `proxy/<id>`.
_CAUSE_KEY_PATTERN = re.compile(r"(?<=cause=)[a-z-]+/[^\s'\"*?\[]+(?=\s|$)")


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def silences(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """List silences and maintenance windows; POST with `do`: silence, extend, end, window, switch, remove.

    Template `dashboards/silences.html`: `active`, `pending`, `expired`, `windows`, `form`, `window_form`, `preview`,
    `is_blank`: the form has no matchers yet.
    """
    form = SilenceForm(initial={"matchers": request.GET.get("matchers", "")})
    window_form = WindowForm(
        auto_id=_WINDOW_ID_FORMAT, initial={"time_zone": "UTC", "rule": "FREQ=WEEKLY;BYDAY=SU"}
    )
    if request.method == "POST":
        require_write(request, Permission.ACT_ON_FLEET, cluster)
        form_action = request.POST.get("do")
        if form_action == "silence":
            form = SilenceForm(request.POST)
        elif form_action == "window":
            window_form = WindowForm(
                request.POST, auto_id=_WINDOW_ID_FORMAT, instance=MaintenanceWindow(cluster=cluster)
            )
        if _handle_post(request, form_action or "", cluster, form, window_form):
            return redirect(f"{url_prefix_of(cluster)}/silences/")
    now = record_reader.current_time()
    text = str(form["matchers"].value() or "")
    silence_rows = filter_applicable_to(Silence.objects.all(), cluster)
    writable_owners = writable_owners_for(signed_in_user_of(request), Permission.ACT_ON_FLEET, cluster)
    context = {
        "page": "incidents",
        "tab": "silences",
        "active": [
            _silence_context_of(row, now, cluster, writable_owners)
            for row in silence_rows.filter(starts_at__lte=now, ends_at__gt=now)
        ],
        "pending": [
            _silence_context_of(row, now, cluster, writable_owners)
            for row in silence_rows.filter(starts_at__gt=now, ends_at__gt=now)
        ],
        "expired": [
            _silence_context_of(row, now, cluster, writable_owners)
            for row in silence_rows.filter(ends_at__lte=now)[:20]
        ],
        "windows": [
            _window_context_of(row, now, writable_owners)
            for row in filter_applicable_to(MaintenanceWindow.objects.all(), cluster)
        ],
        "form": form,
        "window_form": window_form,
        "preview": preview_of(text, cluster, now),
        "is_blank": not text.strip(),
        "can_act": has_permission(request.user, Permission.ACT_ON_FLEET, cluster),
    }
    return render(request, "dashboards/silences.html", context)


@requires(Permission.VIEW_FLEET)
@require_safe
@never_cache
def preview(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show what `?matchers=` would silence now. Template `dashboards/_silence_preview.html`: `preview`, `is_blank`."""
    text = request.GET.get("matchers", "")[:500]
    match_preview = preview_of(text, cluster, record_reader.current_time())
    return render(
        request, "dashboards/_silence_preview.html", {"preview": match_preview, "is_blank": not text.strip()}
    )


def preview_of(text: str, cluster: str, now: float) -> dict[str, Any]:
    """Return what matchers match now: `agents`, `incidents` (names), `everything`, `error` (a sentence, or empty)."""
    match_preview: dict[str, Any] = {"agents": 0, "incidents": [], "everything": False, "error": ""}
    try:
        parsed_matchers = parse_matchers(text)
    except MatcherError as error:
        return match_preview | {"error": sentence_of(error)}
    match_preview["everything"] = matches_everything(parsed_matchers)
    try:
        table = record_reader.reader().table(cluster, now)
    except StateError as error:
        return match_preview | {"error": f"The fleet state cannot be read: {error}."}
    rows = Incident.objects.filter(cluster=cluster).exclude(state=IncidentState.RESOLVED.value)
    if are_agent_matchers(parsed_matchers):
        agent_sets = {
            name: match_names(table.names, patterns)
            for name, patterns in store.read_agent_set_patterns(cluster).items()
        }
        mask = match_agents(table, parsed_matchers, agent_sets)
        matched_rows = [row for row in rows if mask[affected_agents_of(table, row.key)].any()]
        return match_preview | {
            "agents": int(np.count_nonzero(mask)),
            "incidents": [row.cause_name for row in matched_rows],
        }
    matched_rows = [row for row in rows if matches_incident(parsed_matchers, store.incident_of(row))]
    # Count agents once that several incidents affect, for example one of their auth and one of the loss rate.
    affected_agents = {index for row in matched_rows for index in affected_agents_of(table, row.key).tolist()}
    return match_preview | {
        "agents": len(affected_agents),
        "incidents": [row.cause_name or row.key for row in matched_rows],
    }


def _handle_post(
    request: HttpRequest, form_action: str, cluster: str, form: SilenceForm, window_form: WindowForm
) -> bool:
    """Perform the action of a POST. Return whether it is done; False: show the form with its errors."""
    actor, now = signed_in_actor_of(request), record_reader.current_time()
    number = request.POST.get("id", "")
    pk = int(number) if number.isdecimal() and len(number) < 18 else 0
    if form_action in ("extend", "end"):
        row = get_object_or_404(filter_applicable_to(Silence.objects.all(), cluster), pk=pk)
        require_write(request, Permission.ACT_ON_FLEET, row.cluster)
        if form_action == "extend":
            _require_proof_to_silence_everything(request, row.matchers)
        try:
            incident_actions.end_silence(
                row, now, actor
            ) if form_action == "end" else incident_actions.extend_silence(row, 3600.0, now, actor)
        except ActionError as error:
            refusals.record_and_show(request, sentence_of(error))
        return True
    if form_action in ("remove", "switch"):
        window = get_object_or_404(filter_applicable_to(MaintenanceWindow.objects.all(), cluster), pk=pk)
        require_write(request, Permission.ACT_ON_FLEET, window.cluster)
        if form_action == "switch" and not window.enabled:
            _require_proof_to_silence_everything(request, window.matchers)
        if form_action == "remove":
            setup_actions.delete_setting(window, actor)
        else:
            window.enabled = not window.enabled
            setup_actions.save_setting(window, lambda: window.save(update_fields=["enabled"]), actor)
        return True
    if form_action == "silence" and form.is_valid():
        form_data = form.cleaned_data
        if form_data["confirmation"].strip().lower() == CONFIRMATION_WORD:
            _require_proof_to_silence_everything(request, form_data["matchers"])
        try:
            starts_at = incident_actions.starts_at_of(form_data["starts"], now)
            ends_at = starts_at + form_data["duration"]
            incident_actions.create_silence(
                form_data["matchers"], form_data["reason"], actor.identity.name, starts_at, ends_at, actor,
                cluster=cluster, typed_word=form_data["confirmation"],
            )  # fmt: skip
        except (ActionError, MatcherError) as error:
            form.add_error(None, sentence_of(error))
            return False
        return True
    if form_action == "window" and window_form.is_valid():
        _require_proof_to_silence_everything(request, window_form.cleaned_data["matchers"])
        window_form.instance.creator = actor.identity.name[:200]
        setup_actions.save_setting(window_form.instance, window_form.save, actor)
        return True
    return False


def _require_proof_to_silence_everything(request: HttpRequest, matchers: str) -> None:
    """Require a recent sign-in if the matchers silence everything."""
    if matches_everything(parse_matchers(matchers)):
        recent_proof.require(request)


def _replace_cause_keys(matchers: str, cluster: str) -> str:
    """Return matchers with the keys of causes, which contain ids of instances, replaced by the names of the causes."""
    keys = set(_CAUSE_KEY_PATTERN.findall(matchers))
    if not keys:
        return matchers
    names = dict(Incident.objects.filter(cluster=cluster, key__in=keys).values_list("key", "cause_name"))
    return _CAUSE_KEY_PATTERN.sub(lambda match: quote(names.get(match[0], match[0])), matchers)


def _silence_context_of(
    row: Silence, now: float, cluster: str, writable_owners: Collection[str]
) -> dict[str, Any]:
    is_active = row.starts_at <= now < row.ends_at
    return {
        "id": row.pk,
        "matchers_text": _replace_cause_keys(row.matchers, cluster) or "everything",
        "reason": row.reason,
        "creator": row.creator,
        "owner": format_owner(row.cluster),
        "can_act": row.cluster in writable_owners,
        "starts_at": presenters.to_moment_or_none(row.starts_at),
        "starts_age_ms": presenters.age_ms_of(row.starts_at, now),
        "ends_at": presenters.to_moment_or_none(row.ends_at),
        "ends_age_ms": presenters.age_ms_of(row.ends_at, now),
        "ends_soon": is_active and row.ends_at - now <= WARN_BEFORE_SECONDS,
        "preview": preview_of(row.matchers, cluster, now) if is_active else None,
    }


def _window_context_of(
    row: MaintenanceWindow, now: float, writable_owners: Collection[str]
) -> dict[str, Any]:
    window = store.window_of(row)
    current_silence = window.current_silence(now) if row.enabled else None
    next_silences = window.upcoming_silences(now, 3)
    return {
        "id": row.pk,
        "name": row.name,
        "owner": format_owner(row.cluster),
        "can_act": row.cluster in writable_owners,
        "matchers_text": row.matchers or "everything",
        "schedule": f"{row.rule}, {row.start_time:%H:%M} for {row.length.total_seconds() / 3600:g} h, {row.time_zone}",
        "reason": row.reason,
        "creator": row.creator,
        "enabled": row.enabled,
        "problem": window.problem,
        "is_active": current_silence is not None,
        "next_periods": [
            alert_presenters.format_time_range(silence.starts_at, silence.ends_at)
            for silence in next_silences
        ],
        "has_varying_duration": len({round(silence.ends_at - silence.starts_at) for silence in next_silences})
        > 1,
    }
