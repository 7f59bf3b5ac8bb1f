from __future__ import annotations

import pytest

from fleet.nodes.simulation.fault_script import (
    ScriptStep,
    SimulatedFault,
    SimulatedFaultAction,
    SimulatedFaultError,
    parse_fault,
    parse_script,
)


def test_formatted_fault_equals_its_text() -> None:
    """A fault is sent as text between processes and must not change."""
    for text in ("freeze proxy-14", "strand proxy-3 50", "offline proxy-1* 7", "heal all"):
        assert str(parse_fault(text)) == text
    assert parse_fault("strand proxy-3 50") == SimulatedFault(SimulatedFaultAction.STRAND, "proxy-3", 50)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a fault"),
        ("freeze", "is not a fault"),
        ("melt proxy-1", "unknown action"),
        ("freeze proxy-1 5", "needs TARGET only"),
        ("strand proxy-1", "needs TARGET COUNT"),
        ("strand proxy-1 many", "is not a number of agents"),
        ("offline proxy-1 0", "is not a number of agents"),
    ],
)
def test_invalid_fault_is_explained(text: str, message: str) -> None:
    """The error names the mistake."""
    with pytest.raises(SimulatedFaultError, match=message):
        parse_fault(text)


def test_script_steps_are_sorted_by_time() -> None:
    """Lines may have any order and comments."""
    script = "# an incident\nt=30 resume proxy-1  # again\n\nt=1.5 freeze proxy-1\n"
    assert parse_script(script) == (
        ScriptStep(1.5, SimulatedFault(SimulatedFaultAction.FREEZE, "proxy-1")),
        ScriptStep(30.0, SimulatedFault(SimulatedFaultAction.RESUME, "proxy-1")),
    )


@pytest.mark.parametrize(
    "line", ["freeze proxy-1", "t=soon freeze proxy-1", "t=-1 freeze proxy-1", "t=nan heal all", "t=1"]
)
def test_invalid_script_names_the_line(line: str) -> None:
    """The error helps to find the place in a long script."""
    with pytest.raises(SimulatedFaultError, match="line 2"):
        parse_script(f"t=0 freeze proxy-1\n{line}\n")


def test_fault_target_may_be_a_pattern() -> None:
    """`all` and patterns match several instances; no match is an error."""
    instance_names = ["auth-1", "proxy-1", "proxy-12", "proxy-2"]
    assert SimulatedFault(SimulatedFaultAction.HEAL, "all").match_names(instance_names) == instance_names
    assert SimulatedFault(SimulatedFaultAction.KILL, "proxy-1*").match_names(instance_names) == [
        "proxy-1",
        "proxy-12",
    ]
    with pytest.raises(SimulatedFaultError, match="no instance matches 'proxy-9'"):
        SimulatedFault(SimulatedFaultAction.KILL, "proxy-9").match_names(instance_names)
