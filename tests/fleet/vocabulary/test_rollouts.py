"""Decisions of a rollout."""

from __future__ import annotations

import pytest

from fleet.vocabulary import rollouts
from fleet.vocabulary.rollouts import InstanceProbe, RolloutSettings, RolloutStepState, StepAction


def test_skipped_instances_are_not_restarted() -> None:
    """An abort must not look like progress."""
    counts = rollouts.count_steps(
        [RolloutStepState.SKIPPED, RolloutStepState.SKIPPED, RolloutStepState.DRAINING]
    )
    assert (counts.total_count, counts.succeeded_count, counts.skipped_count, counts.percent) == (3, 0, 2, 0)
    assert rollouts.count_steps([]).percent == 100


def test_progress_names_the_instances_that_are_followed() -> None:
    states = {"auth-1": RolloutStepState.VERIFYING, "auth-2": RolloutStepState.FAILED}
    assert (
        rollouts.describe_progress(states) == "restarted 0 of 2 instances, 1 failed; auth-1 is being verified"
    )
    assert rollouts.describe_progress({"auth-1": RolloutStepState.SUCCEEDED}) == "restarted 1 of 1 instance"


@pytest.mark.parametrize("name", list(rollouts.SETTING_RANGES))
@pytest.mark.parametrize("invalid_value", ["", "x", "-1", "1.5", "99999999999"])
def test_invalid_setting_is_a_problem(name: str, invalid_value: str) -> None:
    """A message at each field."""
    assert "whole number" in rollouts.parse_rollout_settings({name: invalid_value}).problems[name]


def test_settings_are_parsed_with_defaults() -> None:
    """An unknown setting is a problem."""
    assert rollouts.parse_rollout_settings({"concurrency": "2"}).settings == RolloutSettings(concurrency=2)
    assert rollouts.parse_rollout_settings({"x": 1}).problems


@pytest.mark.parametrize(
    ("state", "elapsed_seconds", "probe", "expected_action"),
    [
        (RolloutStepState.DRAINING, 1, InstanceProbe("old"), StepAction.NOTHING),
        (RolloutStepState.DRAINING, 2, InstanceProbe("old"), StepAction.RESTART),
        (RolloutStepState.RESTARTING, 1, InstanceProbe("old"), StepAction.NOTHING),
        (RolloutStepState.RESTARTING, 1, InstanceProbe(error="refused"), StepAction.NOTHING),
        (RolloutStepState.RESTARTING, 90, InstanceProbe(error="refused"), StepAction.FAIL),
        (RolloutStepState.RESTARTING, 1, InstanceProbe("new", has_desired_values=True), StepAction.CHECK),
        (RolloutStepState.RESTARTING, 1, InstanceProbe("new"), StepAction.FAIL),
        (
            RolloutStepState.VERIFYING,
            1,
            InstanceProbe("new", has_desired_values=True, serving=True),
            StepAction.NOTHING,
        ),
        (
            RolloutStepState.VERIFYING,
            5,
            InstanceProbe("new", has_desired_values=True, serving=True),
            StepAction.FINISH,
        ),
        (RolloutStepState.VERIFYING, 5, InstanceProbe("new", has_desired_values=True), StepAction.NOTHING),
        (RolloutStepState.VERIFYING, 90, InstanceProbe("new", has_desired_values=True), StepAction.FAIL),
    ],
)
def test_next_step_depends_on_the_probe_and_elapsed_time(
    state: RolloutStepState, elapsed_seconds: float, probe: InstanceProbe, expected_action: StepAction
) -> None:
    """For each state of a step."""
    step = rollouts.decide_next_step(
        state, since=100.0, run_id="old", probe=probe, settings=RolloutSettings(), now=100.0 + elapsed_seconds
    )
    assert step.action is expected_action
    assert (expected_action is StepAction.FAIL) <= bool(step.detail)


def test_steps_start_up_to_the_concurrency() -> None:
    """No step starts while another instance is sick."""
    pending, ok, busy = RolloutStepState.PENDING, RolloutStepState.SUCCEEDED, RolloutStepState.VERIFYING
    assert rollouts.choose_steps_to_start([pending] * 3, RolloutSettings(), [])[0] == (0,)
    assert rollouts.choose_steps_to_start([ok, busy, pending], RolloutSettings(), [])[0] == ()
    assert rollouts.choose_steps_to_start([ok, busy, pending, pending], RolloutSettings(concurrency=3), [])[
        0
    ] == (2, 3)
    places, waits_for = rollouts.choose_steps_to_start([pending], RolloutSettings(), ["auth-2"])
    assert places == ()
    assert "auth-2 to become healthy" in waits_for
    assert rollouts.choose_steps_to_start([ok], RolloutSettings(), []) == ((), "")


@pytest.mark.parametrize(
    ("succeeded_count", "skipped_count", "sentence"),
    [
        (2, 0, "2 instances restarted"),
        (1, 0, "1 instance restarted"),
        (1, 2, "1 instance restarted, 2 skipped"),
        (0, 2, "no instance restarted, 2 skipped"),
        (0, 0, "desired values stored; no restarts"),
    ],
)
def test_result_counts_restarted_and_skipped_instances(
    succeeded_count: int, skipped_count: int, sentence: str
) -> None:
    """Each by its own number."""
    states = [RolloutStepState.SUCCEEDED] * succeeded_count + [RolloutStepState.SKIPPED] * skipped_count
    assert rollouts.describe_result(states) == sentence


@pytest.mark.parametrize(
    ("instance_count", "concurrency", "seconds"), [(0, 1, 0.0), (1, 1, 12.0), (3, 1, 36.0), (3, 2, 24.0)]
)
def test_estimate_counts_groups(instance_count: int, concurrency: int, seconds: float) -> None:
    """Each group drains, restarts and soaks."""
    settings = RolloutSettings(concurrency=concurrency, drain_seconds=2, soak_seconds=5)
    assert rollouts.estimate_rollout_seconds(instance_count, settings, restart_seconds=5.0) == seconds


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, ""), (0, ""), (1, "; agents reconnected once"), (1_200, "; agents reconnected 1,200 times")],
)
def test_reconnects_end_the_result(count: int | None, text: str) -> None:
    """Nothing is said of none, nor of what was not recorded."""
    assert rollouts.describe_reconnects(count) == text
