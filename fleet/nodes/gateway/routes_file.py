"""The routes file of a gateway, read again when it changes: one that cannot be obeyed leaves the old one in force."""

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

#: As long as a ConfigMap of Kubernetes may be; what is longer was given by mistake. Bytes.
_LONGEST = 1024 * 1024


class RoutesFileError(Exception):
    """A routes file that cannot be used; one sentence, and every mistake with its path."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(f"{path}: {'; '.join(problems)}")


def read(path: Path) -> RouteTable:
    """Read routes. Raises FileError."""
    try:
        file_stat = path.stat()
        if stat.S_ISFIFO(file_stat.st_mode) or stat.S_ISSOCK(file_stat.st_mode) or stat.S_ISCHR(file_stat.st_mode):
            raise RoutesFileError(path, ["is no file: nobody could see it change, and reading it may never end"])
        if file_stat.st_size > _LONGEST:
            raise RoutesFileError(path, [f"is longer than {_LONGEST} bytes"])
        return RouteTable(grpc_route_yaml.from_yaml(path.read_text(encoding="utf-8")))
    except RouteError as error:
        raise RoutesFileError(path, [f"{problem.path}: {problem.sentence}" for problem in error.problems]) from None
    except UnicodeDecodeError:
        raise RoutesFileError(path, ["is not text in UTF-8"]) from None
    except OSError as error:
        raise RoutesFileError(path, [f"cannot be read: {error.strerror or error}"]) from None


class RoutesFile:
    """The file, and what was made of it."""

    def __init__(
        self, path: Path, apply: Callable[[RouteTable], Awaitable[None]], report: Callable[..., None]
    ) -> None:
        """Read nothing yet; `report(valid=, loaded=)` is told of every attempt."""
        self.path = path
        self._apply = apply
        self._report = report
        self.files = WatchedFiles([path], self._reload)
        #: What is wrong with the file as it is now; empty: it is in force.
        self.problems: list[str] = []
        self.loaded_at = 0.0

    async def load(self) -> None:
        """Read it and put it in force. Raises FileError."""
        self.files.record_stamps()
        # Not in the loop: a long file takes seconds, and calls go on meanwhile.
        await self._apply(await asyncio.to_thread(read, self.path))
        self.loaded_at, self.problems = time.time(), []
        self._report(valid=True, loaded=True)

    async def _reload(self) -> None:
        was_wrong = bool(self.problems)
        try:
            await self.load()
        except RoutesFileError as error:
            if error.problems != self.problems:
                log.error("the routes file cannot be obeyed; the routes before it stay in force: %s", error)
            self.problems = error.problems
            self._report(valid=False, loaded=False)
            return
        log.info("%s %s", self.path, "reads well again and is in force" if was_wrong else "is in force")
