"""Files that are read again when they change: by what the file system says of them, looked at now and then."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

log = logging.getLogger(__name__)

#: So often files are looked at, seconds.
_LOOK = 0.5

#: Device, file, time in ns, size: another file, or another content; zeros: there is none.
_Stamp = tuple[int, int, int, int]


class WatchedFiles:
    """Some files, and what is to be done when they are others."""

    def __init__(self, paths: Sequence[Path], read: Callable[[], Awaitable[None]]) -> None:
        """Read nothing yet; `read` tells whoever must know what is wrong with them."""
        self._paths = tuple(paths)
        self._read = read
        self._stamps: tuple[_Stamp, ...] | None = None
        #: As they were at the last look: what changes from look to look is still being written.
        self._last_stamps: tuple[_Stamp, ...] | None = None
        self._wakeup = asyncio.Event()

    def record_stamps(self) -> None:
        """Take note of them as they are; to be called before they are read: what changes meanwhile is read again."""
        self._stamps = tuple(map(_stamp, self._paths))

    def reload_now(self) -> None:
        """Read them again, whether they changed or not."""
        self._stamps = None
        self._wakeup.set()

    async def watch(self) -> None:
        """Read them whenever they have changed, and then stayed as they are from one look to the next."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._wakeup.wait()
            self._wakeup.clear()
            try:
                previous_stamps, self._last_stamps = self._last_stamps, tuple(map(_stamp, self._paths))
                if self._stamps is None or self._stamps != self._last_stamps == previous_stamps:
                    self.record_stamps()
                    await self._read()
            except Exception:
                log.exception("%s could not be put in force", ", ".join(map(str, self._paths)))


def _stamp(path: Path) -> _Stamp:
    try:
        file_stat = path.stat()
    except OSError:
        return (0, 0, 0, 0)
    return file_stat.st_dev, file_stat.st_ino, file_stat.st_mtime_ns, file_stat.st_size
