"""Current and desired policies of instances."""

from __future__ import annotations

from fleet.changes.policies import matrix
from fleet.changes.policies.matrix import PolicyCellState
from fleet.protocol.policies.env_policies import HTTP_CLOSE_VARIABLE
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE, PROXY_TTL_VARIABLE
from fleet.vocabulary.instances import InstanceState
from tests.fakes.policy_nodes import PolicyNode, PolicyNodes


def _cell(
    nodes: PolicyNodes, desired_values: dict[str, dict[str, str]], name: str = AUTH_TTL_VARIABLE
) -> matrix.PolicyCell:
    line = matrix.create_matrix(nodes.views(), nodes.read_reports(), desired_values)[0]
    return next(cell for cell in line.cells if cell.policy.name == name)


def test_cell_state_compares_current_and_desired_values() -> None:
    """Free, same, restart needed, drift or unknown."""
    node = PolicyNode("auth-1", environment={AUTH_TTL_VARIABLE: "60s"})
    nodes = PolicyNodes(node)
    desired_values = {"auth": {AUTH_TTL_VARIABLE: "1m"}}
    assert _cell(nodes, {}).state is PolicyCellState.NOT_MANAGED
    assert _cell(nodes, desired_values).state is PolicyCellState.MATCHES
    own = {**desired_values, node.id: {AUTH_TTL_VARIABLE: "30s"}}
    assert (_cell(nodes, own).state, _cell(nodes, own).desired_source) == (PolicyCellState.DRIFT, "instance")
    node.accepted_values = {AUTH_TTL_VARIABLE: "30s"}
    assert _cell(nodes, own).state is PolicyCellState.RESTART_REQUIRED
    assert _cell(nodes, desired_values).state is PolicyCellState.DRIFT
    node.is_down = True
    cell = _cell(nodes, desired_values)
    assert (cell.state, cell.current_value) == (PolicyCellState.UNKNOWN, None)


def test_value_that_is_no_longer_desired_is_a_leftover() -> None:
    """Before and after a restart."""
    node = PolicyNode("auth-1", environment={AUTH_TTL_VARIABLE: "60s"})
    nodes = PolicyNodes(node)
    node.accepted_values = {AUTH_TTL_VARIABLE: "30s"}
    assert _cell(nodes, {}).state is PolicyCellState.LEFT_OVER
    node.restart()
    cell = _cell(nodes, {})
    assert (cell.state, cell.current_value) == (PolicyCellState.LEFT_OVER, "30s")
    assert cell.report is not None
    assert cell.report.text_after_accepting("") == "60s"
    assert matrix.create_matrix(nodes.views(), nodes.read_reports(), {})[0].has_drift


def test_deregistered_instance_is_listed_only_while_a_rollout_restarts_it() -> None:
    """An instance that ends gracefully deregisters itself."""
    nodes = PolicyNodes(PolicyNode("auth-1", state=InstanceState.GONE), PolicyNode("auth-2"))
    rows = matrix.create_matrix(nodes.views(), nodes.read_reports(), {})
    assert [row.name for row in rows] == ["auth-2"]
    rows = matrix.create_matrix(nodes.views(), nodes.read_reports(), {}, ["id-auth-1"])
    assert [row.name for row in rows] == ["auth-1", "auth-2"]


def test_lines_are_sorted_and_have_notes() -> None:
    """Auths first; the note says why an instance is not managed."""
    nodes = PolicyNodes(PolicyNode("proxy-1", "proxy"), PolicyNode("auth-1", refusal_reason="no folder"))
    auth, proxy = matrix.create_matrix(
        nodes.views(), nodes.read_reports(), {"proxy": {PROXY_TTL_VARIABLE: "1m"}}
    )
    assert (auth.name, auth.is_managed, auth.note) == ("auth-1", False, "no folder")
    assert (proxy.is_managed, proxy.has_drift, auth.has_drift) == (True, True, False)
    assert matrix.create_matrix(nodes.views(), {}, {})[0].note == "no report yet"


def test_values_of_an_instance_override_those_of_its_role() -> None:
    """Other values of the role stay."""
    desired_values = {
        "auth": {AUTH_TTL_VARIABLE: "60s", HTTP_CLOSE_VARIABLE: "true"},
        "one": {AUTH_TTL_VARIABLE: "30s"},
    }
    assert matrix.resolve_desired_values(desired_values, "auth", "one") == {
        AUTH_TTL_VARIABLE: "30s",
        HTTP_CLOSE_VARIABLE: "true",
    }
    assert matrix.resolve_desired_values(desired_values, "auth", "two") == desired_values["auth"]
    assert matrix.resolve_desired_values(desired_values, "proxy", "three") == {}


def test_instances_that_need_an_update() -> None:
    """Instances with other values, leftovers or no report."""
    node = PolicyNode("auth-1", environment={AUTH_TTL_VARIABLE: "60s"})
    nodes = PolicyNodes(node)
    line = matrix.create_matrix(nodes.views(), nodes.read_reports(), {})[0]
    assert not matrix.needs_update(line, {})
    assert not matrix.needs_update(line, {AUTH_TTL_VARIABLE: "1m"})
    assert matrix.needs_update(line, {AUTH_TTL_VARIABLE: "30s"})
    silent = matrix.create_matrix(nodes.views(), {}, {})[0]
    assert matrix.needs_update(silent, {AUTH_TTL_VARIABLE: "30s"})
    assert not matrix.needs_update(silent, {})
    node.accepted_values = {AUTH_TTL_VARIABLE: "30s"}
    with_leftovers = matrix.create_matrix(nodes.views(), nodes.read_reports(), {})[0]
    assert matrix.needs_update(with_leftovers, {})


def test_desired_values_of_deregistered_instances() -> None:
    """Roles are never deregistered."""
    nodes = PolicyNodes(PolicyNode("auth-1"))
    desired_values = {
        "id-auth-1": {AUTH_TTL_VARIABLE: "1m"},
        "id-auth-2": {AUTH_TTL_VARIABLE: "1m"},
        "proxy": {},
        "x": {},
    }
    lines = matrix.create_matrix(nodes.views(), nodes.read_reports(), desired_values)
    assert matrix.desired_values_of_deregistered(lines, desired_values) == {
        "id-auth-2": {AUTH_TTL_VARIABLE: "1m"}
    }
