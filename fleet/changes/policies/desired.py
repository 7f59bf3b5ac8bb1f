"""What instances are to run with: desired policies by role and instance. docs/policies.md.

Plans of others are in `planning.py`, rollouts in `run.py`, and how all this compares in `matrix.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from fleet.changes import Stale
from fleet.changes.policies.matrix import Wanted, wanted_for
from fleet.models.actions import DesiredPolicy
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.protocol.policies import env_policies
from fleet.protocol.policies.env_policies import ROLES
from fleet.vocabulary.changes import ChangeKind
from fleet.vocabulary.rollouts import StepState

#: Changes that are searched for what somebody started from.
_REMEMBERED = 200


def wanted_of(cluster: str) -> dict[str, dict[str, str]]:
    """All that is wanted, by target (role or instance id) and name."""
    found: dict[str, dict[str, str]] = {}
    for row in DesiredPolicy.objects.filter(cluster=cluster):
        found.setdefault(row.target, {})[row.name] = row.value
    return found


def revision_of(wanted: Wanted) -> str:
    """A name for exactly this, for If-Match."""
    kept = {target: dict(values) for target, values in wanted.items() if values}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def base_of(cluster: str, revision: str) -> dict[str, dict[str, str]] | None:
    """What was wanted when it had that revision; None when no change remembers it."""
    for wanted in ({}, wanted_of(cluster)):
        if revision_of(wanted) == revision:
            return wanted
    rows = Change.objects.filter(cluster=cluster, kind=ChangeKind.POLICY.value).order_by("-pk")
    for documents in rows.values_list("before", "after")[:_REMEMBERED]:
        for document in documents:
            if revision_of(document or {}) == revision:
                return document or {}
    return None


def rebased(base: Mapping[str, str], mine: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """What I changed of `base`, done to `theirs`; policies of one target by name."""
    changed = {name for name in {*base, *mine} if base.get(name) != mine.get(name)}
    kept = {name: text for name, text in theirs.items() if name not in changed}
    return kept | {name: text for name, text in mine.items() if name in changed}


def check(
    wanted: Wanted, known: Mapping[str, str], before: Wanted
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """What is to be wanted as it is kept, and problems by `target.NAME`. `known`: role by instance id.

    What was wanted `before` of an instance that has gone since stays, or is forgotten.
    """
    kept: dict[str, dict[str, str]] = {}
    problems: dict[str, str] = {}
    for target, values in wanted.items():
        if target not in ROLES and target not in known and values in ({}, before.get(target, {})):
            kept[target] = dict(values)
            continue
        role = target if target in ROLES else known.get(target)
        if role is None:
            problems[target] = "is neither a role nor an instance that is known"
            continue
        kept[target], wrong = env_policies.check(role, values)
        problems |= {f"{target}.{error.name}": error.sentence for error in wrong}
    for identity, role in known.items():
        if identity in kept and not problems:
            _, wrong = env_policies.check(role, wanted_for(kept, role, identity))
            problems |= {f"{identity}.{error.name}": error.sentence for error in wrong}
    return {target: values for target, values in kept.items() if values}, problems


def progress_of(change: Change) -> dict[str, Any]:
    """How far a rollout is, for page and API."""
    states = [StepState(state) for state in change.rollout_steps.values_list("state", flat=True)]
    done = sum(state in (StepState.OK, StepState.SKIPPED) for state in states)
    return {
        "total": len(states),
        "done": done,
        "failed": sum(state is StepState.FAILED for state in states),
        "percent": 100 * done // len(states) if states else 100,
    }


def refuse_stale(change: Change) -> dict[str, dict[str, str]]:
    """Return what is wanted now. Raises Stale when that is neither what was when a change was planned, nor its own."""
    now = wanted_of(change.cluster_id)
    if now not in (change.before, change.after):
        raise stale("somebody else changed the desired policies since this was planned", now)
    return now


def stale(sentence: str, now: Wanted) -> Stale:
    """Return the error that says what is wanted now."""
    return Stale(sentence, what="policies", revision=revision_of(now))


def store(change: Change) -> None:
    """Want what a change says. Raises Stale when something else is wanted by now than when it was planned."""
    with transaction.atomic():
        Cluster.objects.select_for_update().get(pk=change.cluster_id)
        if refuse_stale(change) == change.after:
            return
        DesiredPolicy.objects.filter(cluster=change.cluster_id).delete()
        DesiredPolicy.objects.bulk_create(
            DesiredPolicy(cluster_id=change.cluster_id, target=target, name=name, value=value, change=change)
            for target, values in (change.after or {}).items()
            for name, value in values.items()
        )
