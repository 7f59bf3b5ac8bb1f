from __future__ import annotations

import pytest

from fleet.nodes.simulation.fault_script import (
    Action,
    ScriptStep,
    SimulatedFault,
    SimulatedFaultError,
    parse_fault,
    parse_script,
)


def test_fault_with_count_reads_back_as_its_text() -> None:
    """A fault travels as text between processes and must arrive as it was."""
    for text in ("freeze proxy-14", "strand proxy-3 50", "offline proxy-1* 7", "heal all"):
        assert str(parse_fault(text)) == text
    assert parse_fault("strand proxy-3 50") == SimulatedFault(Action.STRAND, "proxy-3", 50)


@pytest.mark.parametrize(
    ("text", "says"),
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
def test_fault_wrong_says_what_is_wrong(text: str, says: str) -> None:
    """The sentence names the mistake."""
    with pytest.raises(SimulatedFaultError, match=says):
        parse_fault(text)


def test_script_with_comments_is_ordered_by_time() -> None:
    """Lines may stand in any order."""
    script = "# an incident\nt=30 resume proxy-1  # again\n\nt=1.5 freeze proxy-1\n"
    assert parse_script(script) == (
        ScriptStep(1.5, SimulatedFault(Action.FREEZE, "proxy-1")),
        ScriptStep(30.0, SimulatedFault(Action.THAW, "proxy-1")),
    )


@pytest.mark.parametrize(
    "line", ["freeze proxy-1", "t=soon freeze proxy-1", "t=-1 freeze proxy-1", "t=nan heal all", "t=1"]
)
def test_script_wrong_names_the_line(line: str) -> None:
    """Somebody with a long script must find the place."""
    with pytest.raises(SimulatedFaultError, match="line 2"):
        parse_script(f"t=0 freeze proxy-1\n{line}\n")


def test_names_patterns() -> None:
    """`all` and patterns mean several; nothing found is an error."""
    known = ["auth-1", "proxy-1", "proxy-12", "proxy-2"]
    assert SimulatedFault(Action.HEAL, "all").names(known) == known
    assert SimulatedFault(Action.KILL, "proxy-1*").names(known) == ["proxy-1", "proxy-12"]
    with pytest.raises(SimulatedFaultError, match="no instance matches 'proxy-9'"):
        SimulatedFault(Action.KILL, "proxy-9").names(known)
