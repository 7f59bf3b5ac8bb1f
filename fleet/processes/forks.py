"""Run Python programs as copies of this process, which has loaded what they have in common: nothing is loaded twice.

A copy behaves like a program of its own: a session, a log, an environment, a command line in `ps`, the default signals,
and the kernel ends it when we end. The process that forks must have no other threads and no gRPC in use: neither
survives a fork (https://github.com/grpc/grpc/issues/43055). docs/decisions/0008-copies-of-one-process.md
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from typing import IO

from fleet.processes import titles

_PR_SET_PDEATHSIG = 1


def is_possible(argv: Sequence[str]) -> bool:
    """Whether a copy of us can be this program: `python -m MODULE ...` with our Python, on Linux."""
    return sys.platform == "linux" and len(argv) > 2 and tuple(argv[:2]) == (sys.executable, "-m")


class Fork:
    """A copy of this process that runs a program; to its owner it is like a `subprocess.Popen`."""

    def __init__(self, process: BaseProcess, args: Sequence[str]) -> None:
        self._process = process
        self.args = args

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process.pid is not None, "it was started"
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """How it ended, -N by signal N; None while nobody has seen it end."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Look whether it has ended; reap it if so."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
        return code

    def send_signal(self, sig: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def spawn(
    name: str,
    argv: Sequence[str],
    *,
    log: IO[bytes],
    on_parent_death: signal.Signals = signal.SIGKILL,
    begin: Callable[[], None],
) -> Fork:
    """Start the program `argv` (see `is_possible`) as a copy of this process. Raises OSError.

    `begin` runs first in the copy: it gives it an environment, and reads again what depends on that.
    """
    assert is_possible(argv), f"no copy of us can be {argv[0]}"
    parent = os.getpid()

    def run_program() -> None:
        _leave_parent(parent, on_parent_death)
        _redirect_to(log)
        begin()
        titles.show_command_line(name, argv)
        sys.argv = list(argv[2:])
        runpy.run_module(argv[2], run_name="__main__", alter_sys=True)

    process = multiprocessing.get_context("fork").Process(target=run_program, name=name)
    # Objects that are there now are never looked at for garbage: that would write to every one of them.
    gc.freeze()
    # A signal that came between the fork and the first line of the copy would run our handlers in it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return Fork(process, argv)


def _leave_parent(parent: int, on_parent_death: signal.Signals) -> None:
    """Become a process of its own, that the kernel ends with its parent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(on_parent_death))
    # It may have died before prctl: then nobody will ever send the signal.
    if os.getppid() != parent:
        os._exit(1)
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN, None):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _redirect_to(log: IO[bytes]) -> None:
    """Have everything that is said go to the log, and read nothing."""
    devnull = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((devnull, 0), (log.fileno(), 1), (log.fileno(), 2)):
        os.dup2(source, target)
    os.close(devnull)
