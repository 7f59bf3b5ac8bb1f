"""Plans of policies, for the page and the API: what instances run with now, and a change of what is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dashboards.shared import reading
from fleet.changes import Refused, engine
from fleet.changes.engine import By
from fleet.changes.policies import desired, matrix
from fleet.changes.policies.matrix import Line, Wanted
from fleet.changes.policies.outlook import Sight
from fleet.changes.policies.sight import policies_of
from fleet.models.changes import Change
from fleet.vocabulary import rollouts
from fleet.vocabulary.actions import ChangeStep, of_change
from fleet.vocabulary.changes import ChangeKind, ChangeState


def lines_of(cluster: str, wanted: Wanted) -> tuple[Line, ...]:
    """Every instance with its policies. Raises StateError."""
    views = reading.reader().instances(cluster, reading.current_time())
    return matrix.matrix(views, reading.policy_book().read(cluster), wanted)


def sight(cluster: str) -> Sight:
    """What is seen of the fleet now, for a plan. Raises Blind, StateError."""
    now, reader = reading.current_time(), reading.reader()
    return policies_of(reader.table(cluster, now), reader.header(cluster, now).interval, now)


def plan(
    cluster: str,
    wanted: Wanted,
    *,
    revision: str,
    terms: Mapping[str, object],
    roll_out: bool,
    by: By,
    now: datetime,
    undoes: int | None = None,
) -> Change:
    """Plan it, with a row in the log when it is refused. Raises Refused with problems by field, Stale, StateError.

    While the pollers are blind nobody is restarted, but what is wanted may be changed.
    """
    read = rollouts.read_terms(terms)
    try:
        before = desired.wanted_of(cluster)
        lines = lines_of(cluster, before)
        if read.problems:
            # All that is wrong is said at once.
            _, wrong = desired.check(wanted, {line.id: line.role for line in lines}, before)
            problems = {**read.problems, **wrong}
            raise Refused("; ".join(f"{name}: {why}" for name, why in problems.items()), problems)
        return desired.plan(
            cluster,
            wanted,
            revision=revision,
            lines=lines,
            agents=_agents(cluster),
            terms=read.terms,
            roll_out=roll_out,
            by=by,
            now=now,
            sight=lambda: sight(cluster),
            undoes=undoes,
        )
    except Refused as error:
        engine.refuse(by, of_change(ChangeKind.POLICY, ChangeStep.PLAN), cluster, str(error), now)
        raise


def take_back(change: Change, by: By, now: datetime) -> Change:
    """Plan what was wanted before a change, with the terms it had. Raises Refused, Stale, StateError."""
    cluster = change.cluster_id
    try:
        if change.kind != ChangeKind.POLICY or ChangeState.UNDONE not in engine.followers(change):
            raise Refused("only a change of config or policies that is over can be taken back")
        wanted = desired.taken_back(change)
    except Refused as error:
        engine.refuse(by, of_change(ChangeKind.POLICY, ChangeStep.PLAN), cluster, str(error), now)
        raise
    return plan(
        cluster,
        wanted,
        revision=desired.revision_of(desired.wanted_of(cluster)),
        terms=change.parameters,
        roll_out=change.rollout_steps.exists(),
        by=by,
        now=now,
        undoes=change.pk,
    )


def foreseen(cluster: str, target: str, values: Mapping[str, str], *, roll_out: bool) -> dict[str, Any]:
    """What a plan would say, for a look before there is one; nothing when something is wrong."""
    wanted = desired.wanted_of(cluster)
    lines = lines_of(cluster, wanted)
    try:
        return desired.foreseen(lines, {**wanted, target: values}, sight(cluster), roll_out=roll_out)
    except Refused:
        return {}


def _agents(cluster: str) -> dict[str, int]:
    views = reading.reader().instances(cluster, reading.current_time())
    return {view.facts.id: view.agents for view in views}
