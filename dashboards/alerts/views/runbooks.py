"""Runbooks: the list, the page of one about an incident or an instance, and the custom text.

docs/reference/alerts.md, "Runbooks".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from dashboards.alerts.forms.runbooks import RunbookTextForm
from dashboards.alerts.instance_repair import read_repair
from dashboards.alerts.runbooks.scopes import RunbookScope, read_scope
from dashboards.alerts.runbooks.text_links import split_paragraphs
from dashboards.shared import presenters, record_reader
from dashboards.shared.owners import format_owner
from dashboards.shared.pages import sentence_of, signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import (
    describe_missing_permission,
    find_write_refusal,
    require_write,
    requires,
    writable_owners_for,
)
from dashboards.shared.request_actor import signed_in_actor_of
from dashboards.shared.row_ids import parse_row_id
from fleet.alerts import store
from fleet.alerts.lifecycle.context import EvaluationContext
from fleet.alerts.rules import RuleKind
from fleet.alerts.runbooks import custom_texts
from fleet.alerts.runbooks.choice import RUNBOOKS_BY_RULE_KIND, choose_runbook_of_rule_kind
from fleet.alerts.runbooks.custom_texts import RunbookTextChangedError, RunbookTextError
from fleet.alerts.runbooks.remedies import RemedyButton, RemedyScope, find_buttons, find_main_button
from fleet.alerts.runbooks.texts import RUNBOOKS
from fleet.models.access import Permission, has_permission
from fleet.models.alerting import AlertRule, filter_applicable_to
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.incidents import Incident
from fleet.models.inventory import Instance
from fleet.monitoring.state import StateError
from fleet.vocabulary.instances import InstanceKind
from fleet.vocabulary.runbooks import RUNBOOKS_PATH, RunbookCause, runbook_path_of

#: Values of `?scope=` in the address of a text.
CLUSTER_SCOPE, INSTALLATION_SCOPE = "cluster", "installation"


@dataclass(frozen=True, slots=True)
class RemedyRow:
    """A remedy with its button, or with the sentence why this user or this incident has none."""

    button: RemedyButton
    sentence: str = ""
    #: Its button helps most.
    is_main: bool = False


@requires(Permission.VIEW_FLEET)
@require_safe
def runbook_list(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """List the runbooks.

    Template `dashboards/runbooks.html`: `runbooks` (cause, meaning, whether it has a custom text).
    """
    texts_by_cause = custom_texts.read_custom_texts(cluster)
    context = {
        "page": "incidents",
        "tab": "runbooks",
        "runbooks": [(cause, RUNBOOKS[cause].meaning, cause in texts_by_cause) for cause in RunbookCause],
    }
    return render(request, "dashboards/runbooks.html", context)


@requires(Permission.VIEW_FLEET)
@require_safe
@never_cache
def runbook(request: HttpRequest, cause: str, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show a runbook; with `?incident=` or `?instance=` what is known of that now, and buttons that act on it.

    Addresses with a kind of rule are of runbooks from before there was one per cause, and lead on to one of those.
    Template `dashboards/runbook.html`: `cause` (RunbookCause), `runbook` (Runbook), `scope` (RunbookScope), `repair`
    (InstanceRepair or None), `rows` (RemedyRow), `custom_text` (RunbookText or None) with `paragraphs` and
    `owner_label`, `edit_scope` (`?scope=` of its form, or empty) or `edit_refusal`, `scope_query`: end of the query of
    that form, `custom_runbook`, `rules`, `other_causes`, `unknown_text`: what was not found, as a sentence or empty;
    presenters.live_page_context_of.
    """
    if cause not in set(RunbookCause):
        return _redirect_old_address(request, cause, cluster)
    runbook_cause, now = RunbookCause(cause), record_reader.current_time()
    incident_text, instance_id = request.GET.get("incident", ""), request.GET.get("instance", "")
    scope = read_scope(cluster, runbook_cause, parse_row_id(incident_text), instance_id, now)
    view = scope.remedies.instance
    custom_text = custom_texts.read_custom_texts(cluster).get(runbook_cause)
    writable_owners = writable_owners_for(signed_in_user_of(request), Permission.CHANGE_CONFIG, cluster)
    context: dict[str, Any] = {
        "page": "incidents",
        "tab": "runbooks",
        "cause": runbook_cause,
        "runbook": RUNBOOKS[runbook_cause],
        "scope": scope,
        "repair": None if view is None else read_repair(cluster, view.facts.id, now),
        "rows": _remedy_rows_of(request, runbook_cause, scope.remedies, cluster),
        "custom_text": custom_text,
        "paragraphs": [] if custom_text is None else split_paragraphs(custom_text.text),
        "owner_label": "" if custom_text is None else format_owner(custom_text.cluster),
        "edit_scope": _choose_scope(None if custom_text is None else custom_text.cluster, writable_owners),
        "edit_refusal": find_write_refusal(request.user, Permission.CHANGE_CONFIG, cluster),
        "custom_runbook": "" if scope.row is None else _custom_runbook_of(scope.row, now),
        "rules": _rules_of(runbook_cause, cluster),
        "other_causes": [other_cause for other_cause in RunbookCause if other_cause is not runbook_cause],
        "scope_query": _query_of(request),
        "unknown_text": _describe_unknown(scope, incident_text, instance_id),
    }  # fmt: skip
    return render(request, "dashboards/runbook.html", _live_context_of(cluster, now) | context)


@requires(Permission.CHANGE_CONFIG)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def runbook_text(request: HttpRequest, cause: str, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the form of the custom text (`?scope=cluster` or `installation`), or (POST) save the text.

    POST names in `seen_version` what it changes: if somebody else changed the text meanwhile, the form comes back with
    what was typed. Template `dashboards/runbook_text.html`: `cause`, `scope`, `owner_label`, `form`, `stored_text`:
    what somebody else wrote meanwhile, `other_scope` and `other_label`: of the other owner that the user may write for;
    `path_back`: of the page that it was opened from, and `scope_query`: the end of the query for that.
    """
    if cause not in set(RunbookCause):
        raise Http404(f"Runbook {cause} was not found.")
    runbook_cause, scope_name = RunbookCause(cause), request.GET.get("scope", CLUSTER_SCOPE)
    owner = "" if scope_name == INSTALLATION_SCOPE else cluster
    require_write(request, Permission.CHANGE_CONFIG, owner)
    stored_text = custom_texts.read_text(owner, runbook_cause)
    shcustom_text = stored_text
    if request.method == "POST":
        form = RunbookTextForm(request.POST)
        if form.is_valid():
            try:
                custom_texts.save_text(
                    owner, runbook_cause, form.cleaned_data["text"], signed_in_actor_of(request),
                    record_reader.current_time(), seen_version=form.cleaned_data["seen_version"],
                )  # fmt: skip
            except RunbookTextChangedError as error:
                stored_text = custom_texts.read_text(owner, runbook_cause)
                form = _renew_form(form, stored_text)
                form.add_error(
                    None, f"{sentence_of(error)} Nothing was saved. Save again to replace that text."
                )
            except RunbookTextError as error:
                form.add_error("text", sentence_of(error))
            else:
                messages.success(request, f"The text of the runbook “{runbook_cause.label}” was saved.")
                return redirect(f"{url_prefix_of(cluster)}{_path_back_of(request, runbook_cause)}")
    else:
        if not stored_text and owner:
            # An override of the installation's text begins with that text.
            shcustom_text = custom_texts.read_text("", runbook_cause)
        version = custom_texts.version_of(stored_text)
        form = RunbookTextForm(initial={"text": shcustom_text, "seen_version": version})
    other_owner = cluster if not owner else ""
    has_other = other_owner in writable_owners_for(
        signed_in_user_of(request), Permission.CHANGE_CONFIG, cluster
    )
    context = {
        "page": "incidents",
        "cause": runbook_cause,
        "scope": _scope_of(owner),
        "owner_label": format_owner(owner),
        "form": form,
        "stored_text": stored_text if form.is_bound and form.non_field_errors() else "",
        "other_scope": _scope_of(other_owner) if has_other else "",
        "other_label": format_owner(other_owner),
        "path_back": _path_back_of(request, runbook_cause),
        "scope_query": _query_of(request),
    }
    return render(request, "dashboards/runbook_text.html", context)


def _path_back_of(request: HttpRequest, cause: RunbookCause) -> str:
    """Return the path of the runbook, about the incident or instance that the form was opened for."""
    incident_id = parse_row_id(request.GET.get("incident", ""))
    return runbook_path_of(
        cause, incident_number=incident_id or None, instance_id=request.GET.get("instance", "")
    )


def _query_of(request: HttpRequest) -> str:
    names = ("incident", "instance")
    query = urlencode({name: request.GET[name] for name in names if request.GET.get(name)})
    return f"&{query}" if query else ""


def _renew_form(form: RunbookTextForm, stored_text: str) -> RunbookTextForm:
    """Return the form with what was typed, based on the text that is stored now."""
    version = custom_texts.version_of(stored_text)
    renewed_form = RunbookTextForm({"text": form.cleaned_data["text"], "seen_version": version})
    renewed_form.is_valid()
    return renewed_form


def _redirect_old_address(request: HttpRequest, kind: str, cluster: str) -> HttpResponseBase:
    """Redirect an address with a kind of rule, which notifications that were sent before have. Raises Http404."""
    if kind not in set(RuleKind):
        raise Http404(f"Runbook {kind} was not found.")
    instance_id = request.GET.get("instance", "")
    instance = (
        Instance.objects.filter(cluster=cluster, instance_id=instance_id).first() if instance_id else None
    )
    cause = choose_runbook_of_rule_kind(
        RuleKind(kind), None if instance is None else InstanceKind(instance.kind)
    )
    path = RUNBOOKS_PATH if cause is None else runbook_path_of(cause, instance_id=instance_id)
    return redirect(f"{url_prefix_of(cluster)}{path}")


def _live_context_of(cluster: str, now: float) -> dict[str, Any]:
    """Return the context for the age of the data; empty while the record cannot be read."""
    try:
        return presenters.live_page_context_of(record_reader.reader().summary(cluster, now), now, "incidents")
    except StateError:
        return {}


def _remedy_rows_of(
    request: HttpRequest, cause: RunbookCause, scope: RemedyScope, cluster: str
) -> list[RemedyRow]:
    rows = [_remedy_row_of(request, button, cluster) for button in find_buttons(cause, scope)]
    main_button = find_main_button((row.button for row in rows), scope)
    return [replace(row, is_main=row.button is main_button) for row in rows]


def _remedy_row_of(request: HttpRequest, button: RemedyButton, cluster: str) -> RemedyRow:
    if button.action is None:
        return RemedyRow(button, button.refusal)
    permission = Permission(button.action.permission)
    if has_permission(request.user, permission, cluster):
        return RemedyRow(button)
    return RemedyRow(
        RemedyButton(button.remedy), describe_missing_permission(request.user, permission, cluster)
    )


def _choose_scope(stored_owner: str | None, writable_owners: list[str]) -> str:
    """Return the scope that the form of a text begins with: that of the shown text, if the user may write it."""
    if not writable_owners:
        return ""
    return _scope_of(stored_owner if stored_owner in writable_owners else writable_owners[0])


def _scope_of(owner: str | None) -> str:
    return CLUSTER_SCOPE if owner else INSTALLATION_SCOPE


def _custom_runbook_of(row: Incident, now: float) -> str:
    """Return the address of the runbook that the rule of an incident has of its own; empty without one."""
    rules = {rule.name: rule for rule in store.read_rules(row.cluster_id)}
    return EvaluationContext(now, 0.0, rules).strongest_rule(store.incident_of(row)).runbook


def _rules_of(cause: RunbookCause, cluster: str) -> list[AlertRule]:
    kinds = [kind.value for kind, causes in RUNBOOKS_BY_RULE_KIND.items() if cause in causes]
    return list(filter_applicable_to(AlertRule.objects.filter(kind__in=kinds), cluster))


def _describe_unknown(scope: RunbookScope, incident_text: str, instance_id: str) -> str:
    """Return what the address names and Refloat does not know, as a sentence; empty if there is nothing."""
    if incident_text and scope.row is None:
        return "This incident was not found in this cluster. The runbook applies to any incident."
    if instance_id and not incident_text and scope.remedies.instance is None:
        return "Refloat has no data about this instance. The runbook applies to any instance."
    return ""
