"""Decisions of a rollout."""

from __future__ import annotations

import pytest

from fleet.vocabulary import rollouts
from fleet.vocabulary.rollouts import InstanceProbe, RolloutSettings, RolloutStepState, StepAction


@pytest.mark.parametrize("name", list(rollouts.RANGES))
@pytest.mark.parametrize("wrong", ["", "x", "-1", "1.5", "99999999999"])
def test_wrong_terms_are_named(name: str, wrong: str) -> None:
    """A message at each field."""
    assert "whole number" in rollouts.parse_rollout_settings({name: wrong}).problems[name]


def test_terms_are_read() -> None:
    """Defaults for what is left out; unknown fields are named."""
    assert rollouts.parse_rollout_settings({"at_once": "2"}).settings == RolloutSettings(at_once=2)
    assert rollouts.parse_rollout_settings({"x": 1}).problems


@pytest.mark.parametrize(
    ("state", "waited", "seen", "move"),
    [
        (RolloutStepState.DRAINING, 1, InstanceProbe("old"), StepAction.NOTHING),
        (RolloutStepState.DRAINING, 2, InstanceProbe("old"), StepAction.RESTART),
        (RolloutStepState.RESTARTING, 1, InstanceProbe("old"), StepAction.NOTHING),
        (RolloutStepState.RESTARTING, 1, InstanceProbe(error="refused"), StepAction.NOTHING),
        (RolloutStepState.RESTARTING, 90, InstanceProbe(error="refused"), StepAction.FAIL),
        (RolloutStepState.RESTARTING, 1, InstanceProbe("new", has_desired_values=True), StepAction.CHECK),
        (RolloutStepState.RESTARTING, 1, InstanceProbe("new"), StepAction.FAIL),
        (
            RolloutStepState.CHECKING,
            1,
            InstanceProbe("new", has_desired_values=True, serving=True),
            StepAction.NOTHING,
        ),
        (
            RolloutStepState.CHECKING,
            5,
            InstanceProbe("new", has_desired_values=True, serving=True),
            StepAction.FINISH,
        ),
        (RolloutStepState.CHECKING, 5, InstanceProbe("new", has_desired_values=True), StepAction.NOTHING),
        (RolloutStepState.CHECKING, 90, InstanceProbe("new", has_desired_values=True), StepAction.FAIL),
    ],
)
def test_following(state: RolloutStepState, waited: float, seen: InstanceProbe, move: StepAction) -> None:
    """What comes next, by what is seen and for how long."""
    found = rollouts.decide_next_step(
        state, since=100.0, run_id="old", probe=seen, settings=RolloutSettings(), now=100.0 + waited
    )
    assert found.action is move
    assert (move is StepAction.FAIL) <= bool(found.detail)


def test_turns() -> None:
    """As many at a time as allowed; nobody while others are sick."""
    waiting, ok, busy = RolloutStepState.WAITING, RolloutStepState.OK, RolloutStepState.CHECKING
    assert rollouts.choose_steps_to_start([waiting] * 3, RolloutSettings(), [])[0] == (0,)
    assert rollouts.choose_steps_to_start([ok, busy, waiting], RolloutSettings(), [])[0] == ()
    assert rollouts.choose_steps_to_start([ok, busy, waiting, waiting], RolloutSettings(at_once=3), [])[
        0
    ] == (2, 3)
    places, waits_for = rollouts.choose_steps_to_start([waiting], RolloutSettings(), ["auth-2"])
    assert places == ()
    assert "auth-2 to become healthy" in waits_for
    assert rollouts.choose_steps_to_start([ok], RolloutSettings(), []) == ((), "")
