"""Wait for what must happen, with a deadline; never for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import psutil

DEADLINE = 20.0


async def eventually(met: Callable[[], bool | Awaitable[bool]], *, seconds: float = DEADLINE) -> None:
    """Poll until `met`; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        result = met()
        if result if isinstance(result, bool) else await result:
            return
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        await asyncio.sleep(0.01)


def eventually_sync(met: Callable[[], bool], *, seconds: float = DEADLINE) -> None:
    """Poll until `met`, where there is no event loop; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether no process of this id runs; one that only waits to be reaped counts as gone."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
