"""Export and import of the whole configuration of alerting. docs/reference/alerts.md, "Configuration as YAML"."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from dashboards.alerts.forms.configuration import ImportForm
from dashboards.shared import recent_proof, record_reader, refusals
from dashboards.shared.pages import sentence_of, signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import requires, writable_owners_for
from dashboards.shared.request_actor import signed_in_actor_of
from fleet.alerts.configuration.document import ConfigurationError
from fleet.alerts.setup.configuration import (
    ImportPlan,
    ImportRequest,
    apply_import,
    plan_import,
)
from fleet.alerts.setup.problems import SetupChangedError
from fleet.alerts.setup.stored_configuration import export_configuration
from fleet.models.access import Permission, can_write
from fleet.models.clusters import DEFAULT_CLUSTER


@requires(Permission.CHANGE_CONFIG)
@require_safe
@never_cache
def export_file(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Export the configuration as YAML, without secrets."""
    owners = writable_owners_for(signed_in_user_of(request), Permission.CHANGE_CONFIG, cluster)
    response = HttpResponse(
        export_configuration(cluster, owners), content_type="application/yaml; charset=utf-8"
    )
    response["Content-Disposition"] = 'attachment; filename="refloat-alerting.yaml"'
    return response


@requires(Permission.CHANGE_CONFIG)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def import_page(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Preview an import; POST with `do=apply` applies it.

    Template `dashboards/alerting_import.html`: `form` (ImportForm), `plan` (ImportPlan or None), `confirmation_error`.
    """
    # A document may have secrets, which must not be stored in the session.
    if not recent_proof.is_recent(request):
        return recent_proof.redirect_to_reauthentication(request)
    form = ImportForm(request.POST or None, request.FILES or None)
    plan = None
    if form.is_bound and form.is_valid():
        import_request = _import_request_of(request, form, cluster)
        is_apply = request.POST.get("do") == "apply"
        try:
            if is_apply:
                plan = apply_import(import_request, form.cleaned_data["fingerprint"])
                messages.success(request, _describe_outcome(plan))
                return redirect(f"{url_prefix_of(cluster)}/alerts/channels/")
            plan = plan_import(import_request)
        except ConfigurationError as error:
            if is_apply:
                refusals.record(request, str(error))
            form.add_problems(error)
        except SetupChangedError as error:
            refusals.record(request, str(error))
            form.add_error(None, f"{sentence_of(error)} Preview the import again.")
    context = {"page": "incidents", "tab": "", "form": form, "plan": plan}
    if plan is not None:
        form.set_shown_plan(plan)
    return render(request, "dashboards/alerting_import.html", context)


def _import_request_of(request: HttpRequest, form: forms.Form, cluster: str) -> ImportRequest:
    user = signed_in_user_of(request)
    return ImportRequest(
        cluster=cluster,
        text=form.cleaned_data["document"],
        variables={},
        should_prune=form.cleaned_data["prune"],
        writable_owners=writable_owners_for(user, Permission.CHANGE_CONFIG, cluster),
        can_allow_private=can_write(user, Permission.MANAGE_ACCESS, ""),
        actor=signed_in_actor_of(request),
        creator=user.get_username(),
        now=record_reader.current_time(),
        typed_word=form.cleaned_data["confirmation"],
    )


def _describe_outcome(plan: ImportPlan) -> str:
    count = len(plan.changes)
    return f"The configuration was imported: {count} object{'s' if count != 1 else ''} changed."
