"""What instances run with beside what is wanted of them."""

from __future__ import annotations

from fleet.changes.policies import matrix
from fleet.changes.policies.matrix import PolicyCellState
from fleet.protocol.policies.env_policies import HTTP_CLOSE_VARIABLE
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE, PROXY_TTL_VARIABLE
from tests.fakes.policy_nodes import PolicyNode, PolicyNodes


def _cell(
    nodes: PolicyNodes, wanted: dict[str, dict[str, str]], name: str = AUTH_TTL_VARIABLE
) -> matrix.PolicyCell:
    line = matrix.create_matrix(nodes.views(), nodes.observed(), wanted)[0]
    return next(cell for cell in line.cells if cell.policy.name == name)


def test_cells() -> None:
    """Free, same, restart needed, drift, unknown: by what it runs with and would run with."""
    node = PolicyNode("auth-1", environment={AUTH_TTL_VARIABLE: "60s"})
    nodes = PolicyNodes(node)
    wanted = {"auth": {AUTH_TTL_VARIABLE: "1m"}}
    assert _cell(nodes, {}).state is PolicyCellState.FREE
    assert _cell(nodes, wanted).state is PolicyCellState.SAME
    own = {**wanted, node.id: {AUTH_TTL_VARIABLE: "30s"}}
    assert (_cell(nodes, own).state, _cell(nodes, own).desired_source) == (PolicyCellState.DRIFT, "instance")
    node.accepted = {AUTH_TTL_VARIABLE: "30s"}
    assert _cell(nodes, own).state is PolicyCellState.RESTART
    assert _cell(nodes, wanted).state is PolicyCellState.DRIFT
    node.down = True
    cell = _cell(nodes, wanted)
    assert (cell.state, cell.current_value) == (PolicyCellState.UNKNOWN, None)


def test_left_over() -> None:
    """Nothing is wanted any more, but the file still has it: seen before a restart and after."""
    node = PolicyNode("auth-1", environment={AUTH_TTL_VARIABLE: "60s"})
    nodes = PolicyNodes(node)
    node.accepted = {AUTH_TTL_VARIABLE: "30s"}
    assert _cell(nodes, {}).state is PolicyCellState.LEFT
    node.restart()
    cell = _cell(nodes, {})
    assert (cell.state, cell.current_value) == (PolicyCellState.LEFT, "30s")
    assert cell.report is not None
    assert cell.report.text_with_desired("") == "60s"
    assert matrix.create_matrix(nodes.views(), nodes.observed(), {})[0].has_drift


def test_lines() -> None:
    """Auths first; why an instance takes nothing is said."""
    nodes = PolicyNodes(PolicyNode("proxy-1", "proxy"), PolicyNode("auth-1", why_not="no folder"))
    auth, proxy = matrix.create_matrix(nodes.views(), nodes.observed(), {"proxy": {PROXY_TTL_VARIABLE: "1m"}})
    assert (auth.name, auth.is_managed, auth.note) == ("auth-1", False, "no folder")
    assert (proxy.is_managed, proxy.has_drift, auth.has_drift) == (True, True, False)
    assert matrix.create_matrix(nodes.views(), {}, {})[0].note == "no report yet"


def test_own_values_go_over_those_of_the_role() -> None:
    """By name; a role's other values stay."""
    wanted = {
        "auth": {AUTH_TTL_VARIABLE: "60s", HTTP_CLOSE_VARIABLE: "true"},
        "one": {AUTH_TTL_VARIABLE: "30s"},
    }
    assert matrix.desired_values_for(wanted, "auth", "one") == {
        AUTH_TTL_VARIABLE: "30s",
        HTTP_CLOSE_VARIABLE: "true",
    }
    assert matrix.desired_values_for(wanted, "auth", "two") == wanted["auth"]
    assert matrix.desired_values_for(wanted, "proxy", "three") == {}


def test_who_must_restart_or_be_told() -> None:
    """Who would run with something else, who has left-overs, and who does not say; not who runs with it already."""
    node = PolicyNode("auth-1", environment={AUTH_TTL_VARIABLE: "60s"})
    nodes = PolicyNodes(node)
    line = matrix.create_matrix(nodes.views(), nodes.observed(), {})[0]
    assert not matrix.needs_update(line, {})
    assert not matrix.needs_update(line, {AUTH_TTL_VARIABLE: "1m"})
    assert matrix.needs_update(line, {AUTH_TTL_VARIABLE: "30s"})
    silent = matrix.create_matrix(nodes.views(), {}, {})[0]
    assert matrix.needs_update(silent, {AUTH_TTL_VARIABLE: "30s"})
    assert not matrix.needs_update(silent, {})
    node.accepted = {AUTH_TTL_VARIABLE: "30s"}
    left = matrix.create_matrix(nodes.views(), nodes.observed(), {})[0]
    assert matrix.needs_update(left, {})


def test_gone() -> None:
    """Wanted of somebody who is in the record no more; roles are always there."""
    nodes = PolicyNodes(PolicyNode("auth-1"))
    wanted = {
        "id-auth-1": {AUTH_TTL_VARIABLE: "1m"},
        "id-auth-2": {AUTH_TTL_VARIABLE: "1m"},
        "proxy": {},
        "x": {},
    }
    lines = matrix.create_matrix(nodes.views(), nodes.observed(), wanted)
    assert matrix.deregistered_values_of(lines, wanted) == {"id-auth-2": {AUTH_TTL_VARIABLE: "1m"}}
