"""What instances are to run with beside what they run with: every policy of every instance. Pure.

docs/policies.md, "Desired and observed". What is wanted is kept by `fleet.changes.policies.desired`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.monitoring.views import InstanceView
from fleet.protocol.policies import env_policies
from fleet.protocol.policies.env_policies import ROLES, EnvPolicy, Source
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.naming import natural
from fleet.vocabulary.node_policies import Observed, PolicyReport
from fleet.vocabulary.tags import Tag, Tone

#: Values by target (role or instance id) and name.
Wanted = Mapping[str, Mapping[str, str]]


class CellState(Tag):
    """How one policy of one instance compares with what is wanted."""

    #: Nothing is wanted: whatever it runs with is right.
    FREE = "free", Tone.QUIET, "not managed"
    #: It runs with what is wanted.
    SAME = "same", Tone.GOOD, "as wanted"
    #: It has accepted what is wanted, and runs with it after a restart.
    RESTART = "restart", Tone.BUSY, "restart needed"
    #: It would not run with it even after a restart.
    DRIFT = "drift", Tone.BAD
    #: Nothing is wanted any more, but what it accepted once is in its file still.
    LEFT = "left", Tone.BAD, "left over"
    #: It does not say.
    UNKNOWN = "unknown", Tone.QUIET


@dataclass(frozen=True, slots=True)
class Cell:
    """One policy of one instance."""

    policy: EnvPolicy
    state: CellState
    #: What is wanted; empty: nothing.
    desired: str
    #: The role or the instance said so.
    desired_of: str
    #: What it runs with, and where that comes from; None when it does not say.
    now: str | None
    source: Source | None
    #: What it would run with after a restart.
    following: str | None
    #: All that it says of it; None when it does not.
    report: PolicyReport | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One instance."""

    id: str
    name: str
    role: str
    cells: tuple[Cell, ...]
    #: Why nothing is known of it, or why it takes nothing; empty when it does.
    note: str
    #: It takes policies over the network and restarts itself.
    ours: bool
    #: When it was asked; None: never.
    asked_at: float | None

    @property
    def reports(self) -> bool:
        """Whether it says what it runs with."""
        return any(cell.state is not CellState.UNKNOWN for cell in self.cells)

    @property
    def drifts(self) -> bool:
        """Whether anything is not as wanted."""
        return any(cell.state in (CellState.DRIFT, CellState.RESTART, CellState.LEFT) for cell in self.cells)


def wanted_for(wanted: Wanted, role: str, instance_id: str) -> dict[str, str]:
    """What one instance is to run with: its role's, and its own over that."""
    return {**wanted.get(role, {}), **wanted.get(instance_id, {})}


def matrix(
    views: Iterable[InstanceView], observed: Mapping[str, Observed], wanted: Wanted
) -> tuple[Line, ...]:
    """Every instance with its policies, auths first."""
    here = [view for view in views if view.state is not InstanceState.GONE]
    here.sort(key=lambda view: (view.facts.kind, natural(view.facts.name)))
    return tuple(_line(view, observed.get(view.facts.id), wanted) for view in here)


def gone(lines: Iterable[Line], wanted: Wanted) -> dict[str, dict[str, str]]:
    """What is still wanted of instances that are in the record no more, by id."""
    here = {*ROLES, *(line.id for line in lines)}
    return {target: dict(values) for target, values in wanted.items() if values and target not in here}


def _line(view: InstanceView, seen: Observed | None, wanted: Wanted) -> Line:
    role, identity = view.facts.kind.value, view.facts.id
    report = seen.report if seen is not None else None
    mine, own = wanted_for(wanted, role, identity), wanted.get(identity, {})
    cells = []
    for policy in env_policies.of_role(role):
        found = report.policies.get(policy.name) if report else None
        desired = mine.get(policy.name, "")
        state = CellState.UNKNOWN
        if found is not None:
            state = _state(policy.name, desired, found)
        cells.append(
            Cell(
                policy,
                state,
                desired,
                "instance" if policy.name in own else "role" if desired else "",
                found.now.text if found else None,
                found.now.source if found else None,
                found.following.text if found else None,
                found,
            )
        )
    note = "not asked yet" if seen is None else seen.error if report is None else report.why_not
    return Line(
        identity,
        view.facts.name,
        role,
        tuple(cells),
        note,
        ours=report is not None and not report.why_not,
        asked_at=seen.at if seen else None,
    )


def _state(name: str, desired: str, found: PolicyReport) -> CellState:
    if not desired:
        return CellState.LEFT if _is_left(found) else CellState.FREE
    now, following = found.now.text, found.following.text
    if env_policies.is_same_value(name, desired, now):
        return CellState.SAME if env_policies.is_same_value(name, desired, following) else CellState.DRIFT
    return CellState.RESTART if env_policies.is_same_value(name, desired, following) else CellState.DRIFT


def affected(line: Line, wanted: Mapping[str, str]) -> bool:
    """Whether an instance would have to restart, or to be told, to run with that."""
    for cell in line.cells:
        text = wanted.get(cell.policy.name, "")
        if cell.now is None:
            if text or cell.desired:
                return True
        elif text and not env_policies.is_same_value(cell.policy.name, text, cell.now):
            return True
        elif not text and cell.report is not None and _is_left(cell.report):
            return True  # accepted once, and wanted no more
    return False


def _is_left(found: PolicyReport) -> bool:
    return Source.FILE in (found.now.source, found.following.source)
