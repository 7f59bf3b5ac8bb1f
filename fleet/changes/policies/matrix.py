"""The comparison of desired and reported values: every policy of every instance. Pure.

docs/reference/policies.md, "Drift". `fleet.changes.policies.desired_state` stores the desired values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from fleet.monitoring.views import InstanceView
from fleet.protocol.policies import env_policies
from fleet.protocol.policies.env_policies import ROLES, EnvPolicy, PolicySource
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.natural_order import natural_sort_key
from fleet.vocabulary.node_policies import UNSUPPORTED_ERROR, NodeReportResponse, PolicyReport
from fleet.vocabulary.tags import TagEnum, Tone

#: Desired values by target (role or instance id) and policy name.
DesiredValues = Mapping[str, Mapping[str, str]]


class PolicyCellState(TagEnum):
    """How the value of one policy of one instance compares with its desired value."""

    #: There is no desired value.
    NOT_MANAGED = "not-managed", Tone.QUIET, "not managed"
    #: The value in effect is the desired value.
    MATCHES = "matches", Tone.GOOD
    #: The instance has accepted the desired value, which takes effect after a restart.
    RESTART_REQUIRED = "restart-required", Tone.BUSY, "restart required"
    #: The instance would not run with the desired value even after a restart.
    DRIFT = "drift", Tone.BAD
    #: There is no desired value any more, but the policies.env of the instance still has an accepted one.
    LEFT_OVER = "left-over", Tone.BAD, "left over"
    #: The instance does not report the policy.
    UNKNOWN = "unknown", Tone.QUIET


#: The states in which a rollout changes the value in effect, or its source.
DIFFERING_STATES = frozenset(
    {PolicyCellState.DRIFT, PolicyCellState.RESTART_REQUIRED, PolicyCellState.LEFT_OVER}
)


@dataclass(frozen=True, slots=True)
class PolicyCell:
    """One policy of one instance."""

    policy: EnvPolicy
    state: PolicyCellState
    #: The desired value; empty: not managed.
    desired_value: str
    #: Where the desired value is set: "role", "instance", or empty.
    desired_source: str
    #: The value in effect, and its source; None: not reported.
    current_value: str | None
    current_source: PolicySource | None
    #: The value in effect after a restart; None: not reported.
    next_value: str | None
    #: The report of the instance; None: there is none.
    report: PolicyReport | None = None


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """One instance with all its policies."""

    id: str
    name: str
    role: str
    cells: tuple[PolicyCell, ...]
    #: Why the instance has no report, or does not accept policies over the network; empty when it does.
    note: str
    #: The instance accepts policies over the network and can restart itself.
    is_managed: bool
    #: The instance did not respond when Refloat last asked for its policies.
    is_silent: bool
    #: When Refloat last asked the instance, seconds since the epoch; None: never.
    polled_at: float | None

    @property
    def is_reporting(self) -> bool:
        """Whether the instance reports any policy."""
        return any(cell.state is not PolicyCellState.UNKNOWN for cell in self.cells)

    @property
    def has_drift(self) -> bool:
        """Whether any policy differs from its desired value."""
        return any(cell.state in DIFFERING_STATES for cell in self.cells)


def resolve_desired_values(desired_values: DesiredValues, role: str, instance_id: str) -> dict[str, str]:
    """Return the desired values of one instance: those of its role, overridden by its own."""
    return {**desired_values.get(role, {}), **desired_values.get(instance_id, {})}


def create_matrix(
    views: Iterable[InstanceView],
    responses: Mapping[str, NodeReportResponse],
    desired_values: DesiredValues,
    restarting_ids: Collection[str] = (),
) -> tuple[InstanceRow, ...]:
    """Return every instance with its policies, auths first, without deregistered instances.

    `restarting_ids`: instances that a rollout restarts, which are listed also while they are deregistered.
    """
    current_views = [
        view for view in views if view.state is not InstanceState.GONE or view.facts.id in restarting_ids
    ]
    current_views.sort(key=lambda view: (view.facts.kind, natural_sort_key(view.facts.name)))
    return tuple(
        _instance_row_of(view, responses.get(view.facts.id), desired_values) for view in current_views
    )


def desired_values_of_deregistered(
    rows: Iterable[InstanceRow], desired_values: DesiredValues
) -> dict[str, dict[str, str]]:
    """Return the remaining desired values of deregistered instances, by instance id."""
    current_targets = {*ROLES, *(row.id for row in rows)}
    return {
        target: dict(values)
        for target, values in desired_values.items()
        if values and target not in current_targets
    }


def _instance_row_of(
    view: InstanceView, response: NodeReportResponse | None, desired_values: DesiredValues
) -> InstanceRow:
    role, instance_id = view.facts.kind.value, view.facts.id
    report = response.report if response is not None else None
    resolved_values, override_values = (
        resolve_desired_values(desired_values, role, instance_id),
        desired_values.get(instance_id, {}),
    )
    cells = []
    for policy in env_policies.of_role(role):
        policy_report = report.policies.get(policy.name) if report else None
        desired_value = resolved_values.get(policy.name, "")
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
    note = (
        "no report yet" if response is None else response.error if report is None else report.refusal_reason
    )
    return InstanceRow(
        instance_id,
        view.facts.name,
        role,
        tuple(cells),
        note,
        is_managed=report is not None and not report.refusal_reason,
        is_silent=response is not None and report is None and response.error != UNSUPPORTED_ERROR,
        polled_at=response.at if response else None,
    )


def _cell_state_of(name: str, desired_value: str, policy_report: PolicyReport) -> PolicyCellState:
    if not desired_value:
        return (
            PolicyCellState.LEFT_OVER if _has_leftover_value(policy_report) else PolicyCellState.NOT_MANAGED
        )
    current_value, next_value = policy_report.current_value.text, policy_report.next_value.text
    if env_policies.is_same_value(name, desired_value, current_value):
        return (
            PolicyCellState.MATCHES
            if env_policies.is_same_value(name, desired_value, next_value)
            else PolicyCellState.DRIFT
        )
    return (
        PolicyCellState.RESTART_REQUIRED
        if env_policies.is_same_value(name, desired_value, next_value)
        else PolicyCellState.DRIFT
    )


def needs_update(row: InstanceRow, desired_values: Mapping[str, str]) -> bool:
    """Return whether an instance must accept other values, or restart, to match `desired_values`."""
    for cell in row.cells:
        text = desired_values.get(cell.policy.name, "")
        if cell.current_value is None:
            if text or cell.desired_value:
                return True
        elif text and not env_policies.is_same_value(cell.policy.name, text, cell.current_value):
            return True
        elif not text and cell.report is not None and _has_leftover_value(cell.report):
            return True  # an accepted value without a desired value
    return False


def _has_leftover_value(policy_report: PolicyReport) -> bool:
    return PolicySource.FILE in (policy_report.current_value.source, policy_report.next_value.source)
