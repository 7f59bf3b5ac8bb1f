"""Keep supervised children alive: start a dead one again after a pause, and repeat what they complain of.

Plugged into `Supervisor.watch`: `on_exit=keeper.ended, on_tick=keeper.tick`.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fleet.processes.supervisor import Child, Supervisor, SupervisorError

#: First pause before a start, its ceiling, and how long a child must live for the pauses to begin anew, seconds.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
_LONG_LIFE = 60.0
#: At most one line of complaints per child in this time, seconds.
_COMPLAINT_PAUSE = 10.0
#: How Celery and uvicorn mark them.
_COMPLAINT = re.compile(rb"^.*\b(?:ERROR|CRITICAL)\b.*$", re.MULTILINE)
#: Read at most so much of a log at once, bytes: a child that raves must not stop us.
_READ = 1 << 20


def pause_before_start(failures: int) -> float:
    """Return the seconds to wait after the `failures`-th end in a row, counted from 1.

    However it ended: one SIGKILL is an accident or somebody's restart, and half a minute without a worker is an outage.
    A child that the kernel kills again and again, short of memory, meets the growing pauses.
    """
    return min(_FIRST_PAUSE * 2.0 ** min(failures - 1, 10), _LONGEST_PAUSE)


def how_it_ended(returncode: int) -> str:
    """The end of a process, for people."""
    if returncode < 0:
        return f"was ended by {signal.Signals(-returncode).name}"
    return f"ended with code {returncode}"


@dataclass
class _Life:
    """What we know of one child."""

    started_at: float
    failures: int = 0
    start_again_at: float | None = None
    #: How far its log was read, when it last was told of, and what came since.
    read: int = 0
    told_at: float = float("-inf")
    complaints: int = 0
    last_complaint: str = ""


@dataclass
class Keeper:
    """Watches over the children of one supervisor. Times are monotonic."""

    supervisor: Supervisor
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    _lives: dict[str, _Life] = field(default_factory=dict)

    def ended(self, child: Child) -> None:
        """Note that a child ended by itself, say so, and plan its next start."""
        now = self.clock()
        life = self._life(child, now)
        life.failures = 1 if now - life.started_at > _LONG_LIFE else life.failures + 1
        returncode = child.process.returncode
        pause = pause_before_start(life.failures)
        life.start_again_at = now + pause
        last = child.last_line() if returncode > 0 else ""
        said = f": {last}" if last else ""
        self.say(
            f"{child.name} {how_it_ended(returncode)}{said}; starting it again in {pause:.0f} s (log: {child.log})"
        )

    def tick(self) -> None:
        """Start again who has waited long enough, and repeat new complaints."""
        now = self.clock()
        for child in self.supervisor.children:
            life = self._life(child, now)
            if life.start_again_at is not None and now >= life.start_again_at:
                self._start_again(child, life, now)
            self._listen(child, life, now)

    def _life(self, child: Child, now: float) -> _Life:
        return self._lives.setdefault(child.name, _Life(started_at=now))

    def _start_again(self, child: Child, life: _Life, now: float) -> None:
        try:
            self.supervisor.restart(child)
        except SupervisorError as error:
            life.failures += 1
            life.start_again_at = now + pause_before_start(life.failures)
            self.say(str(error))
        else:
            life.started_at, life.start_again_at = now, None
            self.say(f"{child.name} runs again")

    def _listen(self, child: Child, life: _Life, now: float) -> None:
        found, life.read = complaints(child.log, life.read)
        if found:
            life.complaints += len(found)
            life.last_complaint = found[-1]
        if life.complaints and now - life.told_at >= _COMPLAINT_PAUSE:
            before = f"{life.complaints} errors, the last: " if life.complaints > 1 else ""
            self.say(f"{child.name}: {before}{life.last_complaint} (log: {child.log})")
            life.told_at, life.complaints = now, 0


def complaints(log: Path, read: int) -> tuple[list[str], int]:
    """The complaints in `log` after byte `read`, and how far it has been read now: whole lines only."""
    try:
        with log.open("rb") as lines:
            lines.seek(read)
            text = lines.read(_READ)
    except FileNotFoundError:
        return [], read
    whole = text.rfind(b"\n") + 1
    if not whole and len(text) == _READ:  # one endless line: step over it
        whole = _READ
    return [line.decode(errors="replace").strip() for line in _COMPLAINT.findall(text[:whole])], read + whole
