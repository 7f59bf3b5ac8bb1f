"""The routes file of a gateway, reloaded when it changes. An invalid file leaves the previous routes in effect."""

from __future__ import annotations

import asyncio
import logging
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from fleet.nodes.shared.watched_files import WatchedFiles
from fleet.protocol.retry import grpc_route_yaml
from fleet.protocol.retry.grpc_route import RouteError
from fleet.protocol.retry.route_table import RouteTable

log = logging.getLogger(__name__)

#: Largest routes file in bytes: as large as a ConfigMap of Kubernetes may be.
_MAX_FILE_BYTES = 1024 * 1024


class RoutesFileError(Exception):
    """The routes file cannot be used. The message has every problem with its path."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(f"{path}: {'; '.join(problems)}")


def read(path: Path) -> RouteTable:
    """Return the routes in a file. Raises RoutesFileError."""
    try:
        file_stat = path.stat()
        if (
            stat.S_ISFIFO(file_stat.st_mode)
            or stat.S_ISSOCK(file_stat.st_mode)
            or stat.S_ISCHR(file_stat.st_mode)
        ):
            raise RoutesFileError(path, ["is not a regular file"])
        if file_stat.st_size > _MAX_FILE_BYTES:
            raise RoutesFileError(path, [f"is larger than {_MAX_FILE_BYTES} bytes"])
        return RouteTable(grpc_route_yaml.from_yaml(path.read_text(encoding="utf-8")))
    except RouteError as error:
        raise RoutesFileError(
            path, [f"{problem.path}: {problem.sentence}" for problem in error.problems]
        ) from None
    except UnicodeDecodeError:
        raise RoutesFileError(path, ["is not UTF-8 text"]) from None
    except OSError as error:
        raise RoutesFileError(path, [f"cannot be read: {error.strerror or error}"]) from None


class RoutesFile:
    """The routes file, and the problems of its current content."""

    def __init__(
        self, path: Path, apply: Callable[[RouteTable], Awaitable[None]], report: Callable[..., None]
    ) -> None:
        """Read nothing yet. `report(is_valid=, is_loaded=)` is called after every attempt."""
        self.path = path
        self._apply = apply
        self._report = report
        self.watched_files = WatchedFiles([path], self._reload)
        #: Problems of the current file; empty: it is in effect.
        self.problems: list[str] = []
        self.loaded_at = 0.0

    async def load(self) -> None:
        """Read the file and apply it. Raises RoutesFileError."""
        self.watched_files.record_stamps()
        # In a thread, because a long file takes seconds and calls continue meanwhile.
        await self._apply(await asyncio.to_thread(read, self.path))
        self.loaded_at, self.problems = time.time(), []
        self._report(is_valid=True, is_loaded=True)

    async def _reload(self) -> None:
        was_wrong = bool(self.problems)
        try:
            await self.load()
        except RoutesFileError as error:
            if error.problems != self.problems:
                log.error("cannot use the routes file; the previous routes stay in effect: %s", error)
            self.problems = error.problems
            self._report(is_valid=False, is_loaded=False)
            return
        log.info("%s %s", self.path, "is valid again and in effect" if was_wrong else "is in effect")
