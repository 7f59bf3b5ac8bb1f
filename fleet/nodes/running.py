"""What every node does around its work: start on time or fail with one line, say that it is ready, end when told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fleet.nodes import addresses

T = TypeVar("T")


class StartError(Exception):
    """A node that cannot start; the sentence says what to mend. Exit code 2."""


def raise_file_limit() -> None:
    """Allow as many open files as the system lets us: the usual 1024 are 500 agents, or a proxy's thousand tunnels."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run(work: Callable[[], None]) -> None:
    """Do a node's work; a StartError becomes one line on stderr and exit code 2."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    raise_file_limit()
    try:
        work()
    except StartError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


async def listening(address: tuple[str, int], start: Awaitable[T]) -> T:
    """Await something that listens on `address`. Raises StartError when the port cannot be had."""
    try:
        return await start
    except OSError as error:
        why = error.strerror or str(error)
        raise StartError(f"cannot listen on {addresses.join(*address)}: {why}") from error


def announce(**facts: Any) -> None:
    """Print the ready line that supervisors wait for."""
    sys.stdout.write(json.dumps({"event": "ready", **facts}) + "\n")
    sys.stdout.flush()


async def until_told_to_end() -> None:
    """Wait for SIGTERM or SIGINT."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    await told.wait()
