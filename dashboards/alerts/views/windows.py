"""The forms of maintenance windows: create, change and delete. Each also opens as a dialog."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from dashboards.alerts.forms.windows import BY_RULE, WindowForm
from dashboards.alerts.silences.drafts import ConditionDraft, draft_of_text, read_draft
from dashboards.alerts.silences.matches import find_text_matches, read_scope
from dashboards.alerts.silences.previews import SilencePreview
from dashboards.alerts.silences.rows import describe_clock_change, describe_window
from dashboards.alerts.views.silence_forms import is_confirmation_needed, is_editing_conditions
from dashboards.alerts.views.silences import require_proof_to_silence_everything
from dashboards.shared import record_reader
from dashboards.shared.pages import sentence_of, signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import require_write, requires
from dashboards.shared.request_actor import signed_in_actor_of
from dashboards.shared.time_zones import read_zone_names, zone_of_request
from fleet.alerts import store
from fleet.alerts.incident_actions import ActionError
from fleet.alerts.matchers import CONFIRMATION_WORD
from fleet.alerts.recurrence.schedules import Repetition
from fleet.alerts.setup import windows as window_actions
from fleet.alerts.setup.windows import WindowChangedError
from fleet.models.access import Permission
from fleet.models.alerting import MaintenanceWindow, filter_applicable_to
from fleet.models.clusters import DEFAULT_CLUSTER

_REPLACE_ADVICE = "Nothing was saved. Save again to replace that change."
#: Labels of the columns that somebody else changed.
_COLUMN_LABELS = {
    "name": "name", "matchers": "conditions", "rule": "days", "first_day": "first day", "start_time": "start",
    "length": "end", "time_zone": "time zone", "reason": "reason",
}  # fmt: skip


@requires(Permission.ACT_ON_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def new_window(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the form of a new maintenance window, or (POST) create the window. See `_show_form`."""
    initial: dict[str, Any] = {
        "repetition": Repetition.WEEKLY.value,
        "weekdays": ["6"],
        "interval": 2,
        "month_day": "1",
        "start_time": "02:00",
        "end_time": "04:00",
        "time_zone": zone_of_request(request).key,
        "rule": "FREQ=WEEKLY;BYDAY=SU",
    }
    if request.method != "POST":
        return _show_form(request, cluster, WindowForm(initial=initial), draft_of_text(""))
    require_write(request, Permission.ACT_ON_FLEET, cluster)
    draft = read_draft(request.POST)
    if is_editing_conditions(request):
        return _show_form(request, cluster, WindowForm(initial=_values_of(request)), draft)
    form = WindowForm(request.POST)
    if form.is_valid() and not draft.error:
        row = MaintenanceWindow(cluster=cluster)
        form.apply_to(row, draft.text)
        _require_proof(request, form, draft.text)
        try:
            window_actions.create_window(
                row, signed_in_user_of(request).get_username(), record_reader.current_time(),
                signed_in_actor_of(request), typed_word=form.cleaned_data["confirmation"],
            )  # fmt: skip
        except ActionError as error:
            form.add_error(None, sentence_of(error))
        else:
            messages.success(request, f"The maintenance window {row.name} is created.")
            return redirect(f"{url_prefix_of(cluster)}/silences/#windows")
    return _show_form(request, cluster, form, draft)


@requires(Permission.ACT_ON_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def window(request: HttpRequest, window_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the form of a maintenance window, or (POST) change the window. See `_show_form`.

    POST names in `seen_version` what it changes: if somebody else changed or deleted the window meanwhile, the form
    comes back with what was typed.
    """
    row = filter_applicable_to(MaintenanceWindow.objects.all(), cluster).filter(pk=window_id).first()
    if row is None and (request.method != "POST" or MaintenanceWindow.objects.filter(pk=window_id).exists()):
        raise Http404(f"Maintenance window {window_id} was not found in cluster {cluster}.")
    require_write(request, Permission.ACT_ON_FLEET, cluster if row is None else row.cluster)
    if row is None:
        # Somebody deleted it: what was typed becomes the form of a new window.
        form = WindowForm(request.POST)
        form.add_error(None, "Somebody deleted this maintenance window. Save the form to create it again.")
        return _show_form(request, cluster, form, read_draft(request.POST))
    if request.method != "POST":
        form = WindowForm(initial=WindowForm.initial_of(row))
        return _show_form(request, cluster, form, draft_of_text(row.matchers), row)
    draft, version = read_draft(request.POST), request.POST.get("seen_version", "")
    if is_editing_conditions(request):
        return _show_form(request, cluster, WindowForm(initial=_values_of(request)), draft, row, version)
    form = WindowForm(request.POST)
    if form.is_valid() and not draft.error:
        changed_row = MaintenanceWindow(
            pk=row.pk, cluster=row.cluster, creator=row.creator, enabled=row.enabled
        )
        form.apply_to(changed_row, draft.text)
        _require_proof(request, form, draft.text)
        try:
            window_actions.change_window(
                changed_row, record_reader.current_time(), signed_in_actor_of(request), seen_version=version,
                typed_word=form.cleaned_data["confirmation"],
            )  # fmt: skip
        except WindowChangedError as error:
            labels = ", ".join(_COLUMN_LABELS[name] for name in error.changed_fields)
            difference = f" Your values differ in: {labels}." if labels else ""
            form.add_error(
                None,
                f"{sentence_of(error)}{difference} {_REPLACE_ADVICE}",
            )
            version = window_actions.version_of(row)
        except ActionError as error:
            form.add_error(None, sentence_of(error))
        else:
            messages.success(request, f"The maintenance window {changed_row.name} is changed.")
            return redirect(f"{url_prefix_of(cluster)}/silences/#windows")
    return _show_form(request, cluster, form, draft, row, version)


@requires(Permission.ACT_ON_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def delete_window(request: HttpRequest, window_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Ask whether to delete a maintenance window, or (POST) delete it.

    Template `dashboards/window_delete.html`: `window` (the row), `sentence`, `is_active`.
    """
    row = filter_applicable_to(MaintenanceWindow.objects.all(), cluster).filter(pk=window_id).first()
    if (
        row is None
        and request.method == "POST"
        and not MaintenanceWindow.objects.filter(pk=window_id).exists()
    ):
        messages.info(request, "The maintenance window was deleted already.")
        return redirect(f"{url_prefix_of(cluster)}/silences/#windows")
    if row is None:
        raise Http404(f"Maintenance window {window_id} was not found in cluster {cluster}.")
    require_write(request, Permission.ACT_ON_FLEET, row.cluster)
    if request.method == "POST":
        name = row.name
        window_actions.delete_window(row, signed_in_actor_of(request))
        messages.success(request, f"The maintenance window {name} is deleted.")
        return redirect(f"{url_prefix_of(cluster)}/silences/#windows")
    now = record_reader.current_time()
    value = store.window_of(row)
    context = {
        "page": "incidents",
        "window": row,
        "sentence": describe_window(value, now),
        "is_active": row.enabled and value.current_silence(now) is not None,
    }
    return render(request, "dashboards/window_delete.html", context)


@requires(Permission.VIEW_FLEET)
@require_safe
@never_cache
def window_preview(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show when the window of a form recurs, and what it would silence now. Template: see `_preview_of`."""
    form, draft = WindowForm(request.GET), read_draft(request.GET)
    form.is_valid()
    return render(request, "dashboards/_silence_preview.html", {"preview": _preview_of(form, draft, cluster)})


def _show_form(
    request: HttpRequest,
    cluster: str,
    form: WindowForm,
    draft: ConditionDraft,
    row: MaintenanceWindow | None = None,
    version: str = "",
) -> HttpResponse:
    """Render the form of a window; `row` None: of a new one.

    Template `dashboards/window.html`: `form`, `window`, `seen_version`, `shown_rule`, `is_advanced_open`, `zone_names`,
    `preview` (SilencePreview), `is_confirmation_shown`, `is_editing`, ConditionDraft.context.
    """
    shown_rule = str(form["rule"].value() or "")
    is_by_rule = form["repetition"].value() == BY_RULE
    if form.is_bound and form.is_valid():
        shown_rule = form.cleaned_data["rule"]
    context: dict[str, Any] = {
        "page": "incidents",
        "form": form,
        "window": row,
        "seen_version": version or (window_actions.version_of(row) if row else ""),
        "shown_rule": shown_rule,
        "is_advanced_open": is_by_rule
        or any(form[name].errors for name in ("rule", "first_day", "duration"))
        or bool(form["duration"].value())
        or bool(draft.matchers_error),
        "zone_names": read_zone_names(),
        "preview": _preview_of(form, draft, cluster),
        "is_editing": is_editing_conditions(request),
        "is_confirmation_shown": is_confirmation_needed(form.is_bound, draft),
    }
    return render(request, "dashboards/window.html", context | draft.context(cluster))


def _preview_of(form: WindowForm, draft: ConditionDraft, cluster: str) -> SilencePreview:
    """Return the sentences of a window, and what it matches now."""
    now = record_reader.current_time()
    matches = find_text_matches(draft.text, read_scope(cluster, now))
    bound_form = (
        form if form.is_bound else WindowForm({**form.initial, "shown_rule": form.initial.get("rule", "")})
    )
    bound_form.is_valid()
    schedule_fields = {"repetition", "weekdays", "interval", "month_day", "start_time", "end_time", "time_zone", "rule",
                       "first_day", "duration"}  # fmt: skip
    wrong_fields = [name for name in bound_form.errors if name in schedule_fields]
    is_blank = not draft.text.strip()
    if wrong_fields:
        return SilencePreview(matches, is_blank, error=str(bound_form.errors[wrong_fields[0]][0]))
    row = MaintenanceWindow(name="preview")
    for name in ("rule", "first_day", "start_time", "length", "time_zone"):
        setattr(row, name, bound_form.cleaned_data[name])
    value = store.window_of(row)
    sentences = [describe_window(value, now), describe_clock_change(value, now)]
    return SilencePreview(matches, is_blank, tuple(filter(None, sentences)), error=_problem_of(value.problem))


def _problem_of(problem: str) -> str:
    return f"{problem[:1].upper()}{problem[1:]}." if problem else ""


def _require_proof(request: HttpRequest, form: WindowForm, matchers: str) -> None:
    if form.cleaned_data["confirmation"].strip().lower() == CONFIRMATION_WORD:
        require_proof_to_silence_everything(request, matchers)


def _values_of(request: HttpRequest) -> dict[str, Any]:
    """Return what was typed into the form, which stays while its conditions are edited."""
    return {**request.POST.dict(), "weekdays": request.POST.getlist("weekdays")}
