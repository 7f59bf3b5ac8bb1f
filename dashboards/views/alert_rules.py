"""Rules of alerts with their back-test, labels of agents, and rules as YAML. docs/alerts.md, "Rules"."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from dashboards import alert_history, reading, refusals
from dashboards.forms.alerts import LabelForm, RuleForm
from dashboards.permissions import requires
from dashboards.views.alert_audit import logged, signed_in
from dashboards.views.pages import prefix_of
from fleet.alerts import backtest, rules_yaml, store
from fleet.alerts.facts import match_names
from fleet.alerts.messages import duration_words
from fleet.alerts.rules import Rule, RuleKind
from fleet.alerts.runbooks import RUNBOOKS
from fleet.models.access import Permission, may
from fleet.models.alerting import AgentLabel, AlertRule
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.remembered import Agent, Instance

#: The back-test plays so many days at most.
_DAYS = 7


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def rules(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """List rules and labels; POST with `do`: label, unlabel, import.

    Template `dashboards/rules.html`: `rules` (AlertRule), `labels`, `label_form`, `may_change`.
    """
    form = LabelForm()
    if request.method == "POST":
        user = _may_change(request, cluster)
        form = LabelForm(request.POST)
        done = _do(request, user, cluster, form)
        if done is not None:
            return done
    context = {
        "page": "incidents",
        "tab": "rules",
        "rules": AlertRule.objects.all(),
        "labels": AgentLabel.objects.filter(cluster=cluster),
        "label_form": form,
        "may_change": may(request.user, Permission.CHANGE_CONFIG, cluster),
    }
    return render(request, "dashboards/rules.html", context)


@requires(Permission.VIEW_FLEET)
@require_safe
def runbook(request: HttpRequest, kind: str, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Say what to do about what rules of a kind find.

    Template `dashboards/runbook.html`: `kind` (RuleKind), `runbook` (Runbook), `rules` (AlertRule), `others`.
    """
    if kind not in set(RuleKind):
        raise Http404(f"There is no kind of rule {kind}.")
    chosen = RuleKind(kind)
    context = {
        "page": "incidents",
        "kind": chosen,
        "runbook": RUNBOOKS[chosen],
        "rules": AlertRule.objects.filter(kind=kind),
        "others": [other for other in RuleKind if other is not chosen],
    }
    return render(request, "dashboards/runbook.html", context)


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def rule(request: HttpRequest, rule_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show one rule (0: a new one) with its back-test; change it, try numbers out (`do=try`) or delete it.

    Template `dashboards/rule.html`: `form`, `rule`, `verdict` (a sentence), `played`, `spells`, `may_change`.
    """
    row = get_object_or_404(AlertRule, pk=rule_id) if rule_id else AlertRule()
    may_change = may(request.user, Permission.CHANGE_CONFIG, cluster)
    before = asdict(store.rule_of(row)) if rule_id else None
    form = RuleForm(request.POST if request.method == "POST" else None, instance=row)
    if request.method == "POST" and request.POST.get("do") != "try":
        user = _may_change(request, cluster)
        if request.POST.get("do") == "delete" and not row.builtin and rule_id:
            logged(request, user, cluster, "alert-rule.delete", row.name, before=_plain(before))
            row.delete()
            return redirect(f"{prefix_of(cluster)}/alerts/rules/")
        if form.is_valid():
            saved = form.save()
            logged(
                request, user, cluster, "alert-rule.change" if rule_id else "alert-rule.create", saved.name,
                before=_plain(before), after=_plain(asdict(store.rule_of(saved))),
            )  # fmt: skip
            messages.success(request, f"The rule {saved.name} is kept.")
            return redirect(f"{prefix_of(cluster)}/alerts/rules/")
    tried = _tried(form, row)
    verdict, spells = _played(tried, cluster) if tried is not None else ("", [])
    context = {
        "page": "incidents",
        "tab": "rules",
        "form": form,
        "rule": row,
        "verdict": verdict,
        "played": tried is not None and tried.kind not in backtest.UNPLAYABLE,
        "spells": spells,
        "may_change": may_change,
    }
    return render(request, "dashboards/rule.html", context)


@requires(Permission.VIEW_FLEET)
@require_safe
def rules_file(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Send all rules as YAML."""
    answer = HttpResponse(rules_yaml.dump(store.rules()), content_type="application/yaml; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="refloat-rules.yaml"'
    return answer


def _do(request: HttpRequest, user: User, cluster: str, form: LabelForm) -> HttpResponseBase | None:
    do, here = request.POST.get("do"), f"{prefix_of(cluster)}/alerts/rules/"
    if do == "unlabel":
        row = get_object_or_404(AgentLabel, cluster=cluster, pk=_number(request.POST.get("label_id", "")))
        logged(request, user, cluster, "agent-label.delete", str(row))
        row.delete()
        return redirect(here)
    if do == "label" and form.is_valid():
        given = form.cleaned_data
        made, _ = AgentLabel.objects.get_or_create(
            cluster_id=cluster, pattern=given["pattern"], label=given["label"]
        )
        logged(request, user, cluster, "agent-label.create", str(made))
        return redirect(here)
    if do == "import":
        try:
            found = rules_yaml.load(request.POST.get("document", ""))
        except rules_yaml.RulesError as error:
            refusals.complain(request, f"Nothing was taken: {error}.")
            return redirect(here)
        other = _other_kind(found)
        if other:
            refusals.complain(
                request, f"Nothing was taken: {other} is built in, and looks at something else."
            )
            return redirect(here)
        _take(found)
        logged(
            request,
            user,
            cluster,
            "alert-rules.import",
            f"{len(found)} rules",
            after=[rule.name for rule in found],
        )
        messages.success(request, f"{len(found)} rules are taken; those of other names stay as they are.")
        return redirect(here)
    return None


def _other_kind(found: list[Rule]) -> str:
    """The name of a built-in rule that would look at something else; empty: there is none."""
    kinds = dict(AlertRule.objects.filter(builtin=True).values_list("name", "kind"))
    return next((one.name for one in found if kinds.get(one.name, one.kind.value) != one.kind.value), "")


def _take(found: list[Rule]) -> None:
    for one in found:
        columns = asdict(one) | {"kind": one.kind.value, "severity": int(one.severity)}
        AlertRule.objects.update_or_create(name=one.name, defaults=columns)


def _tried(form: RuleForm, row: AlertRule) -> Rule | None:
    """The rule as the form has it, if it can be read."""
    if not form.is_bound:
        return store.rule_of(row) if row.pk else None
    if not form.is_valid():
        return None
    tried = form.save(commit=False)
    return store.rule_of(tried)


def _played(rule: Rule, cluster: str) -> tuple[str, list[dict[str, Any]]]:
    """What the back-test says, and the times it found, newest first."""
    if rule.kind in backtest.UNPLAYABLE:
        return backtest.UNPLAYABLE[rule.kind], []
    now = reading.current_time()
    history = alert_history.read(cluster, now, _DAYS, turns=rule.kind in backtest.BY_INSTANCES)
    if not history.days:
        return "The history is empty yet: there is nothing to play this rule over.", []
    agents = Agent.objects.filter(cluster=cluster, retired=False).count()
    spells = backtest.play(rule, history.changes, agents, now, _labelled(rule, cluster), history.turns)
    names = dict(Instance.objects.filter(cluster=cluster).values_list("instance_id", "name"))
    shown = [
        {
            "at": datetime.fromtimestamp(one.began_at, UTC),
            "lasted": duration_words(one.seconds),
            "peak": one.peak,
            "cause": names.get(one.cause, one.cause),
        }
        for one in reversed(spells)
    ]
    return backtest.sentence(spells, history.days), shown[:20]


def _labelled(rule: Rule, cluster: str) -> set[str] | None:
    if not rule.label:
        return None
    patterns = store.labels(cluster).get(rule.label, ())
    known = list(Agent.objects.filter(cluster=cluster).values_list("agent_id", "name"))
    mask = match_names([name for _, name in known], patterns)
    return {identity for (identity, _), has in zip(known, mask.tolist(), strict=True) if has}


def _may_change(request: HttpRequest, cluster: str) -> User:
    user = signed_in(request)
    if not may(user, Permission.CHANGE_CONFIG, cluster):
        raise PermissionDenied(f"This needs the permission: {Permission.CHANGE_CONFIG.label}.")
    return user


def _plain(rule: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if rule is None else rule | {"kind": str(rule["kind"]), "severity": int(rule["severity"])}


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 18 else 0
