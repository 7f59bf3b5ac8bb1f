"""The pages of policies: desired and reported values, and the form to change desired values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from dashboards.changes import aborts, policy_rows
from dashboards.shared import record_reader, request_actor
from dashboards.shared.capabilities.views import needs_capability
from dashboards.shared.pages import needs_record, sentence_of, url_prefix_of
from dashboards.shared.permissions import require_permission, requires
from dashboards.shared.presenters import number_fields_of, read_typed_settings
from fleet.changes import ChangeRefusedError, StaleRevisionError, engine
from fleet.changes.policies import desired_state, planner
from fleet.changes.policies import matrix as policy_matrix
from fleet.changes.policies.matrix import DesiredValues, InstanceRow
from fleet.models.access import Permission, has_permission
from fleet.models.changes import Change
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.inventory import Instance
from fleet.protocol.policies import env_policies, policy_json, snippets
from fleet.protocol.policies.env_policies import PLURALS, ROLES, EnvPolicy, PolicyError, PolicyValueKind
from fleet.protocol.policies.presets import options_of
from fleet.protocol.recovery import service_config
from fleet.protocol.recovery.service_config import ServiceConfigError
from fleet.vocabulary import rollouts
from fleet.vocabulary.capabilities import Capability


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD"])
@never_cache
@needs_record
@needs_capability(Capability.POLICIES, "Policies")
def matrix(request: HttpRequest, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show every instance with its policies; `?drift=1`: only those that differ from their desired values.

    Template `dashboards/policies.html`: `page`, `tables`, `presets`, `drifting_count` (instances), `only_drift`,
    `can_change`, `has_desired_values`, `aborted_rollout` (or None), `deregistered` (desired values of deregistered
    instances), `revision`.
    """
    record = record_reader.take_record_snapshot()
    desired_values = desired_state.desired_values_of(cluster)
    running_change = engine.find_running_change(cluster)
    unfinished_steps = desired_state.find_unfinished_steps(running_change)
    rows = planner.instance_rows_of(
        cluster,
        desired_values,
        record,
        [
            instance_id
            for instance_id, state in unfinished_steps.items()
            if state in rollouts.IN_PROGRESS_STATES
        ],
    )
    only_drift = request.GET.get("drift") == "1"
    visible_rows = tuple(row for row in rows if row.has_drift or row.id in unfinished_steps or not only_drift)
    values_of_deregistered = policy_matrix.desired_values_of_deregistered(rows, desired_values)
    context = {
        "page": "policies",
        "tables": policy_rows.role_tables_of(
            visible_rows,
            desired_values,
            record_reader.current_time(),
            unfinished_steps,
            running_change.state if running_change else "",
        ),
        "presets": policy_rows.preset_rows_of(desired_values),
        "drifting_count": sum(row.has_drift for row in rows),
        "reporting_count": sum(row.is_reporting for row in rows),
        "unreported_count": sum(not row.is_reporting for row in rows),
        "only_drift": only_drift,
        "can_change": has_permission(request.user, Permission.CHANGE_CONFIG, cluster),
        "busy_reason": engine.describe_running_change(cluster),
        "aborted_rollout": aborts.find_last_aborted_rollout(
            cluster, record.policy_report_store.read(cluster)
        ),
        "deregistered": [
            {"id": instance_id, "name": _instance_name_of(cluster, instance_id), "values": values}
            for instance_id, values in values_of_deregistered.items()
        ],
        "has_desired_values": any(
            values and target not in values_of_deregistered for target, values in desired_values.items()
        ),
        "revision": desired_state.revision_of(desired_values),
    }
    return render(request, "dashboards/policies.html", context)


@requires(Permission.VIEW_FLEET)
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@needs_record
@needs_capability(Capability.POLICIES, "Policies")
def target(request: HttpRequest, target: str, cluster: str = DEFAULT_CLUSTER) -> HttpResponseBase:
    """Show the desired values of a role or an instance, or (POST) preview or plan other values.

    Template `dashboards/policy_target.html`: `page`, `target`, `title`, `plural`, `fields`, `settings`, `revision`,
    `snippets`, `previews`, `outlook`, `three_way_rows`, `sentence`, `can_change`, `roll_out`, `restartable_names`,
    `has_unreported`, `is_deregistered`.
    """
    desired_values = desired_state.desired_values_of(cluster)
    rows = planner.instance_rows_of(cluster, desired_values, record_reader.take_record_snapshot())
    instance_row = next((row for row in rows if row.id == target), None)
    if target not in ROLES and instance_row is None and target not in desired_values:
        raise Http404(f"Instance {target} was not found in cluster {cluster}.")
    role = (
        target if target in ROLES else instance_row.role if instance_row else _role_of(desired_values[target])
    )
    edit = PolicyEdit(dict(desired_values.get(target, {})), desired_state.revision_of(desired_values))
    if request.method == "POST":
        require_permission(request, Permission.CHANGE_CONFIG, cluster)
        edit.revision = request.POST.get("revision", "")
        base_values = _base_values_of(cluster, target, edit.revision, desired_values)
        edit.values = _read_posted_values(request, role, base_values)
        planned_change = _handle_post(request, cluster, target, role, desired_values, edit)
        if planned_change is not None:
            return redirect(f"{url_prefix_of(cluster)}/changes/{planned_change.pk}/")
    values, problems = edit.values, edit.problems
    effective_values = {**desired_values.get(role, {}), **values} if target not in ROLES else values
    context = {
        "page": "policies",
        "target": target,
        "title": f"all {PLURALS[role]}"
        if target in ROLES
        else instance_row.name
        if instance_row
        else _instance_name_of(cluster, target),
        "is_role": target in ROLES,
        "is_deregistered": target not in ROLES and instance_row is None,
        "role": role,
        "plural": PLURALS[role],
        "fields": _field_contexts_of(role, target, values, problems, desired_values, rows),
        "settings": number_fields_of(rollouts.RolloutSettings(), request.POST, problems),
        "revision": edit.revision,
        "snippets": snippets.all_of(
            role,
            {
                policy_name: text
                for policy_name, text in effective_values.items()
                if policy_name not in problems
            },
        ),
        "previews": _dialect_previews_of(effective_values) if role == "auth" else [],
        "outlook": edit.outlook,
        "three_way_rows": edit.three_way_rows,
        "has_conflict": edit.has_conflict,
        "sentence": edit.sentence,
        "can_change": has_permission(request.user, Permission.CHANGE_CONFIG, cluster),
        "roll_out": request.method != "POST" or "roll_out" in request.POST,
        "has_unreported": any(
            row.polled_at is None or row.is_silent
            for row in rows
            if row.role == role and target in (row.id, role)
        ),
        "restartable_names": [
            row.name for row in rows if row.role == role and row.is_managed and target in (row.id, role)
        ],
    }
    has_error = problems or (edit.sentence and not edit.is_notice)
    return render(request, "dashboards/policy_target.html", context, status=400 if has_error else 200)


@dataclass
class PolicyEdit:
    """An edit of the desired values of one target."""

    values: dict[str, str]
    #: Revision of all desired values that the edit is based on.
    revision: str
    problems: dict[str, str] = field(default_factory=dict)
    sentence: str = ""
    #: The sentence is not an error.
    is_notice: bool = False
    outlook: dict[str, Any] = field(default_factory=dict)
    #: The desired values were changed in the meantime; `three_way_rows`: the differences.
    has_conflict: bool = False
    three_way_rows: list[dict[str, Any]] = field(default_factory=list)


def _handle_post(
    request: HttpRequest,
    cluster: str,
    target: str,
    role: str,
    desired_values: DesiredValues,
    edit: PolicyEdit,
) -> Change | None:
    """Preview, rebase, or plan and return the change; None when the form is shown again."""
    if "preview" in request.POST:
        _, errors = env_policies.check_typed(role, edit.values)
        edit.problems = {error.name: error.sentence for error in errors}
        if not errors:
            should_roll_out = "roll_out" in request.POST
            edit.outlook = planner.preview_outlook(
                cluster,
                target,
                edit.values,
                record_reader.take_record_snapshot(),
                should_roll_out=should_roll_out,
            )
        return None
    stored_values = desired_values.get(target, {})
    base_values = _base_values_of(cluster, target, edit.revision, desired_values)
    if "rebase" in request.POST:
        edit.values, edit.revision = (
            desired_state.rebase(base_values, edit.values, stored_values),
            desired_state.revision_of(desired_values),
        )
        edit.is_notice = True
        edit.sentence = (
            "Your edits are applied to the current desired values. Review them, then preview the change."
        )
        return None
    try:
        return planner.plan_change(
            cluster,
            {**desired_values, target: edit.values},
            record_reader.take_record_snapshot(),
            revision=edit.revision,
            rollout_settings=read_typed_settings(
                rollouts.RolloutSettings, rollouts.SETTING_RANGES, request.POST
            ),
            should_roll_out="roll_out" in request.POST,
            actor=request_actor.signed_in_actor_of(request),
            now=timezone.now(),
        )
    except StaleRevisionError as error:
        edit.has_conflict = True
        edit.three_way_rows = policy_rows.three_way_rows_of(role, base_values, stored_values, edit.values)
        edit.sentence = f"{sentence_of(error)} Review the new values and preview again."
    except ChangeRefusedError as error:
        edit.problems = {name.removeprefix(f"{target}."): reason for name, reason in error.problems.items()}
        field_names = {policy.name for policy in env_policies.of_role(role)} | set(rollouts.SETTING_RANGES)
        edit.sentence = "" if set(edit.problems) & field_names else sentence_of(error)
    return None


def _base_values_of(
    cluster: str, target: str, revision: str, desired_values: DesiredValues
) -> Mapping[str, str]:
    """Return the values of a target that an edit began with; the stored ones when they are unknown."""
    base_values = desired_state.find_base_values(cluster, revision)
    return (desired_values if base_values is None else base_values).get(target, {})


def _read_posted_values(request: HttpRequest, role: str, base_values: Mapping[str, str]) -> dict[str, str]:
    """Return the submitted values as nodes read them; an unreadable text stays as it was typed."""
    texts: dict[str, str] = {}
    for policy in env_policies.of_role(role):
        text = request.POST.get(policy.name, "").strip()
        try:
            texts[policy.name] = env_policies.from_typed(policy.name, text)
        except PolicyError:
            texts[policy.name] = text
    return desired_state.keep_texts({name: text for name, text in texts.items() if text}, base_values)


def _role_of(values: Mapping[str, str]) -> str:
    """Return the role of a deregistered instance, from its desired values."""
    return next(env_policies.BY_NAME[name].role for name in values)


def _instance_name_of(cluster: str, instance_id: str) -> str:
    """Return the last name of an instance; its id when there is none."""
    names = Instance.objects.filter(cluster=cluster, instance_id=instance_id).values_list("name", flat=True)
    return names.first() or instance_id


def _field_contexts_of(
    role: str,
    target: str,
    values: Mapping[str, str],
    problems: Mapping[str, str],
    desired_values: DesiredValues,
    rows: tuple[InstanceRow, ...],
) -> list[dict[str, Any]]:
    """Return the fields of the form, by policy."""
    stored_values = desired_values.get(target, {})
    return [
        {
            "policy": policy,
            "is_json": policy.kind is PolicyValueKind.JSON,
            "is_switch": policy.kind is PolicyValueKind.SWITCH,
            "value": _field_value_of(policy, text),
            # The value without edits.
            "stored_value": _field_value_of(policy, stored_values.get(policy.name, "")),
            "values": policy_rows.values_context_of(policy, desired_values, target, rows),
            "options": [
                (
                    option.label,
                    _field_value_of(policy, option.text),
                    bool(text) and env_policies.is_same_value(policy.name, option.text, text),
                )
                for option in options_of(policy)
            ],
            "problem": problems.get(policy.name, ""),
            "warnings": policy_json.warnings(config) if config else (),
        }
        for policy in env_policies.of_role(role)
        for text in (values.get(policy.name, ""),)
        for config in (_service_config_of(policy, text),)
    ]


def _field_value_of(policy: EnvPolicy, text: str) -> str:
    """Return a value as the form shows it: a duration with its units, valid JSON over several lines."""
    config = _service_config_of(policy, text)
    return policy_json.document(config, policy.name) if config else policy_rows.field_text_of(policy, text)


def _service_config_of(policy: EnvPolicy, text: str) -> service_config.ServiceConfig | None:
    """Return the config in a JSON value; None for other kinds of policies and for invalid JSON."""
    if policy.kind is not PolicyValueKind.JSON or not text or policy_json.problems(policy.name, text):
        return None
    return service_config.from_environment({policy.name: text})


def _dialect_previews_of(values: dict[str, str]) -> list[policy_json.DialectPreview]:
    try:
        config = service_config.from_environment(values)
    except ServiceConfigError:
        return []
    return list(policy_json.preview(config))
