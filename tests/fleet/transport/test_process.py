"""Health of a process."""

from __future__ import annotations

from fleet.protocol.recovery.announce import ComponentState
from fleet.transport.process import ProcessHealth


def test_listeners_get_each_change_once() -> None:
    """They get the current state at once, then its changes."""
    process = ProcessHealth(tick=1.0)
    states: list[ComponentState] = []
    process.add_listener(states.append)
    process.register("auth")
    process.record_success("auth", 0.0)
    process.record_success("auth", 1.0)
    process.record_failure("auth")
    process.record_failure("auth")
    process.record_success("auth", 2.0)
    process.record_success("auth", 4.0)
    process.record_success("auth", 4.1)
    assert states == [
        ComponentState.STARTING,
        ComponentState.OK,
        ComponentState.DEGRADED,
        ComponentState.RECOVERING,
        ComponentState.OK,
    ]


def test_leave_is_final() -> None:
    """A process that is stopping stays degraded, whatever its heartbeats do."""
    process = ProcessHealth(tick=1.0)
    process.record_success("auth", 0.0)
    process.leave()
    process.record_success("auth", 10.0)
    assert process.state is ComponentState.DEGRADED
