"""Which process a pid means, and how it is: a pid in a file may belong to somebody else by now."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class ProcessState(StrEnum):
    """What a process does, as the kernel sees it."""

    RUNNING = "running"
    #: SIGSTOP: it holds its connections and answers nobody.
    FROZEN = "frozen"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used so far."""

    #: Resident memory, bytes.
    rss: int
    #: Processor time, seconds.
    cpu: float


def start_ticks(pid: int) -> int | None:
    """When `pid` was started, in the kernel's ticks since boot; None where that cannot be known.

    Together with the pid it names one process for ever: proc(5), field 22.
    """
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def state(pid: int, expected_start: int | None = None) -> ProcessState:
    """How `pid` is; DEAD too when it is not the process that was `born` then, or only waits to be reaped."""
    if sys.platform != "linux":
        return ProcessState.RUNNING if _exists(pid) else ProcessState.DEAD
    fields = _stat(pid)
    if not fields or fields[0] in "ZX" or (expected_start is not None and int(fields[19]) != expected_start):
        return ProcessState.DEAD
    return ProcessState.FROZEN if fields[0] in "Tt" else ProcessState.RUNNING


def usage(pid: int) -> Usage | None:
    """What `pid` has used; None where that cannot be known."""
    fields = _stat(pid)
    if not fields:
        return None
    ticks = int(fields[11]) + int(fields[12])
    return Usage(rss=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"), cpu=ticks / os.sysconf("SC_CLK_TCK"))


def _stat(pid: int) -> list[str]:
    """The fields of proc(5) stat after the program's name, which may hold anything; empty when there are none."""
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
