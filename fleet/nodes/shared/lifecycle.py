"""The lifecycle of every program: start or fail with one line, print the ready line, stop on a signal or restart."""

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
    """The program cannot start. The message says what to fix. Exit code 2."""


def raise_file_limit() -> None:
    """Raise the limit of open files as far as allowed: the usual 1024 is too low for 500 agents or 1,000 tunnels."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run(work: Callable[[], None]) -> None:
    """Run a program. A NodeStartError becomes one line on stderr and exit code 2."""
    logging.basicConfig(level=logging.INFO, handlers=[log_format.create_handler()])
    raise_file_limit()
    garbage.collect_less()
    try:
        work()
    except NodeStartError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)


def run_on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new event loop that does not log an error when a gRPC caller leaves early."""
    logging.getLogger("grpc._cython.cygrpc").addFilter(_should_log)
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        return runner.run(work)


def _new_loop() -> asyncio.AbstractEventLoop:
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_handle_exception)
    return loop


def _handle_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an unhandled exception, unless it is a gRPC response whose caller had already left.

    grpc.aio drops a failed response if it knows that the caller is gone, but raises if the connection broke a moment
    earlier. A traceback of that would only be noise.
    """
    import grpc.aio  # imported here, because forwarders and balancers do not need grpc

    if isinstance(context.get("exception"), grpc.aio.InternalError) and "future" in context:
        _log.debug("response.unsent: %s", context["exception"])
        return
    loop.default_exception_handler(context)


def _should_log(record: logging.LogRecord) -> bool:
    """Drop grpc.aio's log record about an error response that was not sent because the caller's deadline had passed."""
    import grpc.aio  # imported here for the same reason

    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, grpc.aio.InternalError):
        return True
    _log.debug("response.unsent: %s", error)
    return False


async def start_listening(address: tuple[str, int], start: Awaitable[T]) -> T:
    """Await something that listens on `address`. Raises NodeStartError if the port cannot be used."""
    try:
        return await start
    except OSError as error:
        reason = _describe_listen_error(error)
        raise NodeStartError(f"cannot listen on {addresses.join(*address)}: {reason}") from error


def _describe_listen_error(error: OSError) -> str:
    """Return the reason in words. asyncio's own text repeats the address."""
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; choose another one, or 0 for any free port"
    return error.strerror or str(error)


def print_ready_line(**fields: Any) -> None:
    """Print the ready line, which supervisors wait for."""
    sys.stdout.write(json.dumps({"event": "ready", **fields}) + "\n")
    sys.stdout.flush()


async def wait_for_stop_signal() -> None:
    """Wait for SIGTERM or SIGINT."""
    stop_event = asyncio.Event()
    set_on_stop_signal(stop_event)
    await stop_event.wait()


def set_on_stop_signal(stop_event: asyncio.Event) -> None:
    """Set an event on SIGTERM and SIGINT. Call it before the ready line: signals may come right after it."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_event.set)


@dataclass
class Shutdown:
    """A requested restart of a program. Each run has its own."""

    stop_event: asyncio.Event = field(default_factory=asyncio.Event)
    #: Drain time of this restart, seconds; None: the program's own setting.
    drain: float | None = None
    #: Flags that keep the addresses in the next run; None: no restart.
    restart_flags: Sequence[str] | None = None
    is_restart_requested: bool = False

    def request_restart(self, drain: float | None) -> None:
        """Stop the program after `drain` seconds and start it again; None: without draining."""
        self.is_restart_requested, self.drain = True, drain
        self.stop_event.set()

    def restart_argv(self) -> list[str] | None:
        """Return the command line of the next run; None if the program must stop instead."""
        if not self.is_restart_requested or self.restart_flags is None:
            return None
        argv, restart_flags = list(sys.orig_argv), list(self.restart_flags)
        if argv[-len(restart_flags) :] != restart_flags:
            argv += restart_flags  # if a flag is given twice, click uses the last one
        return [sys.executable, *argv[1:]]


def replace_process(argv: list[str]) -> None:
    """Replace this process with a new run of the program, which keeps its pid and its environment."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(argv[0], argv)  # noqa: S606 - our own command line
