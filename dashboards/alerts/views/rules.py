"""Rules of alerts with their back-test, labels of agents, and rules as YAML. docs/alerts.md, "Rules"."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from dashboards.alerts.forms import LabelForm, RuleForm
from dashboards.fleet import history as alert_history
from dashboards.shared import recent_proof, record_reader, refusals
from dashboards.shared.owners import owner_words
from dashboards.shared.pages import prefix_of, signed_in
from dashboards.shared.permissions import is_known, must_write, owners_for, refusal_to_write, requires
from dashboards.shared.request_actor import author
from dashboards.shared.row_ids import row_id
from fleet.alerts import backtest, rules_yaml, setup_actions, store
from fleet.alerts.facts import match_names
from fleet.alerts.notifications import duration_words
from fleet.alerts.rules import THRESHOLDS, Rule, RuleKind
from fleet.alerts.runbooks import RUNBOOKS
from fleet.models.access import Permission, may
from fleet.models.alerting import AgentLabel, AlertRule, in_cluster
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.inventory import Agent, Instance
from fleet.models.moments import to_moment
from fleet.vocabulary.incidents import Severity

#: The back-test plays so many days at most.
_DAYS = 7


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def rules(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """List rules and labels; POST with `do`: label, unlabel, import.

    Template `dashboards/rules.html`: `rules` (`row`: AlertRule, `owner`, `overridden`, `severity`, `counts`: it holds
    from so many agents on), `labels`, `label_form`, `may_change`.
    """
    form = LabelForm()
    if request.method == "POST":
        must_write(request, Permission.CHANGE_CONFIG, cluster)
        form = LabelForm(request.POST)
        done = _do(request, signed_in(request), cluster, form)
        if done is not None:
            return done
    context = {
        "page": "incidents",
        "tab": "rules",
        "rules": _rows(cluster),
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
        "rules": in_cluster(AlertRule.objects.filter(kind=kind), cluster),
        "others": [other for other in RuleKind if other is not chosen],
    }
    return render(request, "dashboards/runbook.html", context)


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def rule(request: HttpRequest, rule_id: int, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show one rule (0: a new one) with its back-test; change it, try numbers out (`do=try`) or delete it.

    `do=override` makes a copy of an installation's rule that takes its place in this cluster.
    Template `dashboards/rule.html`: `form`, `rule`, `verdict` (a sentence), `played`, `spells`, `may_change`;
    `may_override`; `deleting`: it asks before.
    """
    row = (
        get_object_or_404(in_cluster(AlertRule.objects.all(), cluster), pk=rule_id)
        if rule_id
        else AlertRule()
    )
    user, do = signed_in(request), request.POST.get("do", "")
    writable = owners_for(user, Permission.CHANGE_CONFIG, cluster)
    is_form = request.method == "POST" and do not in ("delete", "override")
    form = RuleForm(request.POST if is_form else None, instance=row, owners=writable or [cluster])
    if request.method == "POST" and do != "try":
        # A new rule is of the owner that the form names: it offers what may be written, and no other.
        must_write(
            request, Permission.CHANGE_CONFIG, row.cluster if rule_id and do != "override" else cluster
        )
        recent_proof.require(request)
        if do == "override" and rule_id:
            own = setup_actions.override(row, cluster, author(request))
            return redirect(f"{prefix_of(cluster)}/alerts/rules/{own.pk}/")
        if do == "delete" and "confirm" in request.POST and not row.builtin and rule_id:
            setup_actions.remove(row, author(request))
            return redirect(f"{prefix_of(cluster)}/alerts/rules/")
        if is_form and form.is_valid():
            setup_actions.keep(row, form.save, author(request))
            messages.success(request, f"The rule {row.name} is kept.")
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
        "may_change": row.cluster in writable if rule_id else bool(writable),
        "may_override": bool(rule_id) and not row.cluster and cluster in writable,
        "deleting": bool(rule_id) and not row.builtin and (do == "delete" or "delete" in request.GET),
    }
    return render(request, "dashboards/rule.html", context)


@requires(Permission.VIEW_FLEET)
@require_safe
def rules_file(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Send the rules of the cluster and those of the installation as YAML."""
    rows = in_cluster(AlertRule.objects.all(), cluster)
    document = rules_yaml.dump(store.rule_of(row) for row in rows)
    answer = HttpResponse(document, content_type="application/yaml; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="refloat-rules.yaml"'
    return answer


def _do(request: HttpRequest, user: User, cluster: str, form: LabelForm) -> HttpResponseBase | None:
    do, here = request.POST.get("do"), f"{prefix_of(cluster)}/alerts/rules/"
    if do == "unlabel":
        row = get_object_or_404(AgentLabel, cluster=cluster, pk=row_id(request.POST.get("label_id", "")))
        setup_actions.remove_label(row, author(request))
        return redirect(here)
    if do == "label" and form.is_valid():
        given = form.cleaned_data
        setup_actions.add_label(cluster, given["pattern"], given["label"], author(request))
        return redirect(here)
    if do == "import":
        try:
            imported = rules_yaml.load(request.POST.get("document", ""))
        except rules_yaml.RulesError as error:
            refusals.complain(request, f"Nothing was taken: {error}.")
            return redirect(here)
        problem = _problem(user, imported)
        if problem:
            refusals.complain(request, f"Nothing was taken: {problem}")
            return redirect(here)
        recent_proof.require(request)
        setup_actions.import_rules(imported, author(request))
        messages.success(request, f"{len(imported)} rules are taken; those of other names stay as they are.")
        return redirect(here)
    return None


def _rows(cluster: str) -> list[dict[str, Any]]:
    """Return the rules that act on a cluster, and which of them it overrides."""
    rows = list(in_cluster(AlertRule.objects.all(), cluster))
    own = {row.name for row in rows if row.cluster}
    return [
        {
            "row": row,
            "owner": owner_words(row.cluster),
            "overridden": not row.cluster and row.name in own,
            "severity": Severity(row.severity),
            "counts": RuleKind(row.kind) in THRESHOLDS,
        }
        for row in rows
    ]


def _problem(user: User, rules: list[Rule]) -> str:
    """Return why rules cannot be imported, as the end of a sentence; empty: they can."""
    kinds = dict(AlertRule.objects.filter(builtin=True).values_list("name", "kind"))
    for rule in rules:
        if kinds.get(rule.name, rule.kind.value) != rule.kind.value:
            return f"{rule.name} is built in, and looks at something else."
        if sentence := refusal_to_write(user, Permission.CHANGE_CONFIG, rule.cluster):
            return f"{rule.name} cannot be written. {sentence}"
        if rule.cluster and not is_known(rule.cluster):
            return f"{rule.name} names the cluster {rule.cluster}, which does not exist."
    return ""


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
    now = record_reader.current_time()
    history = alert_history.read(cluster, now, _DAYS, turns=rule.kind in backtest.BY_INSTANCES)
    if not history.days:
        return "The history is empty yet: there is nothing to play this rule over.", []
    agents = Agent.objects.filter(cluster=cluster, retired=False).count()
    spells = backtest.play(rule, history.changes, agents, now, _labelled(rule, cluster), history.turns)
    names = dict(Instance.objects.filter(cluster=cluster).values_list("instance_id", "name"))
    shown = [
        {
            "at": to_moment(one.began_at),
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
