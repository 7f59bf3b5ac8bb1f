"""Wait for what must be seen, with a deadline; the only way tests let time pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")


def eventually(look: Callable[[], T], what: str, *, within: float = 10.0, every: float = 0.02) -> T:
    """Return the first true answer of `look`; AssertionError naming `what` when none came in `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        time.sleep(every)


def gone(pid: int) -> bool:
    """Whether no process of this id runs; one that only waits to be reaped counts as gone."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
