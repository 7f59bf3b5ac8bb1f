"""Decisions about advice to connect to another auth."""

from __future__ import annotations

import pytest

from fleet.protocol.recovery import auth_move
from fleet.protocol.recovery.auth_move import Trial


@pytest.mark.parametrize(
    ("connected_to", "leave", "elsewhere"),
    [("a", "a", False), ("b", "a", True), ("", "a", False), ("b", "", False), ("", "", False)],
)
def test_only_an_agent_of_that_auth_leaves_it(connected_to: str, leave: str, elsewhere: bool) -> None:
    """An agent that does not know its auth may be connected to the one that is to be left."""
    assert auth_move.is_on_another_auth(connected_to, leave) is elsewhere


@pytest.mark.parametrize(
    ("trial", "leave", "says"),
    [
        (Trial("b"), "a", ""),
        (Trial("b"), "", ""),
        (Trial(""), "a", ""),
        (Trial("a"), "a", "the connection reached the auth"),
        (Trial("b", is_draining=True), "a", "auth b is draining and takes no new connections"),
        (Trial("", is_draining=True), "a", "auth (unknown) is draining and takes no new connections"),
        (Trial("a", is_draining=True), "a", "the connection reached the auth"),
        (Trial("b", problem="auth b did not take a heartbeat: no backend"), "a", "no backend"),
        (Trial(problem="no auth that is healthy answered in time"), "", "in time"),
    ],
)
def test_an_agent_goes_over_only_to_another_auth_that_takes_it(trial: Trial, leave: str, says: str) -> None:
    """Not back, not to an auth that drains, and to none that did not take a heartbeat."""
    why = auth_move.unfit_reason(trial, leave)
    assert says in why
    assert bool(why) == bool(says)


@pytest.mark.parametrize(("addresses", "trials"), [(0, 3), (1, 3), (2, 3), (4, 4), (5, 5), (100, 5)])
def test_trials(addresses: int, trials: int) -> None:
    """Several behind one balancer, and not all of a hundred addresses."""
    assert auth_move.trial_count(addresses) == trials


@pytest.mark.parametrize(
    ("led_back", "others", "goes_on"),
    [(0, 0, True), (11, 0, True), (12, 0, False), (0, 2, True), (0, 3, False), (11, 2, True), (11, 3, False)],
)
def test_trials_that_led_back_are_counted_by_themselves(led_back: int, others: int, goes_on: bool) -> None:
    """Proxies choose auths at random: three trials would leave one agent of eight behind where there are two auths."""
    back = auth_move.unfit_reason(Trial("a"), "a")
    problems = [back] * led_back + ["auth b is draining and takes no new connections"] * others
    assert auth_move.should_try_again(problems, 1) is goes_on


def test_reason_names_each_problem_once() -> None:
    """In the order of the trials."""
    assert auth_move.stay_reason(["b drains", "led back", "b drains"]) == (
        "no other auth accepted a heartbeat: b drains; led back"
    )
