"""Decisions about advice to connect to another auth."""

from __future__ import annotations

import pytest

from fleet.protocol.recovery import auth_move
from fleet.protocol.recovery.auth_move import TrialResult


@pytest.mark.parametrize(
    ("connected_to", "leave", "expected"),
    [("a", "a", False), ("b", "a", True), ("", "a", False), ("b", "", False), ("", "", False)],
)
def test_only_agents_of_the_advised_auth_leave(connected_to: str, leave: str, expected: bool) -> None:
    """An agent that does not know its auth may be connected to the advised one."""
    assert auth_move.is_on_another_auth(connected_to, leave) is expected


@pytest.mark.parametrize(
    ("trial", "leave", "expected"),
    [
        (TrialResult("b"), "a", ""),
        (TrialResult("b"), "", ""),
        (TrialResult(""), "a", ""),
        (TrialResult("a"), "a", "the connection reached the auth"),
        (TrialResult("b", is_draining=True), "a", "auth b is draining and takes no new connections"),
        (TrialResult("", is_draining=True), "a", "auth (unknown) is draining and takes no new connections"),
        (TrialResult("a", is_draining=True), "a", "the connection reached the auth"),
        (TrialResult("b", problem="auth b did not take a heartbeat: no backend"), "a", "no backend"),
        (TrialResult(problem="no auth that is healthy answered in time"), "", "in time"),
    ],
)
def test_agent_moves_only_to_another_accepting_auth(trial: TrialResult, leave: str, expected: str) -> None:
    """It does not move back, to a draining auth, or to one that took no heartbeat."""
    reason = auth_move.unfit_reason(trial, leave)
    assert expected in reason
    assert bool(reason) == bool(expected)


@pytest.mark.parametrize(("addresses", "trials"), [(0, 3), (1, 3), (2, 3), (4, 4), (5, 5), (100, 5)])
def test_trial_count(addresses: int, trials: int) -> None:
    """Several trials behind one load balancer, and at most five of a hundred addresses."""
    assert auth_move.max_trials(addresses) == trials


@pytest.mark.parametrize(
    ("returned_count", "other_problems", "expected"),
    [(0, 0, True), (11, 0, True), (12, 0, False), (0, 2, True), (0, 3, False), (11, 2, True), (11, 3, False)],
)
def test_trials_that_return_have_a_separate_limit(
    returned_count: int, other_problems: int, expected: bool
) -> None:
    """Proxies choose auths at random: with two auths and three trials, one agent of eight would stay."""
    same_auth_problem = auth_move.unfit_reason(TrialResult("a"), "a")
    problems = [same_auth_problem] * returned_count + [
        "auth b is draining and takes no new connections"
    ] * other_problems
    assert auth_move.should_try_again(problems, 1) is expected


def test_stay_reason_lists_each_problem_once() -> None:
    """They are in the order of the trials."""
    assert auth_move.stay_reason(["b drains", "led back", "b drains"]) == (
        "no other auth accepted a heartbeat: b drains; led back"
    )
