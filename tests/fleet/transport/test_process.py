"""The state of a process."""

from __future__ import annotations

from fleet.protocol.recovery.announce import State
from fleet.transport.process import ProcessState


def test_listeners_hear_each_change_once() -> None:
    """Told at once, then on changes of the whole only."""
    process = ProcessState(tick=1.0)
    heard: list[State] = []
    process.listen(heard.append)
    process.register("auth")
    process.succeeded("auth", 0.0)
    process.succeeded("auth", 1.0)
    process.failed("auth")
    process.failed("auth")
    process.succeeded("auth", 2.0)
    process.succeeded("auth", 4.0)
    process.succeeded("auth", 4.1)
    assert heard == [State.STARTING, State.OK, State.DEGRADED, State.RECOVERING, State.OK]


def test_leaving_is_not_undone() -> None:
    """An ending process is out of rotation, whatever its heartbeats say."""
    process = ProcessState(tick=1.0)
    process.succeeded("auth", 0.0)
    process.leave()
    process.succeeded("auth", 10.0)
    assert process.state is State.DEGRADED
