"""Alert rules with their backtest, agent sets, and rules as YAML. docs/reference/alerts.md, "Alert rules"."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from dashboards.alerts.backtest_results import backtest_rule
from dashboards.alerts.forms.rules import AgentSetForm, RuleForm
from dashboards.shared import recent_proof, refusals
from dashboards.shared.owners import format_owner
from dashboards.shared.pages import signed_in_user_of, url_prefix_of
from dashboards.shared.permissions import (
    find_write_refusal,
    is_known_cluster,
    require_write,
    requires,
    writable_owners_for,
)
from dashboards.shared.request_actor import signed_in_actor_of
from dashboards.shared.row_ids import parse_row_id
from fleet.alerts import rules_yaml, setup_actions, store
from fleet.alerts.rules import Rule, describe_condition, describe_notifications
from fleet.models.access import Permission, has_permission
from fleet.models.alerting import AgentSet, AlertRule, filter_applicable_to
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary.incidents import Severity


@requires(Permission.VIEW_FLEET)
@require_safe
def first_page(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Redirect to the first page about alerts: what is at a part of their URLs."""
    del cluster
    return redirect(f"{request.path}rules/", permanent=True)


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def rules(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """List alert rules and agent sets; POST with `do`: add-agent-set, remove-agent-set, import.

    Template `dashboards/rules.html`: `rules` (`row`: AlertRule, `owner`, `is_overridden`, `severity`, `condition` and
    `notifications` as texts), `agent_sets`, `agent_set_form`, `can_change`.
    """
    form = AgentSetForm()
    if request.method == "POST":
        require_write(request, Permission.CHANGE_CONFIG, cluster)
        form = AgentSetForm(request.POST)
        response = _handle_post(request, signed_in_user_of(request), cluster, form)
        if response is not None:
            return response
    context = {
        "page": "incidents",
        "tab": "rules",
        "rules": _rule_rows_of(cluster),
        "agent_sets": AgentSet.objects.filter(cluster=cluster),
        "agent_set_form": form,
        "can_change": has_permission(request.user, Permission.CHANGE_CONFIG, cluster),
    }
    return render(request, "dashboards/rules.html", context)


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def rule(request: HttpRequest, rule_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show one rule (0: a new one) with its backtest; save it, backtest unsaved values (`do=try`) or delete it.

    `do=override` copies a rule of the whole installation to this cluster, where the copy replaces it.
    Template `dashboards/rule.html`: `form`, `rule`, `backtest` (RuleBacktest, or None without valid values),
    `can_change`; `can_override`; `is_deleting`: the deletion is being confirmed.
    """
    row = (
        get_object_or_404(filter_applicable_to(AlertRule.objects.all(), cluster), pk=rule_id)
        if rule_id
        else AlertRule()
    )
    user, form_action = signed_in_user_of(request), request.POST.get("do", "")
    writable_owners = writable_owners_for(user, Permission.CHANGE_CONFIG, cluster)
    is_rule_submitted = request.method == "POST" and form_action not in ("delete", "override")
    form = RuleForm(
        request.POST if is_rule_submitted else None, instance=row, owners=writable_owners or [cluster]
    )
    if request.method == "POST" and form_action != "try":
        # The form of a new rule offers only owners for which the user may write rules.
        require_write(
            request,
            Permission.CHANGE_CONFIG,
            row.cluster if rule_id and form_action != "override" else cluster,
        )
        recent_proof.require(request)
        if form_action == "override" and rule_id:
            override = setup_actions.override_rule(row, cluster, signed_in_actor_of(request))
            return redirect(f"{url_prefix_of(cluster)}/alerts/rules/{override.pk}/")
        if form_action == "delete" and "confirm" in request.POST and not row.builtin and rule_id:
            setup_actions.delete_setting(row, signed_in_actor_of(request))
            return redirect(f"{url_prefix_of(cluster)}/alerts/rules/")
        if is_rule_submitted and form.is_valid():
            setup_actions.save_setting(row, form.save, signed_in_actor_of(request))
            messages.success(request, f"Rule {row.name} was saved.")
            return redirect(f"{url_prefix_of(cluster)}/alerts/rules/")
    candidate_rule = _build_candidate_rule(form, row)
    rule_backtest = None if candidate_rule is None else backtest_rule(candidate_rule, cluster)
    context = {
        "page": "incidents",
        "tab": "rules",
        "form": form,
        "outside_names": ("name", "enabled", "runbook", "cluster"),
        "rule": row,
        "backtest": rule_backtest,
        "can_change": row.cluster in writable_owners if rule_id else bool(writable_owners),
        "can_override": bool(rule_id) and not row.cluster and cluster in writable_owners,
        "is_deleting": bool(rule_id)
        and not row.builtin
        and (form_action == "delete" or "delete" in request.GET),
    }
    return render(request, "dashboards/rule.html", context)


@requires(Permission.VIEW_FLEET)
@require_safe
def rules_file(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Export the rules of the cluster and those of the whole installation as YAML."""
    rows = filter_applicable_to(AlertRule.objects.all(), cluster)
    document = rules_yaml.dump(store.rule_of(row) for row in rows)
    response = HttpResponse(document, content_type="application/yaml; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="refloat-rules.yaml"'
    return response


def _handle_post(
    request: HttpRequest, user: User, cluster: str, form: AgentSetForm
) -> HttpResponseBase | None:
    form_action, list_url = request.POST.get("do"), f"{url_prefix_of(cluster)}/alerts/rules/"
    if form_action == "remove-agent-set":
        row = get_object_or_404(
            AgentSet, cluster=cluster, pk=parse_row_id(request.POST.get("agent_set_id", ""))
        )
        setup_actions.remove_agent_set_pattern(row, signed_in_actor_of(request))
        return redirect(list_url)
    if form_action == "add-agent-set" and form.is_valid():
        form_data = form.cleaned_data
        setup_actions.add_agent_set_pattern(
            cluster, form_data["pattern"], form_data["name"], signed_in_actor_of(request)
        )
        return redirect(list_url)
    if form_action == "import":
        try:
            imported_rules = rules_yaml.load(request.POST.get("document", ""))
        except rules_yaml.RulesError as error:
            refusals.record_and_show(request, f"No rules were imported: {error}.")
            return redirect(list_url)
        problem = _find_import_problem(user, imported_rules)
        if problem:
            refusals.record_and_show(request, f"No rules were imported: {problem}")
            return redirect(list_url)
        recent_proof.require(request)
        setup_actions.import_rules(imported_rules, signed_in_actor_of(request))
        messages.success(
            request,
            f"{len(imported_rules)} rule{'s' if len(imported_rules) != 1 else ''} imported. All other "
            "rules are unchanged.",
        )
        return redirect(list_url)
    return None


def _rule_rows_of(cluster: str) -> list[dict[str, Any]]:
    """Return the table rows of the rules that apply to a cluster or that the cluster overrides."""
    rows = list(filter_applicable_to(AlertRule.objects.all(), cluster))
    overridden_names = {row.name for row in rows if row.cluster}
    return [
        {
            "row": row,
            "owner": format_owner(row.cluster),
            "is_overridden": not row.cluster and row.name in overridden_names,
            "severity": Severity(row.severity),
            "condition": describe_condition(store.rule_of(row)),
            "notifications": describe_notifications(store.rule_of(row)),
        }
        for row in rows
    ]


def _find_import_problem(user: User, rules: list[Rule]) -> str:
    """Return why rules cannot be imported, as the end of a sentence; empty if they can."""
    builtin_kinds = dict(AlertRule.objects.filter(builtin=True).values_list("name", "kind"))
    for rule in rules:
        if builtin_kinds.get(rule.name, rule.kind.value) != rule.kind.value:
            return f"{rule.name} is a built-in rule of kind {builtin_kinds[rule.name]}, and the kind cannot be changed."
        if sentence := find_write_refusal(user, Permission.CHANGE_CONFIG, rule.cluster):
            return f"{rule.name} cannot be changed. {sentence}"
        if rule.cluster and not is_known_cluster(rule.cluster):
            return f"{rule.name} belongs to cluster {rule.cluster}, which was not found."
    return ""


def _build_candidate_rule(form: RuleForm, row: AlertRule) -> Rule | None:
    """Return the rule with the values of the form; None if they are not valid."""
    if not form.is_bound:
        return store.rule_of(row) if row.pk else None
    if not form.is_valid():
        return None
    rule_row = form.save(commit=False)
    return store.rule_of(rule_row)
