from __future__ import annotations

import pytest

from fleet.vocabulary.changes import (
    TRANSITIONS,
    ChangeKind,
    ChangeState,
    confirmation_requirements_of,
    find_confirmation_problems,
    state_label_of,
)


def test_cancelled_change_that_had_started_is_aborted() -> None:
    """One word for the abort of a rollout, a campaign and a service change."""
    assert state_label_of("cancelled", has_started=True) == "aborted"
    assert state_label_of("cancelled", has_started=False) == "cancelled"
    assert state_label_of("verified", has_started=True) == "verified"


def test_final_states_can_only_become_undone() -> None:
    """What ended stays ended, but for a later change that takes it back."""
    assert set(TRANSITIONS) == set(ChangeState)
    for state in ChangeState:
        if state.is_final:
            assert TRANSITIONS[state] <= {ChangeState.UNDONE}


def test_every_kind_has_a_label() -> None:
    assert all(kind.label for kind in ChangeKind)


@pytest.mark.parametrize(
    ("agents", "production", "expected_name"), [(100, False, ""), (101, False, "eu"), (0, True, "eu")]
)
def test_name_is_required_for_many_agents_or_production(
    agents: int, production: bool, expected_name: str
) -> None:
    """Above a hundred agents, or on a production cluster."""
    requirements = confirmation_requirements_of(
        cluster="eu", affected_count=agents, is_production=production, review_required=False
    )
    assert requirements.expected_name == expected_name


@pytest.mark.parametrize("reason", ["", "  x ", "x" * 501, "a NUL \0"])
def test_invalid_reason_is_a_problem(reason: str) -> None:
    """Each is refused at the field."""
    requirements = confirmation_requirements_of(
        cluster="eu", affected_count=0, is_production=False, review_required=False
    )
    assert set(find_confirmation_problems(requirements, reason=reason, typed_name="")) == {"reason"}
