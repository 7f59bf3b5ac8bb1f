"""What instances are to run with: desired policies by role and instance. docs/policies.md.

Plans of others are in `planning.py`, rollouts in `run.py`, and how all this compares in `matrix.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from fleet.changes import StaleRevisionError
from fleet.changes.policies.matrix import DesiredValues, desired_values_for
from fleet.models.actions import DesiredPolicy
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.protocol.policies import env_policies
from fleet.protocol.policies.env_policies import ROLES
from fleet.vocabulary.changes import ChangeKind
from fleet.vocabulary.rollouts import RolloutStepState

#: Changes that are searched for what somebody started from.
_MAX_SEARCHED_CHANGES = 200


def desired_values_of(cluster: str) -> dict[str, dict[str, str]]:
    """All that is wanted, by target (role or instance id) and name."""
    values_by_target: dict[str, dict[str, str]] = {}
    for row in DesiredPolicy.objects.filter(cluster=cluster):
        values_by_target.setdefault(row.target, {})[row.name] = row.value
    return values_by_target


def revision_of(desired_values: DesiredValues) -> str:
    """A name for exactly this, for If-Match."""
    non_empty_values = {target: dict(values) for target, values in desired_values.items() if values}
    return hashlib.sha256(json.dumps(non_empty_values, sort_keys=True).encode()).hexdigest()[:16]


def find_base_values(cluster: str, revision: str) -> dict[str, dict[str, str]] | None:
    """What was wanted when it had that revision; None when no change remembers it."""
    for desired_values in ({}, desired_values_of(cluster)):
        if revision_of(desired_values) == revision:
            return desired_values
    rows = Change.objects.filter(cluster=cluster, kind=ChangeKind.POLICY.value).order_by("-pk")
    for documents in rows.values_list("before", "after")[:_MAX_SEARCHED_CHANGES]:
        for document in documents:
            if revision_of(document or {}) == revision:
                return document or {}
    return None


def rebase(base: Mapping[str, str], own_values: Mapping[str, str], stored_values: Mapping[str, str]) -> dict[str, str]:
    """What I changed of `base`, done to `theirs`; policies of one target by name."""
    changed_names = {name for name in {*base, *own_values} if base.get(name) != own_values.get(name)}
    unchanged_values = {name: text for name, text in stored_values.items() if name not in changed_names}
    return unchanged_values | {name: text for name, text in own_values.items() if name in changed_names}


def check_desired_values(
    desired_values: DesiredValues, roles_by_instance: Mapping[str, str], previous_values: DesiredValues
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """What is to be wanted as it is kept, and problems by `target.NAME`. `known`: role by instance id.

    What was wanted `before` of an instance that has gone since stays, or is forgotten.
    """
    clean_values: dict[str, dict[str, str]] = {}
    problems: dict[str, str] = {}
    for target, values in desired_values.items():
        if target not in ROLES and target not in roles_by_instance and values in ({}, previous_values.get(target, {})):
            clean_values[target] = dict(values)
            continue
        role = target if target in ROLES else roles_by_instance.get(target)
        if role is None:
            problems[target] = "is neither a role nor an instance that is known"
            continue
        clean_values[target], errors = env_policies.check(role, values)
        problems |= {f"{target}.{error.name}": error.sentence for error in errors}
    for identity, role in roles_by_instance.items():
        if identity in clean_values and not problems:
            _, errors = env_policies.check(role, desired_values_for(clean_values, role, identity))
            problems |= {f"{identity}.{error.name}": error.sentence for error in errors}
    return {target: values for target, values in clean_values.items() if values}, problems


def progress_of(change: Change) -> dict[str, Any]:
    """How far a rollout is, for page and API."""
    states = [RolloutStepState(state) for state in change.rollout_steps.values_list("state", flat=True)]
    done_count = sum(state in (RolloutStepState.OK, RolloutStepState.SKIPPED) for state in states)
    return {
        "total": len(states),
        "done": done_count,
        "failed": sum(state is RolloutStepState.FAILED for state in states),
        "percent": 100 * done_count // len(states) if states else 100,
    }


def require_current_plan(change: Change) -> dict[str, dict[str, str]]:
    """Return what is wanted now. Raises Stale when that is neither what was when a change was planned, nor its own."""
    stored_values = desired_values_of(change.cluster_id)
    if stored_values not in (change.before, change.after):
        raise create_stale_error("somebody else changed the desired policies since this was planned", stored_values)
    return stored_values


def create_stale_error(sentence: str, stored_values: DesiredValues) -> StaleRevisionError:
    """Return the error that says what is wanted now."""
    return StaleRevisionError(sentence, resource="policies", revision=revision_of(stored_values))


def store_desired_values(change: Change) -> None:
    """Want what a change says. Raises Stale when something else is wanted by now than when it was planned."""
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
