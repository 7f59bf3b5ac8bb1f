"""Presents policies and rollouts for pages and the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dashboards.changes import change_rows
from dashboards.changes.load_bars import LoadBar, describe_difference, load_bars_of
from fleet.changes.load_forecast import loads_of_plan
from fleet.changes.policies import desired_state
from fleet.changes.policies.matrix import DIFFERING_STATES, InstanceRow, PolicyCell
from fleet.changes.policies.titles import format_policy_value, label_of
from fleet.models.changes import Change
from fleet.models.moments import to_seconds
from fleet.protocol import durations
from fleet.protocol.durations import DurationError
from fleet.protocol.policies.env_policies import BY_NAME, PLURALS, ROLES, EnvPolicy, PolicyValueKind, of_role
from fleet.protocol.policies.presets import PRESETS, PolicyPreset
from fleet.protocol.recovery.service_config import RFD_VARIABLE, UPSTREAM_VARIABLE
from fleet.vocabulary.changes import ChangeState
from fleet.vocabulary.rollouts import RolloutSettings, RolloutStepState

#: Maximum number of instances to name beside a value.
_MAX_NAMES = 8
#: Policies that are the same setting in two formats: by name the other one, and the text where only that one is set.
_TWINS: Mapping[str, tuple[str, str]] = {
    RFD_VARIABLE: (UPSTREAM_VARIABLE, "same as Teleport format"),
    UPSTREAM_VARIABLE: (RFD_VARIABLE, "same as reconnect mode"),
}
#: Segments of the progress bar of a rollout, and the field of `desired_state.progress_of` for each.
_BAR_STATES = (
    (RolloutStepState.SUCCEEDED, "succeeded_count"),
    (RolloutStepState.FAILED, "failed_count"),
    (RolloutStepState.SKIPPED, "skipped_count"),
    (RolloutStepState.RESTARTING, "in_progress_count"),
)


def cell_context_of(
    policy_cell: PolicyCell, rollout_state: str = "", instance_cells: Sequence[PolicyCell] = ()
) -> dict[str, Any]:
    """Return one cell of the matrix for the template.

    `rollout_state`: the state of a rollout that has yet to finish this instance; empty: none. `instance_cells`: all
    policies of the instance.
    """
    policy = policy_cell.policy
    is_rolled_out = bool(rollout_state) and policy_cell.state in DIFFERING_STATES
    return {
        "name": policy.name,
        "label": policy.label,
        "is_loud": is_rolled_out or policy_cell.state in DIFFERING_STATES,
        "state": policy_cell.state.value,
        "is_rolled_out": is_rolled_out,
        "tag": rollout_state if is_rolled_out else policy_cell.state.value,
        "tag_label": f"rollout {rollout_state}" if is_rolled_out else policy_cell.state.label,
        "current_text": format_policy_value(policy, policy_cell.current_value)
        if policy_cell.current_value is not None
        else "?",
        "current_value": policy_cell.current_value or "",
        "twin_text": _describe_twin(policy_cell, instance_cells),
        "source": policy_cell.current_source.value if policy_cell.current_source else "",
        "desired_text": format_policy_value(policy, policy_cell.desired_value)
        if policy_cell.desired_value
        else "",
        "desired_source": policy_cell.desired_source,
        "next_text": format_policy_value(policy, policy_cell.next_value)
        if policy_cell.next_value is not None
        else "",
        "unmanaged_text": format_policy_value(policy, policy_cell.report.fallback_value.text)
        if policy_cell.report and policy_cell.report.fallback_value
        else "",
    }


def _describe_twin(policy_cell: PolicyCell, instance_cells: Sequence[PolicyCell]) -> str:
    """Return that the same setting is set in its other format, in place of a default; empty otherwise."""
    twin = _TWINS.get(policy_cell.policy.name)
    if twin is None or policy_cell.current_value or policy_cell.desired_value:
        return ""
    twin_name, text = twin
    is_twin_set = any(cell.policy.name == twin_name and cell.current_value for cell in instance_cells)
    return text if is_twin_set and policy_cell.current_value is not None else ""


def values_context_of(
    policy: EnvPolicy,
    desired_values: Mapping[str, Mapping[str, str]],
    target: str,
    instance_rows: Iterable[InstanceRow],
) -> dict[str, Any]:
    """Return the values of one policy of a role or an instance, for `dashboards/_policy_values.html`.

    `current_values`: the values in effect, each with the names of its instances.
    """
    names_by_value: dict[tuple[str, str], list[str]] = {}
    for instance_row in instance_rows:
        if target not in (instance_row.id, instance_row.role) or instance_row.role != policy.role:
            continue
        cell = next(cell for cell in instance_row.cells if cell.policy == policy)
        text = "unknown" if cell.current_value is None else format_policy_value(policy, cell.current_value)
        source = cell.current_source.value if cell.current_source else ""
        names_by_value.setdefault((text, source), []).append(instance_row.name)
    desired_value = desired_values.get(target, {}).get(policy.name, "")
    inherited_value = "" if target in ROLES else desired_values.get(policy.role, {}).get(policy.name, "")
    return {
        "is_role": target in ROLES,
        "current_values": [
            {"text": text, "source": source, "names": _format_names(names)}
            for (text, source), names in names_by_value.items()
        ],
        "desired_text": format_policy_value(policy, desired_value) if desired_value else "",
        "inherited_text": format_policy_value(policy, inherited_value) if inherited_value else "",
        "default_text": format_policy_value(policy, policy.default),
    }


def _format_names(names: list[str]) -> str:
    """Return the names of instances: all, or the first ones and how many more there are."""
    if len(names) <= _MAX_NAMES + 1:
        return ", ".join(names)
    return f"{', '.join(names[:_MAX_NAMES])} and {len(names) - _MAX_NAMES} more"


def field_text_of(policy: EnvPolicy, text: str) -> str:
    """Return a value for a form field: a duration with its units, `1 min 30 s`; any other text unchanged."""
    if policy.kind is not PolicyValueKind.DURATION or not text:
        return text
    try:
        return durations.format_exact(durations.parse(text))
    except DurationError:
        return text


def role_tables_of(
    instance_rows: tuple[InstanceRow, ...],
    desired_values: Mapping[str, Mapping[str, str]],
    now: float,
    unfinished_steps: Mapping[str, RolloutStepState] = MappingProxyType({}),
    rollout_state: str = "",
) -> list[dict[str, Any]]:
    """Return one table per role: its policies, the role's desired values, and its instances.

    `unfinished_steps`: instances that the rollout in progress has yet to finish, by id; `rollout_state`: its state.
    """
    role_tables = []
    for role in ("auth", "proxy"):
        role_rows = [instance_row for instance_row in instance_rows if instance_row.role == role]
        role_tables.append(
            {
                "role": role,
                "plural": PLURALS[role],
                "policies": of_role(role),
                "role_cells": [
                    (
                        policy,
                        format_policy_value(policy, desired_values[role][policy.name])
                        if policy.name in desired_values.get(role, {})
                        else "",
                    )
                    for policy in of_role(role)
                ],
                "rows": [
                    {
                        "instance": instance_row,
                        "cells": [
                            cell_context_of(
                                policy_cell,
                                rollout_state if instance_row.id in unfinished_steps else "",
                                instance_row.cells,
                            )
                            for policy_cell in instance_row.cells
                        ],
                        "step_label": unfinished_steps[instance_row.id].label
                        if instance_row.id in unfinished_steps
                        else "",
                        "report_age_seconds": None
                        if instance_row.polled_at is None
                        else max(0, round(now - instance_row.polled_at)),
                        "has_own_values": bool(desired_values.get(instance_row.id)),
                    }
                    for instance_row in role_rows
                ],
            }
        )
    return role_tables


def preset_rows_of(
    desired_values: Mapping[str, Mapping[str, str]],
) -> list[tuple[PolicyPreset, bool, list[tuple[str, str, str]]]]:
    """Return each preset, whether it is in effect, and its values: label, value before and value after."""
    return [
        (
            preset,
            preset.is_in_effect(desired_values),
            preset_parts_of(preset, desired_values),
        )
        for preset in PRESETS
    ]


def preset_parts_of(
    preset: PolicyPreset, desired_values: Mapping[str, Mapping[str, str]]
) -> list[tuple[str, str, str]]:
    """Return each value of a preset: label, desired value before and after; empty: not managed."""
    return [
        (
            f"{BY_NAME[name].label}, {PLURALS[role]}",
            format_policy_value(BY_NAME[name], desired_values[role][name])
            if name in desired_values.get(role, {})
            else "",
            format_policy_value(BY_NAME[name], text),
        )
        for role, values in preset.values.items()
        for name, text in values.items()
    ]


def rollout_context_of(change: Change) -> dict[str, Any]:
    """Return a rollout for its page: progress, instances, and changed desired values."""
    counts = desired_state.progress_of(change)
    load_bars = load_bars_of(loads_of_plan(change.plan), change.outcome.get("actual_loads", {}))
    return {
        **counts,
        "parts": _bar_parts_of(counts),
        "steps": [
            {
                "row": row,
                "label": RolloutStepState(row.state).label,
                "duration": format_duration(row.began_at, row.ended_at),
            }
            for row in change.rollout_steps.all()
        ],
        "is_followed": change.state == ChangeState.CANCELLED and bool(counts["in_progress_count"]),
        "waiting_for": change.progress.get("waiting_for", "") if change.state == ChangeState.RUNNING else "",
        "diff": (diff_rows := diff_rows_of(change)),
        "button_text": _button_text_of(diff_rows, counts["total_count"]),
        "settings": change.parameters,
        "gate_text": _format_gate(RolloutSettings(**change.parameters)),
        "duration_text": durations.format_readable(round(change.plan.get("duration_seconds", 0))),
        "actual_text": _format_actual_duration(change),
        "load_bars": load_bars,
        "load_sentence": _describe_loads(change, load_bars),
        # None: not recorded.
        "reconnect_count": change.outcome.get("reconnect_count"),
    }


def _describe_loads(change: Change, load_bars: Sequence[LoadBar]) -> str:
    """Return how the loads differ from the forecast, which was for all restarts: not comparable after an abort."""
    difference = describe_difference(load_bars)
    if difference and change.state == ChangeState.CANCELLED:
        return "The forecast was for the whole rollout, which was aborted."
    return difference


def _button_text_of(diff_rows: Sequence[Mapping[str, Any]], restart_count: int) -> str:
    """Return what the button that confirms a rollout does: `Set auth announce TTL and restart 3 instances`."""
    names = {row["name"] for row in diff_rows}
    restart_text = f"restart {restart_count} instance{'' if restart_count == 1 else 's'}"
    if not names:
        return restart_text.capitalize()
    policy = BY_NAME.get(next(iter(names))) if len(names) == 1 else None
    is_removal = not any(row["after"]["value"] for row in diff_rows)
    verb = "Stop managing" if is_removal else "Set"
    text = f"{verb} {label_of(policy) if policy else f'{len(names)} policies'}"
    return f"{text} and {restart_text}" if restart_count else text


def _bar_parts_of(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the segments of the progress bar: state, and x and width of 100."""
    offset, bar_parts = 0.0, []
    for state, name in _BAR_STATES:
        width = 100 * counts[name] / max(counts["total_count"], 1)
        bar_parts.append({"name": state.value, "x": round(offset, 3), "w": round(width, 3)})
        offset += width
    return bar_parts


def _format_actual_duration(change: Change) -> str:
    """Return how long the restarts took; empty while they run, and without restarts."""
    if change.started_at is None or change.ended_at is None or not change.rollout_steps.exists():
        return ""
    last_ended_at = max((row.ended_at or 0.0 for row in change.rollout_steps.all()), default=0.0)
    seconds = max(to_seconds(change.ended_at), last_ended_at) - to_seconds(change.started_at)
    return durations.format_readable(round(seconds))


def _format_gate(settings: RolloutSettings) -> str:
    """Return what must hold before the next instance restarts."""
    if not settings.soak_seconds:
        return "healthy"
    return f"healthy for {durations.format_readable(settings.soak_seconds)}"


def diff_rows_of(change: Change) -> list[dict[str, Any]]:
    """Return the desired values before and after a change, by target and policy, as stored and in words."""
    before, after, names = change.before or {}, change.after or {}, change_rows.instance_names_of(change)
    return [
        {
            "target": f"all {PLURALS[target]}" if target in PLURALS else names.get(target, target),
            "name": name,
            "label": policy.label if policy else "",
            "is_json": policy is not None and policy.kind is PolicyValueKind.JSON,
            "before": _diff_value_of(policy, before.get(target, {}).get(name, "")),
            "after": _diff_value_of(policy, after.get(target, {}).get(name, "")),
        }
        for target in sorted({*before, *after})
        for name in sorted({*before.get(target, {}), *after.get(target, {})})
        if before.get(target, {}).get(name) != after.get(target, {}).get(name)
        # Another version had other policies.
        for policy in (BY_NAME.get(name),)
    ]


def _diff_value_of(policy: EnvPolicy | None, value: str) -> dict[str, str]:
    """Return a desired value as stored and in words; both are empty where there is none."""
    return {"value": value, "text": format_policy_value(policy, value) if policy and value else value}


def three_way_rows_of(
    role: str, base_values: Mapping[str, str], stored_values: Mapping[str, str], own_values: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the policies that `stored_values` or `own_values` changed from `base_values`, in all three versions."""
    return [
        {
            "label": policy.label,
            "base_value": _three_way_text_of(policy, base_values),
            "stored_value": _three_way_text_of(policy, stored_values),
            "own_value": _three_way_text_of(policy, own_values),
            "is_conflict": len(
                {version.get(policy.name, "") for version in (base_values, stored_values, own_values)}
            )
            == 3,
        }
        for policy in of_role(role)
        if len({version.get(policy.name, "") for version in (base_values, stored_values, own_values)}) > 1
    ]


def _three_way_text_of(policy: EnvPolicy, values: Mapping[str, str]) -> str:
    """Return a value in words, but JSON as it is: two versions may differ in what words leave out."""
    value = values.get(policy.name, "")
    return value if policy.kind is PolicyValueKind.JSON or not value else format_policy_value(policy, value)


def format_duration(began_at: float | None, ended_at: float | None) -> str:
    """Return a duration from two moments, in words; empty where one is missing."""
    return durations.format_readable(round(ended_at - began_at, 1)) if began_at and ended_at else ""
