"""The lock of a home folder: a console and its programs share it while they run; a restore needs it alone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet.processes import folders

_NAME = "home.lock"
_CONSOLE_NAME = "console.lock"


class HomeInUseError(Exception):
    """Another program of Refloat holds the lock of the home folder."""


@contextmanager
def lock_home(home: Path, *, is_exclusive: bool) -> Iterator[None]:
    """Hold the lock within the block. Raises HomeInUseError and OSError.

    Forks of this process hold it, too, until they end.
    """
    with _hold(home, _NAME, fcntl.LOCK_EX if is_exclusive else fcntl.LOCK_SH):
        yield


@contextmanager
def lock_console(home: Path) -> Iterator[None]:
    """Hold the lock of the one console of a home folder within the block. Raises HomeInUseError and OSError."""
    with _hold(home, _CONSOLE_NAME, fcntl.LOCK_EX):
        yield


@contextmanager
def _hold(home: Path, name: str, operation: int) -> Iterator[None]:
    folders.create_private_folder(home)
    descriptor = os.open(home / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HomeInUseError(home) from None
        yield
    finally:
        os.close(descriptor)
