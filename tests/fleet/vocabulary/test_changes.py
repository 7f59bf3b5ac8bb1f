from __future__ import annotations

import pytest

from fleet.vocabulary.changes import (
    TRANSITIONS,
    ChangeKind,
    ChangeState,
    confirmation_problems,
    confirmation_requirements_of,
)


def test_every_state_has_followers_and_final_ones_only_undone() -> None:
    """What ended stays ended, but for a later change that takes it back."""
    assert set(TRANSITIONS) == set(ChangeState)
    for state in ChangeState:
        if state.is_final:
            assert TRANSITIONS[state] <= {ChangeState.UNDONE}


def test_every_kind_has_a_label() -> None:
    """In words."""
    assert all(kind.label for kind in ChangeKind)


@pytest.mark.parametrize(
    ("agents", "production", "typed"), [(100, False, ""), (101, False, "eu"), (0, True, "eu")]
)
def test_asks_for_the_name_where_it_matters(agents: int, production: bool, typed: str) -> None:
    """Above a hundred agents, or on a production cluster."""
    asked = confirmation_requirements_of(
        cluster="eu", agents=agents, production=production, second_approver=False
    )
    assert asked.expected_name == typed


@pytest.mark.parametrize("reason", ["", "  x ", "x" * 501, "a NUL \0"])
def test_confirmation_wants_a_usable_reason(reason: str) -> None:
    """Each is refused at the field."""
    asked = confirmation_requirements_of(cluster="eu", agents=0, production=False, second_approver=False)
    assert set(confirmation_problems(asked, reason=reason, typed_name="")) == {"reason"}
