"""Files that are read again when their metadata (stat) changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

log = logging.getLogger(__name__)

#: Seconds between two checks of the files.
_CHECK_INTERVAL = 0.5

#: Device, inode, modification time in ns and size; zeros: no such file.
_Stamp = tuple[int, int, int, int]


class WatchedFiles:
    """A set of files, and a function that reads them when one has changed."""

    def __init__(self, paths: Sequence[Path], read: Callable[[], Awaitable[None]]) -> None:
        """Read nothing yet. `read` reports its own errors."""
        self._paths = tuple(paths)
        self._read = read
        self._loaded_stamps: tuple[_Stamp, ...] | None = None
        #: The files at the last check: a file that differs from check to check is still being written.
        self._checked_stamps: tuple[_Stamp, ...] | None = None
        self._wakeup = asyncio.Event()

    def record_stamps(self) -> None:
        """Remember the state of the files. Call it before reading, so that a change during the read is seen later."""
        self._loaded_stamps = tuple(map(_stamp_of, self._paths))

    def reload_now(self) -> None:
        """Read the files again, changed or not."""
        self._loaded_stamps = None
        self._wakeup.set()

    async def watch(self) -> None:
        """Read the files whenever they have changed and then stayed the same between two checks."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_INTERVAL):
                    await self._wakeup.wait()
            self._wakeup.clear()
            try:
                previous_stamps, self._checked_stamps = (
                    self._checked_stamps,
                    tuple(map(_stamp_of, self._paths)),
                )
                if (
                    self._loaded_stamps is None
                    or self._loaded_stamps != self._checked_stamps == previous_stamps
                ):
                    self.record_stamps()
                    await self._read()
            except Exception:
                log.exception("cannot apply %s", ", ".join(map(str, self._paths)))


def _stamp_of(path: Path) -> _Stamp:
    try:
        file_stat = path.stat()
    except OSError:
        return (0, 0, 0, 0)
    return file_stat.st_dev, file_stat.st_ino, file_stat.st_mtime_ns, file_stat.st_size
