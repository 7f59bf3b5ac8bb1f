"""Wait for what must happen, with a deadline; never for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import psutil

#: Seconds. A deadline costs nothing where the thing happens: generous, for a machine that is busy with others.
DEADLINE = 60.0


async def eventually(met: Callable[[], bool | Awaitable[bool]], *, seconds: float = DEADLINE) -> None:
    """Poll until `met`; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        result = met()
        if result if isinstance(result, bool) else await result:
            return
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        await asyncio.sleep(_pause(began))


def eventually_sync(met: Callable[[], bool], *, seconds: float = DEADLINE) -> None:
    """Poll until `met`, where there is no event loop; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if met():
            return
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(_pause(began))


def _pause(began: float) -> float:
    """Seconds until the next look: as long as this one took, for who only looks keeps the others from their work."""
    return min(max(time.monotonic() - began, 0.01), 0.25)


def gone(pid: int) -> bool:
    """Whether no process of this id runs; one that only waits to be reaped counts as gone."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
