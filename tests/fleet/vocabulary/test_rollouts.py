"""Decisions of a rollout."""

from __future__ import annotations

import pytest

from fleet.vocabulary import rollouts
from fleet.vocabulary.rollouts import Move, NodeSeen, StepState, Terms


@pytest.mark.parametrize("name", list(rollouts.RANGES))
@pytest.mark.parametrize("wrong", ["", "x", "-1", "1.5", "99999999999"])
def test_wrong_terms_are_named(name: str, wrong: str) -> None:
    """A message at each field."""
    assert "whole number" in rollouts.read_terms({name: wrong}).problems[name]


def test_terms_are_read() -> None:
    """Defaults for what is left out; unknown fields are named."""
    assert rollouts.read_terms({"at_once": "2"}).terms == Terms(at_once=2)
    assert rollouts.read_terms({"x": 1}).problems


@pytest.mark.parametrize(
    ("state", "waited", "seen", "move"),
    [
        (StepState.DRAINING, 1, NodeSeen("old"), Move.NOTHING),
        (StepState.DRAINING, 2, NodeSeen("old"), Move.RESTART),
        (StepState.RESTARTING, 1, NodeSeen("old"), Move.NOTHING),
        (StepState.RESTARTING, 1, NodeSeen(error="refused"), Move.NOTHING),
        (StepState.RESTARTING, 90, NodeSeen(error="refused"), Move.FAIL),
        (StepState.RESTARTING, 1, NodeSeen("new", runs_wanted=True), Move.CHECK),
        (StepState.RESTARTING, 1, NodeSeen("new"), Move.FAIL),
        (StepState.CHECKING, 1, NodeSeen("new", runs_wanted=True, serving=True), Move.NOTHING),
        (StepState.CHECKING, 5, NodeSeen("new", runs_wanted=True, serving=True), Move.FINISH),
        (StepState.CHECKING, 5, NodeSeen("new", runs_wanted=True), Move.NOTHING),
        (StepState.CHECKING, 90, NodeSeen("new", runs_wanted=True), Move.FAIL),
    ],
)
def test_following(state: StepState, waited: float, seen: NodeSeen, move: Move) -> None:
    """What comes next, by what is seen and for how long."""
    found = rollouts.following(state, since=100.0, run_id="old", seen=seen, terms=Terms(), now=100.0 + waited)
    assert found.move is move
    assert (move is Move.FAIL) <= bool(found.detail)


def test_turns() -> None:
    """As many at a time as allowed; nobody while others are sick."""
    waiting, ok, busy = StepState.WAITING, StepState.OK, StepState.CHECKING
    assert rollouts.turns([waiting] * 3, Terms(), [])[0] == (0,)
    assert rollouts.turns([ok, busy, waiting], Terms(), [])[0] == ()
    assert rollouts.turns([ok, busy, waiting, waiting], Terms(at_once=3), [])[0] == (2, 3)
    places, waits_for = rollouts.turns([waiting], Terms(), ["auth-2"])
    assert places == ()
    assert "auth-2 is well" in waits_for
    assert rollouts.turns([ok], Terms(), []) == ((), "")
