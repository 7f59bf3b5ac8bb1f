"""The desired values of policies, by role and instance. docs/reference/policies.md.

`planner.py` plans changes of them, `run.py` rolls them out, `matrix.py` compares them with the reported values.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from django.db import transaction

from fleet.changes import StaleRevisionError, engine
from fleet.changes.policies.matrix import DesiredValues, resolve_desired_values
from fleet.models.actions import DesiredPolicy, RolloutStep
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.protocol.policies import env_policies
from fleet.protocol.policies.env_policies import BY_NAME, ROLES, PolicyValueKind
from fleet.vocabulary.changes import ChangeKind, ChangeState
from fleet.vocabulary.rollouts import (
    IN_PROGRESS_STATES,
    RolloutStepState,
    count_steps,
    describe_progress,
)

#: Number of the newest changes to search for an earlier revision.
_MAX_SEARCHED_CHANGES = 200


def desired_values_of(cluster: str) -> dict[str, dict[str, str]]:
    """Return the desired values of a cluster, by target (role or instance id) and policy name."""
    values_by_target: dict[str, dict[str, str]] = {}
    for row in DesiredPolicy.objects.filter(cluster=cluster):
        values_by_target.setdefault(row.target, {})[row.name] = row.value
    return values_by_target


def revision_of(desired_values: DesiredValues) -> str:
    """Return the revision of desired values, a hash, for If-Match."""
    non_empty_values = {target: dict(values) for target, values in desired_values.items() if values}
    return hashlib.sha256(json.dumps(non_empty_values, sort_keys=True).encode()).hexdigest()[:16]


def find_base_values(cluster: str, revision: str) -> dict[str, dict[str, str]] | None:
    """Return the desired values of an earlier revision; None when no recent change has it."""
    for desired_values in ({}, desired_values_of(cluster)):
        if revision_of(desired_values) == revision:
            return desired_values
    rows = Change.objects.filter(cluster=cluster, kind=ChangeKind.POLICY.value).order_by("-pk")
    for documents in rows.values_list("before", "after")[:_MAX_SEARCHED_CHANGES]:
        for document in documents:
            if revision_of(document or {}) == revision:
                return document or {}
    return None


def rebase(
    base_values: Mapping[str, str], edited_values: Mapping[str, str], stored_values: Mapping[str, str]
) -> dict[str, str]:
    """Return `stored_values` with the differences between `base_values` and `edited_values`.

    Values of one target by policy name.
    """
    changed_names = {
        name for name in {*base_values, *edited_values} if base_values.get(name) != edited_values.get(name)
    }
    unchanged_values = {name: text for name, text in stored_values.items() if name not in changed_names}
    return unchanged_values | {name: text for name, text in edited_values.items() if name in changed_names}


def keep_texts(values: Mapping[str, str], previous_values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of one target. A duration that did not change (`1m0s` for `60s`) keeps its previous text."""
    return {
        name: previous_values[name]
        if name in previous_values
        and BY_NAME[name].kind is PolicyValueKind.DURATION
        and env_policies.is_same_value(name, text, previous_values[name])
        else text
        for name, text in values.items()
    }


def check_desired_values(
    desired_values: DesiredValues, roles_by_instance: Mapping[str, str], previous_values: DesiredValues
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Return desired values as they are stored, and problems by `target.NAME`.

    Durations may be as a person types them, `1 min 30 s`; a duration that does not change keeps its text.
    `roles_by_instance`: role by instance id. The values of a deregistered instance may only stay as they are in
    `previous_values`, or be removed.
    """
    clean_values: dict[str, dict[str, str]] = {}
    problems: dict[str, str] = {}
    for target, values in desired_values.items():
        if (
            target not in ROLES
            and target not in roles_by_instance
            and target in previous_values
            and values in ({}, previous_values[target])
        ):
            clean_values[target] = dict(values)
            continue
        role = target if target in ROLES else roles_by_instance.get(target)
        if role is None:
            problems[target] = "is neither a role nor the id of an instance"
            continue
        checked_values, errors = env_policies.check_typed(role, values)
        clean_values[target] = keep_texts(checked_values, previous_values.get(target, {}))
        problems |= {f"{target}.{error.name}": error.sentence for error in errors}
    for instance_id, role in roles_by_instance.items():
        if instance_id in clean_values and not problems:
            _, errors = env_policies.check(role, resolve_desired_values(clean_values, role, instance_id))
            problems |= {f"{instance_id}.{error.name}": error.sentence for error in errors}
    return {target: values for target, values in clean_values.items() if values}, problems


def progress_of(change: Change) -> dict[str, Any]:
    """Return the progress of a rollout, for the page and the API. Only instances that restarted are finished."""
    states = change.rollout_steps.values_list("state", flat=True)
    counts = count_steps(RolloutStepState(state) for state in states)
    return {
        **asdict(counts),
        "total_count": counts.total_count,
        "finished_count": counts.succeeded_count,
        "percent": counts.percent,
    }


def store_abort(change: Change, actor_name: str) -> None:
    """Store who aborted a rollout, and how far it is."""
    _store_aborted_rollout(change, {"aborted_by": actor_name})


def update_aborted_rollout(change: Change, results: Mapping[str, Any]) -> None:
    """Store how far an aborted rollout is, after a step of one of its instances. `results`: added to the outcome."""
    # Rollouts that an earlier version aborted have no name.
    name_fields = {name: text for name, text in change.outcome.items() if name == "aborted_by"}
    _store_aborted_rollout(change, {**name_fields, **results})


def _describe_abort(change: Change, actor_name: str) -> str:
    """Return the detail of an aborted rollout: `aborted by demo: restarted 1 of 3 instances, 2 skipped`."""
    abort_sentence = f"aborted by {actor_name}" if actor_name else "aborted"
    steps = change.rollout_steps.values_list("name", "state")
    if not steps:
        return abort_sentence
    progress = describe_progress({str(name): RolloutStepState(state) for name, state in steps})
    return f"{abort_sentence}: {progress}"


def _store_aborted_rollout(change: Change, fields: Mapping[str, Any]) -> None:
    detail, outcome = (
        _describe_abort(change, fields.get("aborted_by", "")),
        {**progress_of(change), **fields},
    )
    if (change.detail, change.outcome) != (detail, outcome):
        engine.update_change(change, detail=detail, outcome=outcome)


def find_followed_steps(cluster: str, excluded_change: Change) -> dict[str, int]:
    """Return the instances on which aborted rollouts still act, and the number of each rollout's change."""
    steps = RolloutStep.objects.filter(
        change__cluster=cluster,
        change__state=ChangeState.CANCELLED.value,
        state__in=[state.value for state in IN_PROGRESS_STATES],
    ).exclude(change=excluded_change)
    return dict(steps.values_list("instance_id", "change_id"))


def find_unfinished_steps(change: Change | None) -> dict[str, RolloutStepState]:
    """Return the pending instances of a rollout and those in progress, by id; empty for None and for other kinds."""
    if change is None:
        return {}
    steps = change.rollout_steps.values_list("instance_id", "state")
    states = {instance_id: RolloutStepState(state) for instance_id, state in steps}
    unfinished_states = (RolloutStepState.PENDING, *IN_PROGRESS_STATES)
    return {instance_id: state for instance_id, state in states.items() if state in unfinished_states}


def require_current_plan(change: Change) -> dict[str, dict[str, str]]:
    """Return the present desired values.

    Raises StaleRevisionError when they are neither those before nor those after the change.
    """
    stored_values = desired_values_of(change.cluster_id)
    if stored_values not in (change.before, change.after):
        raise create_stale_error(
            "out of date: the desired values were changed after this change was planned", stored_values
        )
    return stored_values


def create_stale_error(sentence: str, stored_values: DesiredValues) -> StaleRevisionError:
    """Return the error for a plan that is out of date, with the revision of the present desired values."""
    return StaleRevisionError(sentence, resource="policies", revision=revision_of(stored_values))


def store_desired_values(change: Change) -> None:
    """Store the desired values of a change.

    Raises StaleRevisionError when they were changed after the change was planned.
    """
    with transaction.atomic():
        Cluster.objects.select_for_update().get(pk=change.cluster_id)
        if require_current_plan(change) == change.after:
            return
        DesiredPolicy.objects.filter(cluster=change.cluster_id).delete()
        DesiredPolicy.objects.bulk_create(
            DesiredPolicy(cluster_id=change.cluster_id, target=target, name=name, value=value, change=change)
            for target, values in (change.after or {}).items()
            for name, value in values.items()
        )
