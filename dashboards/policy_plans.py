"""Plans of policies, for the page and the API: what instances run with now, and a change of what is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dashboards import reading
from fleet.control import Refused, changes, desired
from fleet.control.changes import By
from fleet.control.desired import Line, Wanted
from fleet.domain import rollout
from fleet.models.changes import Change


def lines_of(cluster: str, wanted: Wanted) -> tuple[Line, ...]:
    """Every instance with its policies. Raises StateError."""
    views = reading.reader().instances(cluster, reading.current_time())
    return desired.matrix(views, reading.policy_book().read(cluster), wanted)


def plan(
    cluster: str,
    wanted: Wanted,
    *,
    revision: str,
    terms: Mapping[str, object],
    roll_out: bool,
    by: By,
    now: datetime,
) -> Change:
    """Plan it, with a row in the log when it is refused. Raises Refused with problems by field, Stale, StateError."""
    read = rollout.read_terms(terms)
    try:
        if read.problems:
            raise Refused(
                "; ".join(f"{name}: {why}" for name, why in read.problems.items()), dict(read.problems)
            )
        views = reading.reader().instances(cluster, reading.current_time())
        return desired.plan(
            cluster,
            wanted,
            revision=revision,
            lines=lines_of(cluster, desired.wanted_of(cluster)),
            agents={view.facts.id: view.agents for view in views},
            terms=read.terms,
            roll_out=roll_out,
            by=by,
            now=now,
        )
    except Refused as error:
        changes.refuse(by, "policy.plan", cluster, str(error), now)
        raise
