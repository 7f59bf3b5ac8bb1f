"""Wait for a condition with a deadline, never for a fixed time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import psutil

#: Seconds. A deadline costs nothing where the thing happens: generous, for a machine that is busy with others.
DEADLINE = 60.0


async def eventually(condition: Callable[[], bool | Awaitable[bool]], *, seconds: float = DEADLINE) -> None:
    """Poll until `condition` holds; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        start = time.monotonic()
        outcome = condition()
        if outcome if isinstance(outcome, bool) else await outcome:
            return
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        await asyncio.sleep(_pause(start))


def eventually_sync(condition: Callable[[], bool], *, seconds: float = DEADLINE) -> None:
    """Poll until `condition` holds, where there is no event loop; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        start = time.monotonic()
        if condition():
            return
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(_pause(start))


def _pause(start: float) -> float:
    """Return the seconds until the next check: as long as the last one took, so that checks do not use all CPU."""
    return min(max(time.monotonic() - start, 0.01), 0.25)


def is_gone(pid: int) -> bool:
    """Return whether no process with this id runs; a zombie counts as gone."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
