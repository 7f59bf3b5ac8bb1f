"""State and resource usage of processes; start times tell whether a stored pid still means the same process."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class ProcessState(StrEnum):
    """The state of a process, as the kernel reports it."""

    RUNNING = "running"
    #: Stopped by SIGSTOP: its connections stay open, but it does not respond.
    FROZEN = "frozen"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """Resource usage of a process."""

    #: Resident memory, bytes.
    rss: int
    #: Processor time, seconds.
    cpu: float


def start_ticks(pid: int) -> int | None:
    """Return the start time of `pid` in clock ticks since boot (proc(5), field 22); None if it is not available.

    Pid and start time together identify a process until the next boot.
    """
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def state(pid: int, expected_start_ticks: int | None = None) -> ProcessState:
    """Return the state of `pid`; DEAD also for a zombie, or if its start is not `expected_start_ticks`."""
    if sys.platform != "linux":
        return ProcessState.RUNNING if _exists(pid) else ProcessState.DEAD
    fields = _stat(pid)
    if (
        not fields
        or fields[0] in "ZX"
        or (expected_start_ticks is not None and int(fields[19]) != expected_start_ticks)
    ):
        return ProcessState.DEAD
    return ProcessState.FROZEN if fields[0] in "Tt" else ProcessState.RUNNING


def usage(pid: int) -> ProcessUsage | None:
    """Return the resource usage of `pid`; None if it is not available."""
    fields = _stat(pid)
    if not fields:
        return None
    ticks = int(fields[11]) + int(fields[12])
    return ProcessUsage(
        rss=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"), cpu=ticks / os.sysconf("SC_CLK_TCK")
    )


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the program name; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
