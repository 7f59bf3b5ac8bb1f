"""Small edits of policies: one value of the matrix, or a preset. docs/reference/policies.md, "Matrix"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.changes import policy_rows
from dashboards.shared import record_reader, request_actor
from dashboards.shared.capabilities.views import needs_capability
from dashboards.shared.pages import needs_record, sentence_of, url_prefix_of
from dashboards.shared.permissions import requires
from dashboards.shared.presenters import number_fields_of, read_typed_settings
from fleet.changes import ChangeRefusedError
from fleet.changes.policies import desired_state, planner, restart_times
from fleet.changes.policies.matrix import InstanceRow
from fleet.models.access import Permission
from fleet.models.changes import Change
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.protocol import durations
from fleet.protocol.policies import env_policies
from fleet.protocol.policies.env_policies import BY_NAME, PLURALS, EnvPolicy, PolicyValueKind
from fleet.protocol.policies.presets import PRESETS_BY_SLUG, options_of
from fleet.vocabulary import rollouts
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.rollouts import RolloutSettings

#: The option of a value that was typed.
_TYPED_OPTION = "typed"


@requires(Permission.CHANGE_CONFIG)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
@needs_capability(Capability.POLICIES, "Policies")
def policy_cell(
    request: HttpRequest, target: str, name: str, cluster: str = DEFAULT_CLUSTER
) -> HttpResponseBase:
    """Show the form of one policy of a role or an instance, or (POST) plan another value.

    Template `dashboards/policy_cell.html`: `page`, `policy`, `owner`, `target`, `values` (policy_rows), `options`
    (PolicyOption, is selected), `value` (that no option has), `is_typed`, `is_unmanaged`, `restart_names`,
    `duration_text`, `fields` (rollout settings), `problem`, `problems`, `sentence`.
    """
    policy = BY_NAME.get(name)
    desired_values = desired_state.desired_values_of(cluster)
    rows = planner.instance_rows_of(cluster, desired_values, record_reader.take_record_snapshot())
    instance_row = next((row for row in rows if row.id == target), None)
    if policy is None or policy.role != (instance_row.role if instance_row else target):
        raise Http404(f"Policy {name} of {target} was not found in cluster {cluster}.")
    desired_value = desired_values.get(target, {}).get(name, "")
    submitted_value = _submitted_value_of(request) if request.method == "POST" else desired_value
    problems: dict[str, str] = {}
    sentence, is_typed = "", False
    if request.method == "POST":
        values = {key: text for key, text in desired_values.get(target, {}).items() if key != name}
        is_typed = request.POST.get("option") == _TYPED_OPTION
        if submitted_value or is_typed:
            values[name] = submitted_value
        try:
            change = _plan(request, cluster, {**desired_values, target: values})
            return redirect(f"{url_prefix_of(cluster)}/changes/{change.pk}/")
        except ChangeRefusedError as error:
            problems = {key.removeprefix(f"{target}."): text for key, text in error.problems.items()}
            if is_typed and not submitted_value:
                problems[name] = "enter a value, or select another option"
            sentence = "" if set(problems) & {name, *rollouts.SETTING_RANGES} else sentence_of(error)
    context = {
        "page": "policies",
        "policy": policy,
        "target": target,
        "owner": instance_row.name if instance_row else f"all {PLURALS[policy.role]}",
        "values": policy_rows.values_context_of(policy, desired_values, target, rows),
        **_option_context_of(policy, submitted_value, is_typed=is_typed),
        **_rollout_context_of(request, cluster, rows, policy.role, target, problems),
        "problem": problems.get(name, ""),
        "problems": problems,
        "sentence": sentence,
    }
    status = 400 if problems or sentence else 200
    return render(request, "dashboards/policy_cell.html", context, status=status)


@requires(Permission.CHANGE_CONFIG)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
@needs_capability(Capability.POLICIES, "Policies")
def policy_preset(request: HttpRequest, slug: str, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show a preset, or (POST) plan its values.

    Template `dashboards/policy_preset.html`: `page`, `preset`, `is_in_effect`, `parts` (label, value before, value
    after), `sentence`.
    """
    preset = PRESETS_BY_SLUG.get(slug)
    if preset is None:
        raise Http404(f"Preset {slug} was not found.")
    desired_values = desired_state.desired_values_of(cluster)
    sentence = ""
    if request.method == "POST":
        try:
            change = _plan(request, cluster, preset.apply_to(desired_values))
            return redirect(f"{url_prefix_of(cluster)}/changes/{change.pk}/")
        except ChangeRefusedError as error:
            sentence = sentence_of(error)
    context = {
        "page": "policies",
        "preset": preset,
        "is_in_effect": preset.is_in_effect(desired_values),
        "parts": policy_rows.preset_parts_of(preset, desired_values),
        "sentence": sentence,
    }
    return render(request, "dashboards/policy_preset.html", context, status=400 if sentence else 200)


def _plan(request: HttpRequest, cluster: str, desired_values: Mapping[str, Mapping[str, str]]) -> Change:
    """Plan a change from the present desired values, and return it. Raises ChangeRefusedError."""
    return planner.plan_change(
        cluster,
        desired_values,
        record_reader.take_record_snapshot(),
        revision=desired_state.revision_of(desired_state.desired_values_of(cluster)),
        rollout_settings=read_typed_settings(RolloutSettings, rollouts.SETTING_RANGES, request.POST),
        should_roll_out=request.POST.get("roll_out", "on") == "on",
        actor=request_actor.signed_in_actor_of(request),
        now=timezone.now(),
    )


def _submitted_value_of(request: HttpRequest) -> str:
    """Return the value that was typed, or else that of the selected option; empty: not managed."""
    option = request.POST.get("option", "").strip()
    return request.POST.get("value", "").strip() or ("" if option == _TYPED_OPTION else option)


def _option_context_of(policy: EnvPolicy, submitted_value: str, *, is_typed: bool) -> dict[str, Any]:
    options = [
        (
            option,
            bool(submitted_value) and env_policies.is_same_value(policy.name, option.text, submitted_value),
        )
        for option in options_of(policy)
    ]
    has_option = any(is_selected for _, is_selected in options)
    return {
        "options": options,
        "is_typed": not has_option and (is_typed or bool(submitted_value)),
        "is_unmanaged": not submitted_value and not is_typed,
        "is_json": policy.kind is PolicyValueKind.JSON,
        "is_switch": policy.kind is PolicyValueKind.SWITCH,
        "value": "" if has_option else policy_rows.field_text_of(policy, submitted_value),
    }


def _rollout_context_of(
    request: HttpRequest,
    cluster: str,
    rows: tuple[InstanceRow, ...],
    role: str,
    target: str,
    problems: Mapping[str, str],
) -> dict[str, Any]:
    role_rows = [row for row in rows if row.role == role]
    restart_names = [row.name for row in role_rows if row.is_managed and target in (row.id, role)]
    restart_seconds = restart_times.typical_restart_seconds(cluster, [row.id for row in role_rows])
    estimate = rollouts.estimate_rollout_seconds(len(restart_names), RolloutSettings(), restart_seconds)
    return {
        "restart_names": restart_names,
        "duration_text": durations.format_readable(round(estimate)),
        "fields": number_fields_of(RolloutSettings(), request.POST, problems),
        "has_settings": bool(set(problems) & set(rollouts.SETTING_RANGES)),
    }
