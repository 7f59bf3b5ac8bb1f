"""The page of silences and maintenance windows, with their calendar. docs/reference/alerts.md, "Silences"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.alerts.silences import rows as silence_rows
from dashboards.alerts.silences.calendar import CalendarEntry, build_calendar, end_of_calendar
from dashboards.alerts.silences.matches import read_scope
from dashboards.shared import recent_proof, record_reader, refusals
from dashboards.shared.pages import sentence_of, signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import require_write, requires, writable_owners_for
from dashboards.shared.request_actor import signed_in_actor_of
from dashboards.shared.row_ids import parse_row_id
from dashboards.shared.time_zones import zone_of_request
from fleet.alerts import incident_actions, store
from fleet.alerts.incident_actions import ActionError
from fleet.alerts.matchers import matches_everything, parse_matchers
from fleet.alerts.setup import windows as window_actions
from fleet.models.access import Permission, has_permission
from fleet.models.alerting import MaintenanceWindow, Silence, filter_applicable_to
from fleet.models.clusters import DEFAULT_CLUSTER

#: Days of the calendar, and ended silences that the page lists.
_CALENDAR_DAYS, _ENDED_COUNT = 14, 20
_QUICK_EXTENSION_SECONDS = 3600.0


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def silences(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """List silences and maintenance windows; POST with `do`: extend (by 1 h), end, switch (`enabled`: yes or no).

    Template `dashboards/silences.html`: `active`, `pending`, `ended` (SilenceRow), `windows` (WindowRow), `calendar`
    (CalendarDay), `calendar_zone`, `can_act`.
    """
    if request.method == "POST":
        require_write(request, Permission.ACT_ON_FLEET, cluster)
        _handle_post(request, cluster)
        return redirect(f"{url_prefix_of(cluster)}/silences/")
    if "matchers" in request.GET:
        # The address of the form in earlier versions.
        query = urlencode({"matchers": request.GET["matchers"]})
        return redirect(f"{url_prefix_of(cluster)}/silences/new/?{query}")
    now, zone = record_reader.current_time(), zone_of_request(request)
    scope = read_scope(cluster, now)
    rows = filter_applicable_to(Silence.objects.all(), cluster)
    windows = list(filter_applicable_to(MaintenanceWindow.objects.all(), cluster))
    writable_owners = writable_owners_for(signed_in_user_of(request), Permission.ACT_ON_FLEET, cluster)
    active = silence_rows.present_silences(
        rows.filter(starts_at__lte=now, ends_at__gt=now).order_by("ends_at", "pk"),
        now,
        scope,
        writable_owners,
    )
    pending = silence_rows.present_silences(
        rows.filter(starts_at__gt=now, ends_at__gt=now).order_by("starts_at", "pk"),
        now,
        scope,
        writable_owners,
    )
    entries = _calendar_entries_of(
        windows, [*active, *pending], now, end_of_calendar(now, zone, _CALENDAR_DAYS)
    )
    context: dict[str, Any] = {
        "page": "incidents",
        "tab": "silences",
        "active": active,
        "pending": pending,
        "ended": silence_rows.present_silences(
            rows.filter(ends_at__lte=now)[:_ENDED_COUNT], now, scope, writable_owners
        ),
        "windows": silence_rows.present_windows(windows, now, cluster, writable_owners),
        "calendar": build_calendar(entries, now, zone, _CALENDAR_DAYS),
        "calendar_zone": zone.key,
        "can_act": has_permission(request.user, Permission.ACT_ON_FLEET, cluster),
    }
    return render(request, "dashboards/silences.html", context)


def _calendar_entries_of(
    windows: Sequence[MaintenanceWindow],
    silences: Sequence[silence_rows.SilenceRow],
    now: float,
    end: float,
) -> list[CalendarEntry]:
    entries = [
        CalendarEntry(
            ", ".join(row.conditions), row.starts_at.timestamp(), row.ends_at.timestamp(), is_window=False
        )
        for row in silences
        if row.starts_at and row.ends_at
    ]
    for window in windows:
        if window.enabled:
            entries += [
                CalendarEntry(window.name, silence.starts_at, silence.ends_at, is_window=True)
                for silence in store.window_of(window).silences_between(now, end)
            ]
    return entries


def _handle_post(request: HttpRequest, cluster: str) -> None:
    form_action, pk = request.POST.get("do"), parse_row_id(request.POST.get("id", ""))
    if form_action in ("extend", "end"):
        row = get_object_or_404(filter_applicable_to(Silence.objects.all(), cluster), pk=pk)
        require_write(request, Permission.ACT_ON_FLEET, row.cluster)
        change_silence(request, row, form_action)
    elif form_action == "switch":
        window = get_object_or_404(filter_applicable_to(MaintenanceWindow.objects.all(), cluster), pk=pk)
        require_write(request, Permission.ACT_ON_FLEET, window.cluster)
        # Not the opposite of the stored value: somebody else may have switched it meanwhile.
        is_enabled = request.POST.get("enabled", "no" if window.enabled else "yes") == "yes"
        if is_enabled and not window.enabled:
            require_proof_to_silence_everything(request, window.matchers)
        state = "enabled" if is_enabled else "disabled"
        if window_actions.set_window_enabled(window, signed_in_actor_of(request), is_enabled=is_enabled):
            messages.success(request, f"The maintenance window {window.name} is {state}.")
        else:
            messages.info(request, f"The maintenance window {window.name} was {state} already.")


def change_silence(request: HttpRequest, row: Silence, form_action: str) -> None:
    """Extend a silence by 1 h (`extend`) or end it (`end`), and show the outcome on the next page."""
    actor, now = signed_in_actor_of(request), record_reader.current_time()
    if form_action == "extend":
        require_proof_to_silence_everything(request, row.matchers)
        try:
            incident_actions.extend_silence(row, _QUICK_EXTENSION_SECONDS, now, actor)
        except ActionError as error:
            refusals.record_and_show(request, sentence_of(error))
    elif incident_actions.end_silence(row, now, actor):
        messages.success(request, "The silence has ended. Notifications continue.")
    else:
        messages.info(request, "The silence had ended already.")


def require_proof_to_silence_everything(request: HttpRequest, matchers: str) -> None:
    """Require a recent sign-in if the matchers silence everything."""
    if matches_everything(parse_matchers(matchers)):
        recent_proof.require(request)
