"""Rounding of expected loads."""

from __future__ import annotations

from fleet.changes.load_forecast import actual_loads_of, round_shares
from fleet.vocabulary.instances import InstanceState
from tests.fakes.policy_nodes import PolicyNode, PolicyNodes


def test_whole_numbers_keep_the_sum() -> None:
    """The largest remainders are rounded up; of equal ones, the first by name."""
    assert round_shares({"a": 1.2, "b": 2.7, "c": 0.1}) == {"a": 1, "b": 3, "c": 0}
    assert round_shares({"b": 0.5, "a": 0.5}) == {"a": 1, "b": 0}
    assert round_shares({}) == {}


def test_actual_loads_are_those_of_the_plan_that_are_known() -> None:
    """An instance that does not respond has none."""
    nodes = PolicyNodes(
        PolicyNode("auth-1", agents=3),
        PolicyNode("auth-2", agents=4, state=InstanceState.SILENT),
        PolicyNode("auth-3", agents=5),
    )
    plan = {"loads": [{"name": "auth-1"}, {"name": "auth-2"}]}
    assert actual_loads_of(plan, nodes.views()) == {"auth-1": 3}
    assert actual_loads_of({}, nodes.views()) == {}
