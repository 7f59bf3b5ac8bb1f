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
from fleet.vocabulary.naming import natural_sort_key
from fleet.vocabulary.node_policies import NodeReportResponse, PolicyReport
from fleet.vocabulary.tags import TagEnum, Tone

#: Values by target (role or instance id) and name.
DesiredValues = Mapping[str, Mapping[str, str]]


class PolicyCellState(TagEnum):
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
class PolicyCell:
    """One policy of one instance."""

    policy: EnvPolicy
    state: PolicyCellState
    #: What is wanted; empty: nothing.
    desired_value: str
    #: The role or the instance said so.
    desired_source: str
    #: What it runs with, and where that comes from; None when it does not say.
    current_value: str | None
    source: Source | None
    #: What it would run with after a restart.
    next_value: str | None
    #: All that it says of it; None when it does not.
    report: PolicyReport | None = None


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """One instance."""

    id: str
    name: str
    role: str
    cells: tuple[PolicyCell, ...]
    #: Why nothing is known of it, or why it takes nothing; empty when it does.
    note: str
    #: It takes policies over the network and restarts itself.
    is_managed: bool
    #: When it was asked; None: never.
    polled_at: float | None

    @property
    def is_reporting(self) -> bool:
        """Whether it says what it runs with."""
        return any(cell.state is not PolicyCellState.UNKNOWN for cell in self.cells)

    @property
    def has_drift(self) -> bool:
        """Whether anything is not as wanted."""
        return any(cell.state in (PolicyCellState.DRIFT, PolicyCellState.RESTART, PolicyCellState.LEFT) for cell in self.cells)


def desired_values_for(desired_values: DesiredValues, role: str, instance_id: str) -> dict[str, str]:
    """What one instance is to run with: its role's, and its own over that."""
    return {**desired_values.get(role, {}), **desired_values.get(instance_id, {})}


def create_matrix(
    views: Iterable[InstanceView], responses: Mapping[str, NodeReportResponse], desired_values: DesiredValues
) -> tuple[InstanceRow, ...]:
    """Every instance with its policies, auths first."""
    current_views = [view for view in views if view.state is not InstanceState.GONE]
    current_views.sort(key=lambda view: (view.facts.kind, natural_sort_key(view.facts.name)))
    return tuple(_instance_row_of(view, responses.get(view.facts.id), desired_values) for view in current_views)


def deregistered_values_of(lines: Iterable[InstanceRow], desired_values: DesiredValues) -> dict[str, dict[str, str]]:
    """What is still wanted of instances that are in the record no more, by id."""
    current_targets = {*ROLES, *(line.id for line in lines)}
    return {target: dict(values) for target, values in desired_values.items() if values and target not in current_targets}


def _instance_row_of(view: InstanceView, response: NodeReportResponse | None, desired_values: DesiredValues) -> InstanceRow:
    role, identity = view.facts.kind.value, view.facts.id
    report = response.report if response is not None else None
    instance_values, override_values = desired_values_for(desired_values, role, identity), desired_values.get(identity, {})
    cells = []
    for policy in env_policies.of_role(role):
        policy_report = report.policies.get(policy.name) if report else None
        desired_value = instance_values.get(policy.name, "")
        state = PolicyCellState.UNKNOWN
        if policy_report is not None:
            state = _cell_state_of(policy.name, desired_value, policy_report)
        cells.append(
            PolicyCell(
                policy,
                state,
                desired_value,
                "instance" if policy.name in override_values else "role" if desired_value else "",
                policy_report.current_value.text if policy_report else None,
                policy_report.current_value.source if policy_report else None,
                policy_report.next_value.text if policy_report else None,
                policy_report,
            )
        )
    note = "not asked yet" if response is None else response.error if report is None else report.refusal_reason
    return InstanceRow(
        identity,
        view.facts.name,
        role,
        tuple(cells),
        note,
        is_managed=report is not None and not report.refusal_reason,
        polled_at=response.at if response else None,
    )


def _cell_state_of(name: str, desired_value: str, policy_report: PolicyReport) -> PolicyCellState:
    if not desired_value:
        return PolicyCellState.LEFT if _has_leftover_value(policy_report) else PolicyCellState.FREE
    current_value, next_value = policy_report.current_value.text, policy_report.next_value.text
    if env_policies.is_same_value(name, desired_value, current_value):
        return PolicyCellState.SAME if env_policies.is_same_value(name, desired_value, next_value) else PolicyCellState.DRIFT
    return PolicyCellState.RESTART if env_policies.is_same_value(name, desired_value, next_value) else PolicyCellState.DRIFT


def needs_update(row: InstanceRow, desired_values: Mapping[str, str]) -> bool:
    """Whether an instance would have to restart, or to be told, to run with that."""
    for cell in row.cells:
        text = desired_values.get(cell.policy.name, "")
        if cell.current_value is None:
            if text or cell.desired_value:
                return True
        elif text and not env_policies.is_same_value(cell.policy.name, text, cell.current_value):
            return True
        elif not text and cell.report is not None and _has_leftover_value(cell.report):
            return True  # accepted once, and wanted no more
    return False


def _has_leftover_value(policy_report: PolicyReport) -> bool:
    return Source.FILE in (policy_report.current_value.source, policy_report.next_value.source)
