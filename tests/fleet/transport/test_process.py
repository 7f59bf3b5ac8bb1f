"""The state of a process."""

from __future__ import annotations

from fleet.protocol.recovery.announce import ComponentState
from fleet.transport.process import ProcessHealth


def test_listeners_hear_each_change_once() -> None:
    """Told at once, then on changes of the whole only."""
    process = ProcessHealth(tick=1.0)
    heard: list[ComponentState] = []
    process.listen(heard.append)
    process.register("auth")
    process.record_success("auth", 0.0)
    process.record_success("auth", 1.0)
    process.record_failure("auth")
    process.record_failure("auth")
    process.record_success("auth", 2.0)
    process.record_success("auth", 4.0)
    process.record_success("auth", 4.1)
    assert heard == [
        ComponentState.STARTING,
        ComponentState.OK,
        ComponentState.DEGRADED,
        ComponentState.RECOVERING,
        ComponentState.OK,
    ]


def test_leaving_is_not_undone() -> None:
    """An ending process is out of rotation, whatever its heartbeats say."""
    process = ProcessHealth(tick=1.0)
    process.record_success("auth", 0.0)
    process.leave()
    process.record_success("auth", 10.0)
    assert process.state is ComponentState.DEGRADED
