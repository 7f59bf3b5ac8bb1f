"""Env-driven policies: what instances run with beside what they are to run with, and the way to a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.changes import policy_rows
from dashboards.shared import record_reader, request_actor
from dashboards.shared.pages import needs_record, prefix_of, sentence_of
from dashboards.shared.permissions import must, requires
from dashboards.shared.presenters import number_fields
from fleet.changes import Refused, Stale, engine
from fleet.changes.policies import desired, planning
from fleet.changes.policies import matrix as policy_matrix
from fleet.changes.policies.matrix import Line, Wanted
from fleet.models.access import Permission, may
from fleet.models.changes import Change
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.inventory import Instance
from fleet.protocol.policies import env_policies, policy_json, snippets
from fleet.protocol.policies.env_policies import PLURALS, ROLES, PolicyValueKind, EnvPolicy
from fleet.protocol.recovery import service_config
from fleet.protocol.recovery.service_config import ServiceConfigError
from fleet.vocabulary import rollouts


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD"])
@never_cache
@needs_record
def matrix(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show every instance with its policies; `?drift=1`: only those that differ.

    Template `dashboards/policies.html`: `page`, `tables`, `drifting` (how many), `only_drift`, `can_change`, `gone`
    (what is still wanted of instances that are there no more), `revision`.
    """
    wanted = desired.wanted_of(cluster)
    lines = planning.lines_of(cluster, wanted, record_reader.record())
    only_drift = request.GET.get("drift") == "1"
    here = tuple(line for line in lines if line.drifts or not only_drift)
    context = {
        "page": "policies",
        "tables": policy_rows.tables(here, wanted, record_reader.current_time()),
        "drifting": sum(line.drifts for line in lines),
        "reporting": sum(line.reports for line in lines),
        "unreported": sum(not line.reports for line in lines),
        "only_drift": only_drift,
        "can_change": may(request.user, Permission.CHANGE_CONFIG, cluster),
        "busy": engine.busy_sentence(cluster),
        "gone": [
            {"id": one, "name": _name_of(cluster, one), "values": values}
            for one, values in policy_matrix.gone(lines, wanted).items()
        ],
        "revision": desired.revision_of(wanted),
    }
    return render(request, "dashboards/policies.html", context)


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
def target(request: HttpRequest, target: str, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show what a role or an instance is to run with; or (POST) preview or plan other values of it.

    Template `dashboards/policy_target.html`: `page`, `target`, `title`, `plural`, `fields`, `terms`, `revision`,
    `snippets`, `previews`, `outlook`, `three_way`, `sentence`, `can_change`, `roll_out`, `restartable`,
    `unasked`, `is_gone`.
    """
    wanted = desired.wanted_of(cluster)
    lines = planning.lines_of(cluster, wanted, record_reader.record())
    line = next((one for one in lines if one.id == target), None)
    if target not in ROLES and line is None and target not in wanted:
        raise Http404(f"There is no instance {target} in the cluster {cluster}.")
    role = target if target in ROLES else line.role if line else _role_of(wanted[target])
    edit = Edit(dict(wanted.get(target, {})), desired.revision_of(wanted))
    if request.method == "POST":
        must(request, Permission.CHANGE_CONFIG, cluster)
        edit.values, edit.revision = _sent(request, role), request.POST.get("revision", "")
        planned = _posted(request, cluster, target, role, wanted, edit)
        if planned is not None:
            return redirect(f"{prefix_of(cluster)}/changes/{planned.pk}/")
    values, problems = edit.values, edit.problems
    mine = {**wanted.get(role, {}), **values} if target not in ROLES else values
    context = {
        "page": "policies",
        "target": target,
        "title": f"all {PLURALS[role]}"
        if target in ROLES
        else line.name
        if line
        else _name_of(cluster, target),
        "is_role": target in ROLES,
        "is_gone": target not in ROLES and line is None,
        "role": role,
        "plural": PLURALS[role],
        "fields": _fields(role, values, problems, wanted.get(role, {}) if target not in ROLES else {}, line),
        "terms": number_fields(rollouts.Terms(), request.POST, problems),
        "revision": edit.revision,
        "snippets": snippets.all_of(role, {n: t for n, t in mine.items() if n not in problems}),
        "previews": _previews(mine) if role == "auth" else [],
        "outlook": edit.outlook,
        "three_way": edit.three_way,
        "conflict": edit.conflict,
        "sentence": edit.sentence,
        "can_change": may(request.user, Permission.CHANGE_CONFIG, cluster),
        "roll_out": request.method != "POST" or "roll_out" in request.POST,
        "unasked": any(
            one.asked_at is None for one in lines if one.role == role and target in (one.id, role)
        ),
        "restartable": [
            one.name for one in lines if one.role == role and one.ours and target in (one.id, role)
        ],
    }
    wrong = problems or (edit.sentence and not edit.good)
    return render(request, "dashboards/policy_target.html", context, status=400 if wrong else 200)


@dataclass
class Edit:
    """What somebody makes of the policies of one target."""

    values: dict[str, str]
    #: Of all that is wanted, as they saw it.
    revision: str
    problems: dict[str, str] = field(default_factory=dict)
    sentence: str = ""
    #: The sentence is no refusal.
    good: bool = False
    outlook: dict[str, Any] = field(default_factory=dict)
    #: Somebody else changed what is wanted meanwhile; what either did to these policies.
    conflict: bool = False
    three_way: list[dict[str, Any]] = field(default_factory=list)


def _posted(
    request: HttpRequest, cluster: str, target: str, role: str, wanted: Wanted, edit: Edit
) -> Change | None:
    """Preview, rebase or plan; None when the form is shown again."""
    if "preview" in request.POST:
        _, wrong = env_policies.check(role, edit.values)
        edit.problems = {error.name: error.sentence for error in wrong}
        if not wrong:
            roll_out = "roll_out" in request.POST
            edit.outlook = planning.foreseen(
                cluster, target, edit.values, record_reader.record(), roll_out=roll_out
            )
        return None
    theirs = wanted.get(target, {})
    known = desired.base_of(cluster, edit.revision)
    base = theirs if known is None else known.get(target, {})
    if "rebase" in request.POST:
        edit.values, edit.revision = desired.rebased(base, edit.values, theirs), desired.revision_of(wanted)
        edit.good = True
        edit.sentence = "Your change stands on theirs now. Nothing is wanted yet: look, and plan it."
        return None
    try:
        return planning.plan(
            cluster,
            {**wanted, target: edit.values},
            record_reader.record(),
            revision=edit.revision,
            terms={name: request.POST[name] for name in rollouts.RANGES if name in request.POST},
            roll_out="roll_out" in request.POST,
            by=request_actor.author(request),
            now=timezone.now(),
        )
    except Stale as error:
        edit.conflict = True
        edit.three_way = policy_rows.three_way(role, base, theirs, edit.values)
        edit.sentence = sentence_of(error)
    except Refused as error:
        edit.problems = {name.removeprefix(f"{target}."): why for name, why in error.problems.items()}
        shown = {one.name for one in env_policies.of_role(role)} | set(rollouts.RANGES)
        edit.sentence = "" if set(edit.problems) & shown else sentence_of(error)
    return None


def _sent(request: HttpRequest, role: str) -> dict[str, str]:
    written = {one.name: request.POST.get(one.name, "").strip() for one in env_policies.of_role(role)}
    return {name: text for name, text in written.items() if text}


def _role_of(values: Mapping[str, str]) -> str:
    """The role of an instance that has gone, by what was wanted of it."""
    return next(env_policies.BY_NAME[name].role for name in values)


def _name_of(cluster: str, instance_id: str) -> str:
    """The name an instance had; its id when nobody remembers."""
    found = Instance.objects.filter(cluster=cluster, instance_id=instance_id).values_list("name", flat=True)
    return found.first() or instance_id


def _fields(
    role: str, values: dict[str, str], problems: dict[str, str], of_role: dict[str, str], line: Line | None
) -> list[dict[str, Any]]:
    cells = {cell.policy.name: cell for cell in line.cells} if line else {}
    return [
        {
            "policy": policy,
            "json": policy.kind is PolicyValueKind.JSON,
            "switch": policy.kind is PolicyValueKind.SWITCH,
            # JSON over several lines, if it is any.
            "value": policy_json.document(config, policy.name) if config else values.get(policy.name, ""),
            "problem": problems.get(policy.name, ""),
            "warnings": policy_json.warnings(config) if config else (),
            "default": policy_rows.shown(policy, policy.default),
            "inherits": policy_rows.shown(policy, of_role[policy.name]) if policy.name in of_role else "",
            "now": policy_rows.cell(cells[policy.name]) if policy.name in cells else None,
            "sample": policy_json.document(
                service_config.ServiceConfig(service_config.PickHealthyMode.RECONNECT, ""), policy.name
            )
            if policy.kind is PolicyValueKind.JSON
            else "",
        }
        for policy in env_policies.of_role(role)
        for config in (_config_of(policy, values.get(policy.name, "")),)
    ]


def _config_of(policy: EnvPolicy, text: str) -> service_config.ServiceConfig | None:
    """What a JSON value makes agents do; None for another kind of policy, and for what somebody wrote wrong."""
    if policy.kind is not PolicyValueKind.JSON or not text or policy_json.problems(policy.name, text):
        return None
    return service_config.from_environment({policy.name: text})


def _previews(values: dict[str, str]) -> list[policy_json.DialectPreview]:
    try:
        config = service_config.from_environment(values)
    except ServiceConfigError:
        return []
    return list(policy_json.preview(config))
