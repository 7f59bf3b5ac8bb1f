"""Restart supervised children that end, after a pause, and report the errors in their logs.

Plugged into `Supervisor.watch`: `on_exit=restarter.on_exit, on_tick=restarter.tick`.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fleet.processes.supervisor import Child, Supervisor, SupervisorError

#: Seconds: first pause before a restart, longest pause, and run time after which the pauses start over.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
_STABLE_RUN_TIME = 60.0
#: Seconds between two reports of errors per child.
_ERROR_REPORT_INTERVAL = 10.0
#: Error lines of Celery and uvicorn.
_ERROR_LINE = re.compile(rb"^.*\b(?:ERROR|CRITICAL)\b.*$", re.MULTILINE)
#: Bytes to read of a log at once, so that a child that logs a lot cannot block this process.
_MOST_READ_BYTES = 1 << 20


def pause_before_start(failure_count: int) -> float:
    """Return the seconds to wait before the restart after `failure_count` ends in a row, counted from 1.

    The pause does not depend on the exit code: a single SIGKILL is an accident or a manual restart, and 30 s without a
    worker is an outage. A child that the kernel kills repeatedly, for lack of memory, gets longer and longer pauses.
    """
    return min(_FIRST_PAUSE * 2.0 ** min(failure_count - 1, 10), _LONGEST_PAUSE)


def describe_exit(returncode: int) -> str:
    """Return how a process ended, in words."""
    if returncode < 0:
        return f"was terminated by {signal.Signals(-returncode).name}"
    return f"ended with exit code {returncode}"


@dataclass
class _ChildState:
    """Restart and error state of one child."""

    started_at: float
    failure_count: int = 0
    restart_at: float | None = None
    #: Bytes of the log that were read, time of the last report, and the errors since then.
    log_offset: int = 0
    errors_reported_at: float = float("-inf")
    unreported_error_count: int = 0
    last_error: str = ""


@dataclass
class ChildRestarter:
    """Restarts the children of one supervisor. Times are monotonic."""

    supervisor: Supervisor
    write_line: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _child_states: dict[str, _ChildState] = field(default_factory=dict)

    def on_exit(self, child: Child) -> None:
        """Report a child that ended by itself, and schedule its restart."""
        now = self.clock()
        state = self._state_of(child, now)
        state.failure_count = 1 if now - state.started_at > _STABLE_RUN_TIME else state.failure_count + 1
        returncode = child.process.returncode
        pause = pause_before_start(state.failure_count)
        state.restart_at = now + pause
        last = child.last_line() if returncode > 0 else ""
        detail = f": {last}" if last else ""
        self.write_line(
            f"{child.name} {describe_exit(returncode)}{detail}; restarting in {pause:.0f} s (log: {child.log})"
        )

    def tick(self) -> None:
        """Restart the children that are due, and report new errors of all children."""
        now = self.clock()
        for child in self.supervisor.children:
            state = self._state_of(child, now)
            if state.restart_at is not None and now >= state.restart_at:
                self._restart(child, state, now)
            self._report_errors(child, state, now)

    def _state_of(self, child: Child, now: float) -> _ChildState:
        return self._child_states.setdefault(child.name, _ChildState(started_at=now))

    def _restart(self, child: Child, state: _ChildState, now: float) -> None:
        try:
            self.supervisor.restart(child)
        except SupervisorError as error:
            state.failure_count += 1
            state.restart_at = now + pause_before_start(state.failure_count)
            self.write_line(str(error))
        else:
            state.started_at, state.restart_at = now, None
            self.write_line(f"{child.name} was restarted")

    def _report_errors(self, child: Child, state: _ChildState, now: float) -> None:
        errors, state.log_offset = read_error_lines(child.log, state.log_offset)
        if errors:
            state.unreported_error_count += len(errors)
            state.last_error = errors[-1]
        if state.unreported_error_count and now - state.errors_reported_at >= _ERROR_REPORT_INTERVAL:
            count_text = (
                f"{state.unreported_error_count} errors, last one: "
                if state.unreported_error_count > 1
                else ""
            )
            self.write_line(f"{child.name}: {count_text}{state.last_error} (log: {child.log})")
            state.errors_reported_at, state.unreported_error_count = now, 0


def read_error_lines(log: Path, offset: int) -> tuple[list[str], int]:
    """Return the error lines of `log` after byte `offset`, and the offset to continue from; only whole lines count."""
    try:
        with log.open("rb") as lines:
            lines.seek(offset)
            text = lines.read(_MOST_READ_BYTES)
    except FileNotFoundError:
        return [], offset
    whole = text.rfind(b"\n") + 1
    if not whole and len(text) == _MOST_READ_BYTES:  # one very long line: skip it
        whole = _MOST_READ_BYTES
    return [
        line.decode(errors="replace").strip() for line in _ERROR_LINE.findall(text[:whole])
    ], offset + whole
