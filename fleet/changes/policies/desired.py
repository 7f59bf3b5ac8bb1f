"""What instances are to run with: desired policies by role and instance, and plans of others. docs/policies.md.

Nothing here dials; rollouts are in `run.py`, and how all this compares in `fleet.changes.policies.matrix`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from fleet.changes import Blind, Refused, Stale, engine
from fleet.changes.engine import By, Draft
from fleet.changes.policies import outlook
from fleet.changes.policies.matrix import Line, Wanted, affected, wanted_for
from fleet.changes.policies.outlook import Changing, Sight
from fleet.models.actions import DesiredPolicy, RolloutStep
from fleet.models.changes import Change
from fleet.models.clusters import Cluster
from fleet.protocol.policies import env_policies
from fleet.protocol.policies.env_policies import BY_NAME, PLURALS, ROLES
from fleet.vocabulary.changes import ChangeKind
from fleet.vocabulary.rollouts import StepState, Terms

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


def taken_back(change: Change) -> dict[str, dict[str, str]]:
    """What is wanted now with a change's own part undone. Raises Refused when somebody changed it again since."""
    now = wanted_of(change.cluster_id)
    before, after = change.before or {}, change.after or {}
    for target in {*before, *after}:
        old, new, here = before.get(target, {}), after.get(target, {}), now.setdefault(target, {})
        for name in {*old, *new}:
            if old.get(name) == new.get(name):
                continue
            if here.get(name) != new.get(name):
                raise Refused(f"{name} was changed again since: look at what is wanted now, and change that")
            here.pop(name, None)
            here |= {name: old[name]} if name in old else {}
    return {target: values for target, values in now.items() if values}


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


def plan(
    cluster: str,
    wanted: Wanted,
    *,
    revision: str,
    lines: Sequence[Line],
    agents: Mapping[str, int],
    terms: Terms,
    roll_out: bool,
    by: By,
    now: datetime,
    sight: Callable[[], Sight] | None = None,
    undoes: int | None = None,
) -> Change:
    """Plan other desired policies, and their rollout if that is asked for. `agents`: how many are on each instance.

    Raises Stale when `revision` is not that of what is wanted now, Refused with problems by `target.NAME`, and by
    `at_once` when all of a role would be away at the same time, and Blind when somebody would restart.
    """
    before = wanted_of(cluster)
    if revision != revision_of(before):
        raise _stale("somebody else changed the desired policies meanwhile: look at them again", before)
    after, problems = check(wanted, {line.id: line.role for line in lines}, before)
    if problems:
        raise Refused("; ".join(f"{where}: {why}" for where, why in problems.items()), problems)
    reached, restarts = _reached(lines, after, roll_out=roll_out)
    if before == after and not restarts:
        raise Refused(
            "nothing would change: every instance runs with what is wanted", {"values": "nothing changed"}
        )
    unasked = [line.name for line in reached if line.asked_at is None]
    if roll_out and unasked:
        raise Refused(f"{', '.join(unasked)} said nothing of policies yet: try again in a few seconds")
    _refuse_all_at_once(lines, restarts, terms)
    seen: dict[str, Any] = {}
    if sight is not None:
        try:
            seen = foreseen(lines, after, sight(), roll_out=roll_out)
        except Blind:
            if restarts:
                raise
    draft = Draft(
        kind=ChangeKind.POLICY,
        title=_title(before, after, len(restarts)),
        before=before,
        after=after,
        plan={
            "question": _question(restarts, agents),
            "restarts": [
                {"id": one.id, "name": one.name, "agents": agents.get(one.id, 0)} for one in restarts
            ],
            "by_hand": [{"name": one.name, "why": one.note} for one in reached if one not in restarts],
            "at_connect": _at_connect(before, after),
            **seen,
        },
        agents=sum(agents.get(line.id, 0) for line in restarts),
        parameters={
            "at_once": terms.at_once,
            "drain": terms.drain,
            "settle": terms.settle,
            "patience": terms.patience,
        },
        undoes=undoes,
    )
    with transaction.atomic():
        change = engine.create(cluster, draft, by, now)
        if not change.rollout_steps.exists():
            RolloutStep.objects.bulk_create(
                RolloutStep(
                    change=change,
                    position=position,
                    instance_id=line.id,
                    name=line.name,
                    wanted=wanted_for(after, line.role, line.id),
                )
                for position, line in enumerate(restarts)
            )
    return change


def foreseen(lines: Sequence[Line], after: Wanted, sight: Sight, *, roll_out: bool) -> dict[str, Any]:
    """What other desired policies will do: `policy_outlook.outlook`."""
    _, restarts = _reached(lines, after, roll_out=roll_out)
    return outlook.outlook(
        [_changing(line, wanted_for(after, line.role, line.id), restarts=line in restarts) for line in lines],
        sight,
    )


def _reached(lines: Sequence[Line], after: Wanted, *, roll_out: bool) -> tuple[list[Line], list[Line]]:
    """Who would have to restart or to be told, and who of them a rollout restarts."""
    reached = [line for line in lines if affected(line, wanted_for(after, line.role, line.id))]
    return reached, [line for line in reached if line.ours] if roll_out else []


def _changing(line: Line, wanted: Mapping[str, str], *, restarts: bool) -> Changing:
    reports = {cell.policy.name: cell.report for cell in line.cells if cell.report is not None}
    return Changing(
        line.id,
        line.name,
        line.role,
        restarts=restarts,
        now={name: report.now.text for name, report in reports.items()},
        then={name: report.with_wanted(wanted.get(name, "")) for name, report in reports.items()},
    )


def _refuse_all_at_once(lines: Sequence[Line], restarts: Sequence[Line], terms: Terms) -> None:
    for role in ROLES:
        all_of_it = sum(line.role == role for line in lines)
        away = min(terms.at_once, sum(line.role == role for line in restarts))
        if 1 < all_of_it <= away:
            sentence = f"all {all_of_it} {PLURALS[role]} would be away at the same time: take fewer"
            raise Refused(sentence, {"at_once": sentence})


def _question(restarts: Sequence[Line], agents: Mapping[str, int]) -> str:
    if not restarts:
        return "Want this from now on, and restart nobody?"
    parts = [
        f"{count} {PLURALS[role] if count > 1 else role}"
        for role in ROLES
        if (count := sum(line.role == role for line in restarts))
    ]
    on = sum(agents.get(line.id, 0) for line in restarts)
    return f"Restart {' and '.join(parts)} that {on:,} agent{' rests' if on == 1 else 's rest'} on?"


def store(change: Change) -> None:
    """Want what a change says. Raises Stale when something else is wanted by now than when it was planned."""
    with transaction.atomic():
        Cluster.objects.select_for_update().get(pk=change.cluster_id)
        now = wanted_of(change.cluster_id)
        if now == change.after:
            return
        if now != change.before:
            raise _stale("somebody else changed the desired policies since this was planned", now)
        DesiredPolicy.objects.filter(cluster=change.cluster_id).delete()
        DesiredPolicy.objects.bulk_create(
            DesiredPolicy(cluster_id=change.cluster_id, target=target, name=name, value=value, change=change)
            for target, values in (change.after or {}).items()
            for name, value in values.items()
        )


def must_stand(change: Change) -> None:
    """Raise Stale when something else is wanted by now than when a change was planned."""
    now = wanted_of(change.cluster_id)
    if now not in (change.before, change.after):
        raise _stale("somebody else changed the desired policies since this was planned", now)


def _stale(sentence: str, now: Wanted) -> Stale:
    return Stale(sentence, what="policies", revision=revision_of(now))


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


def _at_connect(before: Wanted, after: Wanted) -> list[str]:
    """Changed policies that agents read when they connect."""
    names = {
        name
        for target in {*before, *after}
        for name in {*before.get(target, {}), *after.get(target, {})}
        if before.get(target, {}).get(name) != after.get(target, {}).get(name)
    }
    return sorted(name for name in names if BY_NAME[name].at_connect)


def _title(before: Wanted, after: Wanted, restarts: int) -> str:
    parts = []
    for target in sorted({*before, *after}):
        old, new = before.get(target, {}), after.get(target, {})
        names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
        if names:
            whose = PLURALS.get(target, "one instance")
            parts.append(f"{len(names)} {'policy' if len(names) == 1 else 'policies'} of {whose}")
    said = " and ".join(parts) or "desired policies once more"
    if not restarts:
        return f"{said}; no restarts"
    return f"{said}; restart {restarts} instance{'' if restarts == 1 else 's'}"
