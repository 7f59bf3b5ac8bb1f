"""Plans of policies over the record: what instances run with now, and a change of what is desired of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fleet.changes import Refused, engine
from fleet.changes.engine import By
from fleet.changes.kind import Record
from fleet.changes.policies import desired, matrix
from fleet.changes.policies.matrix import Line, Wanted
from fleet.changes.policies.outlook import Sight
from fleet.changes.policies.sight import policies_of
from fleet.models.changes import Change
from fleet.vocabulary import rollouts
from fleet.vocabulary.changes import ChangeKind


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
    """Plan it, with a row in the log when it is refused. Raises Refused with problems by field, Stale, StateError.

    While the pollers are blind nobody is restarted, but what is wanted may be changed.
    """
    read = rollouts.read_terms(terms)
    with engine.plan_attempt(ChangeKind.POLICY, cluster, by, now):
        before = desired.wanted_of(cluster)
        lines = lines_of(cluster, before, record)
        if read.problems:
            # All that is wrong is said at once.
            _, wrong = desired.check(wanted, {line.id: line.role for line in lines}, before)
            problems = {**read.problems, **wrong}
            raise Refused("; ".join(f"{name}: {why}" for name, why in problems.items()), problems)
        views = record.reader.instances(cluster, record.now)
        return desired.plan(
            cluster,
            wanted,
            revision=revision,
            lines=lines,
            agents={view.facts.id: view.agents for view in views},
            terms=read.terms,
            roll_out=roll_out,
            by=by,
            now=now,
            sight=lambda: _sight(cluster, record),
            undoes=undoes,
        )


def foreseen(
    cluster: str, target: str, values: Mapping[str, str], record: Record, *, roll_out: bool
) -> dict[str, Any]:
    """What a plan would say, for a look before there is one; nothing when something is wrong."""
    wanted = desired.wanted_of(cluster)
    lines = lines_of(cluster, wanted, record)
    try:
        return desired.foreseen(lines, {**wanted, target: values}, _sight(cluster, record), roll_out=roll_out)
    except Refused:
        return {}


def _sight(cluster: str, record: Record) -> Sight:
    """What is seen of the fleet now, for a plan. Raises Blind, StateError."""
    interval = record.reader.header(cluster, record.now).interval
    return policies_of(record.table(cluster), interval, record.now)
