"""Plans of policies over the record: what instances run with now, and a change of what is desired of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from fleet.audit import By
from fleet.changes import Blind, Refused, engine
from fleet.changes.base_kind import Record
from fleet.changes.engine import Draft
from fleet.changes.policies import desired, matrix, outlook
from fleet.changes.policies.matrix import Line, Wanted, affected, wanted_for
from fleet.changes.policies.outlook import Changing
from fleet.changes.policies.plan_input import policies_of
from fleet.models.actions import RolloutStep
from fleet.models.changes import Change
from fleet.protocol.policies.env_policies import BY_NAME, PLURALS, ROLES
from fleet.vocabulary import rollouts
from fleet.vocabulary.changes import ChangeKind
from fleet.vocabulary.rollouts import Terms


def lines_of(cluster: str, wanted: Wanted, record: Record) -> tuple[Line, ...]:
    """Every instance with its policies. Raises StateError."""
    return matrix.matrix(record.reader.instances(cluster, record.now), record.book.read(cluster), wanted)


def plan(
    cluster: str,
    wanted: Wanted,
    record: Record,
    *,
    revision: str,
    terms: Mapping[str, object],
    roll_out: bool,
    by: By,
    now: datetime,
    undoes: int | None = None,
) -> Change:
    """Plan other desired policies, and their rollout if that is asked for, with a row in the log when it is refused.

    Raises Stale when `revision` is not that of what is wanted now, Refused with problems by `target.NAME`, by the name
    of a term, and by `at_once` when all of a role would be away at the same time, Blind when somebody would restart,
    and StateError. While the pollers are blind nobody is restarted, but what is wanted may be changed.
    """
    with engine.plan_attempt(ChangeKind.POLICY, cluster, by, now):
        before = desired.wanted_of(cluster)
        if revision != desired.revision_of(before):
            raise desired.stale(
                "somebody else changed the desired policies meanwhile: look at them again", before
            )
        lines = lines_of(cluster, before, record)
        read = rollouts.read_terms(terms)
        after, wrong = desired.check(wanted, {line.id: line.role for line in lines}, before)
        # All that is wrong is said at once.
        if problems := {**read.problems, **wrong}:
            raise Refused("; ".join(f"{name}: {why}" for name, why in problems.items()), problems)
        reached, restarts = _reached(lines, after, roll_out=roll_out)
        if before == after and not restarts:
            raise Refused(
                "nothing would change: every instance runs with what is wanted", {"values": "nothing changed"}
            )
        unasked = [line.name for line in reached if line.asked_at is None]
        if roll_out and unasked:
            raise Refused(f"{', '.join(unasked)} said nothing of policies yet: try again in a few seconds")
        _refuse_all_at_once(lines, restarts, read.terms)
        try:
            seen = _outlook(cluster, lines, after, restarts, record)
        except Blind:
            if restarts:
                raise
            seen = {}
        agents = {view.facts.id: view.agents for view in record.reader.instances(cluster, record.now)}
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
            parameters=asdict(read.terms),
            undoes=undoes,
        )

        def keep_steps(change: Change) -> None:
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

        return engine.create(cluster, draft, by, now, keep_steps)


def foreseen(
    cluster: str, target: str, values: Mapping[str, str], record: Record, *, roll_out: bool
) -> dict[str, Any]:
    """What a plan would say, for a look before there is one; nothing when something is wrong."""
    wanted = desired.wanted_of(cluster)
    lines, after = lines_of(cluster, wanted, record), {**wanted, target: values}
    _, restarts = _reached(lines, after, roll_out=roll_out)
    try:
        return _outlook(cluster, lines, after, restarts, record)
    except Refused:
        return {}


def _outlook(
    cluster: str, lines: Sequence[Line], after: Wanted, restarts: Sequence[Line], record: Record
) -> dict[str, Any]:
    """What other desired policies will do: `outlook.outlook`. Raises Blind, StateError."""
    interval = record.reader.header(cluster, record.now).interval
    return outlook.outlook(
        [_changing(line, wanted_for(after, line.role, line.id), restarts=line in restarts) for line in lines],
        policies_of(record.table(cluster), interval, record.now),
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
