"""The routes file of a gateway, read again when it changes: one that cannot be obeyed leaves the old one in force."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from fleet.protocol import grpc_route_yaml
from fleet.protocol.grpc_route import RouteError
from fleet.protocol.route_table import RouteTable

log = logging.getLogger(__name__)

#: So often the file is looked at, seconds.
_LOOK = 0.5
#: A file of routes is text that people wrote; what is longer was given by mistake.
_LONGEST = 4 * 1024 * 1024

#: Device, file, time in ns, size: another file, or another content.
_Stamp = tuple[int, int, int, int] | None


class FileError(Exception):
    """A routes file that cannot be used; one sentence, and every mistake with its path."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(f"{path}: {'; '.join(problems)}")


def read(path: Path) -> RouteTable:
    """Read routes. Raises FileError."""
    try:
        if path.stat().st_size > _LONGEST:
            raise FileError(path, [f"is longer than {_LONGEST} bytes"])
        return RouteTable(grpc_route_yaml.from_yaml(path.read_text(encoding="utf-8")))
    except RouteError as error:
        raise FileError(path, [f"{one.path}: {one.sentence}" for one in error.problems]) from None
    except UnicodeDecodeError:
        raise FileError(path, ["is not text in UTF-8"]) from None
    except OSError as error:
        raise FileError(path, [f"cannot be read: {error.strerror or error}"]) from None


class RoutesFile:
    """The file, and what was made of it."""

    def __init__(
        self, path: Path, apply: Callable[[RouteTable], Awaitable[None]], report: Callable[..., None]
    ) -> None:
        """Read nothing yet; `report(valid=, loaded=)` is told of every attempt."""
        self.path = path
        self._apply = apply
        self._report = report
        self._stamp: _Stamp = None
        self._now = asyncio.Event()
        #: What is wrong with the file as it is now; empty: it is in force.
        self.problems: list[str] = []
        self.loaded_at = 0.0

    async def load(self) -> None:
        """Read it and put it in force. Raises FileError."""
        self._stamp = self._stamped()
        await self._apply(read(self.path))
        self.loaded_at, self.problems = time.time(), []
        self._report(valid=True, loaded=True)

    def look_now(self) -> None:
        """Read it again, whether it changed or not."""
        self._stamp = None
        self._now.set()

    async def keep_reading(self) -> None:
        """Read it whenever it changes."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await self._now.wait()
            self._now.clear()
            try:
                if self._stamp is None or self._stamped() != self._stamp:
                    await self._reload()
            except Exception:
                log.exception("%s could not be put in force", self.path)

    async def _reload(self) -> None:
        was_wrong = bool(self.problems)
        try:
            await self.load()
        except FileError as error:
            if error.problems != self.problems:
                log.error("the routes file cannot be obeyed; the routes before it stay in force: %s", error)
            self.problems = error.problems
            self._report(valid=False, loaded=False)
            return
        log.info("%s %s", self.path, "reads well again and is in force" if was_wrong else "is in force")

    def _stamped(self) -> _Stamp:
        try:
            found = self.path.stat()
        except OSError:
            return (0, 0, 0, 0)
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
