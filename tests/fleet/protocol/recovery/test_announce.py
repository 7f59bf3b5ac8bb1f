"""Announce TTLs, heartbeat schedules, and the process state from heartbeats."""

from __future__ import annotations

import pytest

from fleet.protocol.recovery import announce
from fleet.protocol.recovery.announce import Component, ComponentState


@pytest.mark.parametrize(("text", "ttl"), [("", 600.0), ("30s", 30.0), ("1m", 60.0), ("100ms", 0.1)])
def test_ttl_from_environment(text: str, ttl: float) -> None:
    """The RFD's variables are Go durations; unset or empty is the default of ten minutes."""
    variable = announce.PROXY_TTL_VARIABLE
    assert announce.ttl_from({variable: text}, variable) == ttl
    assert announce.ttl_from({}, variable) == 600.0


@pytest.mark.parametrize("text", ["not-a-duration", "30", "0s", "-1m", "1ns", "99ms"])
def test_invalid_ttl_is_refused(text: str) -> None:
    """The error names the variable; TTLs too short for heartbeats are refused, too."""
    with pytest.raises(announce.AnnounceError, match=announce.AUTH_TTL_VARIABLE):
        announce.ttl_from({announce.AUTH_TTL_VARIABLE: text}, announce.AUTH_TTL_VARIABLE)


@pytest.mark.parametrize(
    ("ttl", "chance", "interval", "tick", "retry"),
    [
        (600.0, 0.0, 300.0, 5.0, 60.0),
        (600.0, 0.5, 330.0, 5.0, 60.0),
        (60.0, 0.0, 30.0, 3.0, 30.0),
        (10.0, 0.999, 5.999, 0.5, 5.999),
        (2.0, 0.0, 1.0, 0.1, 1.0),
    ],
)
def test_schedule(ttl: float, chance: float, interval: float, tick: float, retry: float) -> None:
    """Interval = TTL/2 + U[0, TTL/10), tick = min(5 s, TTL/20), retry = min(60 s, interval)."""
    schedule = announce.draw_schedule(ttl, chance)
    assert (schedule.interval, schedule.check_interval, schedule.retry_interval) == pytest.approx(
        (interval, tick, retry)
    )


OK, RECOVERING = Component(ComponentState.OK), Component(ComponentState.RECOVERING, 100.0)
DEGRADED, STARTING = Component(ComponentState.DEGRADED), Component(ComponentState.STARTING)


@pytest.mark.parametrize(
    ("before", "now", "after"),
    [
        (STARTING, 100.0, OK),
        (OK, 100.0, OK),
        (DEGRADED, 100.0, RECOVERING),
        (RECOVERING, 105.0, RECOVERING),
        (RECOVERING, 110.0, RECOVERING),  # exactly two ticks is not more than two
        (RECOVERING, 110.1, OK),
    ],
)
def test_state_after_a_success(before: Component, now: float, after: Component) -> None:
    """A degraded component needs two successes, more than two ticks apart."""
    assert announce.after_success(before, now, tick=5.0) == after


@pytest.mark.parametrize("before", [STARTING, OK, RECOVERING, DEGRADED])
def test_state_after_a_failure(before: Component) -> None:
    """A failure gives DEGRADED from any state."""
    assert announce.after_failure(before) == DEGRADED


@pytest.mark.parametrize(
    ("components", "state", "code", "is_serving"),
    [
        ([], ComponentState.STARTING, 400, False),
        ([OK], ComponentState.OK, 200, True),
        ([OK, STARTING], ComponentState.STARTING, 400, False),
        ([OK, RECOVERING], ComponentState.RECOVERING, 400, False),
        ([RECOVERING, STARTING], ComponentState.RECOVERING, 400, False),
        ([OK, RECOVERING, DEGRADED], ComponentState.DEGRADED, 503, False),
    ],
)
def test_process_state(
    components: list[Component], state: ComponentState, code: int, is_serving: bool
) -> None:
    """The worst component decides; the codes of /readyz and gRPC health are Teleport's."""
    assert announce.process_state(components) is state
    assert announce.readyz_response(state)[0] == code
    assert announce.is_serving(state) is is_serving


def test_state_numbers_match_the_metric() -> None:
    """Alert rules read `process_state`: 0 ok, 1 recovering, 2 degraded, 3 starting."""
    assert [
        state.value
        for state in (
            ComponentState.OK,
            ComponentState.RECOVERING,
            ComponentState.DEGRADED,
            ComponentState.STARTING,
        )
    ] == [
        0,
        1,
        2,
        3,
    ]
