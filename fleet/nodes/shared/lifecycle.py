"""What every node does around its work: start on time or fail with one line, say that it is ready, end when told."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import uvloop

from fleet.nodes.shared import addresses
from fleet.processes import garbage, log_format

T = TypeVar("T")

_log = logging.getLogger(__name__)


class NodeStartError(Exception):
    """A node that cannot start; the sentence says what to mend. Exit code 2."""


def raise_file_limit() -> None:
    """Allow as many open files as the system lets us: the usual 1024 are 500 agents, or a proxy's thousand tunnels."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run(work: Callable[[], None]) -> None:
    """Do a node's work; a StartError becomes one line on stderr and exit code 2."""
    logging.basicConfig(level=logging.INFO, handlers=[log_format.handler()])
    raise_file_limit()
    garbage.collect_less()
    try:
        work()
    except NodeStartError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


def on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a node's coroutine to its end on a loop of its own, on which a caller that leaves is no fault."""
    logging.getLogger("grpc._cython.cygrpc").addFilter(_is_own_error)
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        return runner.run(work)


def _new_loop() -> asyncio.AbstractEventLoop:
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_handle_exception)
    return loop


def _handle_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Tell of what nobody caught, unless it is an answer that its caller did not wait for.

    grpc.aio drops a failed answer when it knows that the caller is gone, and lets it escape when the connection
    broke a moment earlier: with nobody left to be told, a traceback of it is noise.
    """
    import grpc.aio  # here, because forwarders and balancers do without it

    if isinstance(context.get("exception"), grpc.aio.InternalError) and "future" in context:
        _log.debug("answer.unsent: %s", context["exception"])
        return
    loop.default_exception_handler(context)


def _is_own_error(record: logging.LogRecord) -> bool:
    """Drop what grpc.aio says of a refusal that could not be sent, for its caller's deadline had just passed."""
    import grpc.aio  # as above

    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, grpc.aio.InternalError):
        return True
    _log.debug("answer.unsent: %s", error)
    return False


async def start_listening(address: tuple[str, int], start: Awaitable[T]) -> T:
    """Await something that listens on `address`. Raises StartError when the port cannot be had."""
    try:
        return await start
    except OSError as error:
        reason = _listen_problem(error)
        raise NodeStartError(f"cannot listen on {addresses.join(*address)}: {reason}") from error


def _listen_problem(error: OSError) -> str:
    """What is in the way; asyncio's own sentence says the address, too, and in Python's spelling."""
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; choose another, or 0 for one that is free"
    return error.strerror or str(error)


def announce(**facts: Any) -> None:
    """Print the ready line that supervisors wait for."""
    sys.stdout.write(json.dumps({"event": "ready", **facts}) + "\n")
    sys.stdout.flush()


async def wait_for_stop_signal() -> None:
    """Wait for SIGTERM or SIGINT."""
    stop_event = asyncio.Event()
    set_on_stop_signal(stop_event)
    await stop_event.wait()


def set_on_stop_signal(stop_event: asyncio.Event) -> None:
    """Have SIGTERM and SIGINT set an event; before the ready line, which invites them."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_event.set)


@dataclass
class Shutdown:
    """Whether a node is to end, or to end and start again; one for each run."""

    stop_event: asyncio.Event = field(default_factory=asyncio.Event)
    #: Seconds that those who are on it may take to leave; None: its own.
    drain: float | None = None
    #: Flags that keep its addresses; None: it is not to start again.
    flags: Sequence[str] | None = None
    is_restart_requested: bool = False

    def request_restart(self, drain: float | None) -> None:
        """Start again."""
        self.is_restart_requested, self.drain = True, drain
        self.stop_event.set()

    def argv(self) -> list[str] | None:
        """The command line to start again with; None when it is to end."""
        if not self.is_restart_requested or self.flags is None:
            return None
        argv, flags = list(sys.orig_argv), list(self.flags)
        if argv[-len(flags) :] != flags:
            argv += flags  # of a flag that is given twice, click takes the last
        return [sys.executable, *argv[1:]]


def replace_process(argv: list[str]) -> None:
    """Become a new run of this program: same pid, so whoever watches it goes on doing so; same environment."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(argv[0], argv)  # noqa: S606 - our own command line
