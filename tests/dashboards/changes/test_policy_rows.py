"""Policies in words; the rest is seen on the pages (tests/dashboards/changes/views)."""

from __future__ import annotations

from dashboards.changes import policy_rows
from fleet.changes.policies import matrix
from fleet.protocol.policies.env_policies import BY_NAME, HTTP_CLOSE_VARIABLE
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.protocol.recovery.service_config import RFD_VARIABLE, UPSTREAM_VARIABLE
from tests.fakes.policy_nodes import PolicyNode, PolicyNodes


def test_many_instances_with_the_same_value() -> None:
    """The first ones by name, and a number instead of a last one only where it is shorter."""
    policy = BY_NAME[AUTH_TTL_VARIABLE]

    def names_of(count: int) -> str:
        nodes = PolicyNodes(*(PolicyNode(f"auth-{number}") for number in range(1, count + 1)))
        rows = matrix.create_matrix(nodes.views(), nodes.read_reports(), {})
        (value,) = policy_rows.values_context_of(policy, {}, "auth", rows)["current_values"]
        return str(value["names"])

    assert names_of(9).endswith("auth-8, auth-9")
    assert names_of(20).endswith("auth-8 and 12 more")


def test_value_of_a_form_field() -> None:
    """Durations with their units; a text that is none stays, as do other kinds."""
    ttl, switch = BY_NAME[AUTH_TTL_VARIABLE], BY_NAME[HTTP_CLOSE_VARIABLE]
    assert policy_rows.field_text_of(ttl, "1m30s") == "1 min 30 s"
    assert policy_rows.field_text_of(ttl, "soon") == "soon"
    assert policy_rows.field_text_of(switch, "true") == "true"


def test_setting_in_another_format_shows_no_default() -> None:
    """Agents read either variable, so the default of the other one would mislead."""
    value = '{"grpc_client_lb_policy": {"mode": "reconnect"}}'
    node = PolicyNode("auth-1", environment={RFD_VARIABLE: value})

    def twin_texts_of(*nodes: PolicyNode) -> dict[str, str]:
        fleet = PolicyNodes(*nodes)
        (row,) = matrix.create_matrix(fleet.views(), fleet.read_reports(), {})
        cells = (policy_rows.cell_context_of(cell, "", row.cells) for cell in row.cells)
        return {cell["name"]: cell["twin_text"] for cell in cells if cell["twin_text"]}

    assert twin_texts_of(node) == {UPSTREAM_VARIABLE: "same as reconnect mode"}
    other_node = PolicyNode("auth-1", environment={UPSTREAM_VARIABLE: '{"mode": "reconnect"}'})
    assert twin_texts_of(other_node) == {RFD_VARIABLE: "same as Teleport format"}
    assert twin_texts_of(PolicyNode("auth-1")) == {}


def test_how_long_something_took() -> None:
    """Nothing while it does."""
    assert policy_rows.format_duration(1.0, 3.5) == "2.5 s"
    assert policy_rows.format_duration(1.0, 0.0) == ""
