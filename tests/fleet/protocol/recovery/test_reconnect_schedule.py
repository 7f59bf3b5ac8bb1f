"""Schedule of reconnect advice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.protocol.recovery import reconnect_schedule
from fleet.protocol.recovery.reconnect_schedule import ReconnectError, ReconnectSchedule


@pytest.mark.parametrize(("text", "seconds"), [("", 0.0), ("1s", 1.0), ("1h30m", 5400.0)])
def test_interval_from_environment(text: str, seconds: float) -> None:
    """A Go duration; unset and empty mean never."""
    assert reconnect_schedule.interval_from({reconnect_schedule.INTERVAL_VARIABLE: text}) == seconds
    assert reconnect_schedule.interval_from({}) == 0.0


@pytest.mark.parametrize("text", ["5", "0s", "-1h", "999ms", "soon"])
def test_invalid_interval_is_refused(text: str) -> None:
    """The error has the variable and the text."""
    with pytest.raises(ReconnectError, match=f"^{reconnect_schedule.INTERVAL_VARIABLE}: '{text}'"):
        reconnect_schedule.interval_from({reconnect_schedule.INTERVAL_VARIABLE: text})


def test_interval_and_jitter() -> None:
    """Advice is due after interval + U[0, interval/2), and again after advice without effect."""
    schedule: ReconnectSchedule[str] = ReconnectSchedule(100.0)
    schedule.add_tunnel("early", 0.0, 0.0)
    schedule.add_tunnel("late", 0.0, 0.999)
    assert schedule.take_due(99.9, lambda: 0.0) == ()
    assert schedule.take_due(100.0, lambda: 0.0) == ("early",)
    assert schedule.take_due(150.0, lambda: 0.0) == ("late",)
    assert schedule.take_due(200.0, lambda: 0.0) == ("early",)
    schedule.remove_tunnel("early")
    assert schedule.take_due(1000.0, lambda: 0.0) == ("late",)
    schedule.remove_tunnel("never there")


def test_zero_interval_gives_no_advice() -> None:
    schedule: ReconnectSchedule[str] = ReconnectSchedule(0.0)
    schedule.add_tunnel("a", 0.0, 0.0)
    assert schedule.take_due(1e9, lambda: 0.0) == ()


@given(
    st.lists(st.floats(0.0, 1.0, exclude_max=True), min_size=1, max_size=40),
    st.lists(st.floats(1.0, 200.0), max_size=30),
)
def test_laws(chances: list[float], waits: list[float]) -> None:
    """Each tunnel is advised at least one interval apart, and within one and a half."""
    schedule: ReconnectSchedule[int] = ReconnectSchedule(100.0)
    advised_at = dict.fromkeys(range(len(chances)), 0.0)
    for tunnel, chance in enumerate(chances):
        schedule.add_tunnel(tunnel, 0.0, chance)
    now, draw = 0.0, iter(chances * 1000)
    for wait in waits:
        now += wait
        due_tunnels = schedule.take_due(now, lambda: next(draw))
        assert len(set(due_tunnels)) == len(due_tunnels)
        for tunnel in due_tunnels:
            assert now - advised_at[tunnel] >= 100.0 - 1e-6
            advised_at[tunnel] = now
        assert all(now - at < 150.0 + 1e-6 for at in advised_at.values())
